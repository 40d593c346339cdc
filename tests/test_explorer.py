"""The interactive maps: what the page holds is what the model did, and what the script draws is what the page holds."""

import base64
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds import ATTENTIONS, build, each, small_attention, small_multiscale, small_vit, some_pictures
from torch import Tensor

from vitlab.look import Look, inside, look, places, trust
from vitlab.model import Network, Shape
from vitlab.model.attention import Linformer, Softmax
from vitlab.model.heads import Mean
from vitlab.model.multiscale import ClassAttention
from vitlab.model.tokens import ConvPatches
from vitlab.report import Insight, explorer
from vitlab.report.view import render_look

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


def numbers(text: str, kind: Any = "<f4") -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), kind)


def rows_of(coded: dict[str, str], *shape: int) -> np.ndarray:
    """Quantised rows as weights: steps −127 … 127 of each row's peak."""
    steps = numbers(coded["steps"], np.uint8).reshape(shape).astype(float) - 127
    return steps / 127 * numbers(coded["peaks"]).reshape(*shape[:-1], 1)


def looked(model: Any, count: int = 2) -> tuple[Network, Look]:
    network = build(model).eval()
    return network, look(network, some_pictures(count))


@each(ATTENTIONS)
@pytest.mark.parametrize("several", [False, True], ids=["vit", "multi-scale"])
def test_the_page_holds_every_weight_of_every_map(kind: Any, several: bool) -> None:
    attention = small_attention(kind, heads=4)
    network, seen = looked(small_multiscale(attention=attention) if several else small_vit(attention=attention))
    data = explorer.gather(network, seen).data
    assert data["whole"]
    for place in range(2):
        streams = list(network.trace(seen.pictures[place : place + 1]).all())
        for number, stream in enumerate(streams):
            n, held = stream.layout.tokens, data["pictures"][place]["streams"][number]
            directions = [one[0] / one[0].norm(dim=-1, keepdim=True) for one in stream.tokens]
            likeness = numbers(held["likeness"], np.uint8).reshape(-1, n, n).astype(float) / 127 - 1
            expected = torch.stack([one @ one.T for one in directions]).detach().numpy()
            np.testing.assert_allclose(likeness, expected, atol=0.005)
            layers = [layer[0].detach().double() for layer in stream.maps().layers]
            rolled = torch.eye(n).double()
            for layer in layers:
                rolled = (layer.mean(dim=0) + torch.eye(n)) / 2 @ rolled
            close(rows_of(held["rollout"], n, n), rolled)
            if layers:
                close(rows_of(held["attention"], len(layers), layers[0].shape[0], n, n), torch.stack(layers))
            relevance = numbers(held["relevance"][0]["row"])
            np.testing.assert_allclose(relevance, seen.streams[number].relevance[place], rtol=1e-5)


def close(found: np.ndarray, expected: Tensor) -> None:
    """To half a step of 127 of the row's largest weight."""
    peaks = expected.abs().amax(dim=-1, keepdim=True).numpy()
    assert (np.abs(found - expected.numpy()) <= peaks * (0.5 / 127) * 1.01 + 1e-9).all()


@pytest.mark.parametrize(
    "model", [small_vit(head=Mean()), small_multiscale(join=ClassAttention())], ids=["mean", "join"]
)
def test_what_is_read_is_what_the_look_gives(model: Any) -> None:
    """Likeness to the mean of the tokens that are read, and rollout through the join, whatever token was asked."""
    network, seen = looked(model)
    asked = look(network, seen.pictures, token="1,2")
    for one in (seen, asked):
        held = explorer.gather(network, one).data["pictures"][1]["streams"]
        for number, stream in enumerate(seen.streams):
            np.testing.assert_allclose(numbers(held[number]["rolloutRead"]), stream.rollout[1], rtol=1e-5)
            found = numbers(held[number]["likenessRead"]).reshape(-1, stream.layout.tokens)
            np.testing.assert_allclose(found, stream.similarity[1], rtol=1e-5)


def test_relevance_is_there_for_the_best_two_classes() -> None:
    network, seen = looked(small_vit())
    data = explorer.gather(network, seen).data
    for place in range(2):
        best = seen.logits[place].topk(2).indices.tolist()
        held = data["pictures"][place]["streams"][0]["relevance"]
        assert [one["label"] for one in held] == best
        second = inside(network, seen.pictures, target=seen.logits.topk(2).indices[:, 1]).streams[0].relevance[place]
        np.testing.assert_allclose(numbers(held[1]["row"]), second, rtol=1e-5)


def test_a_page_has_as_many_pictures_as_it_can_carry(monkeypatch) -> None:
    network, seen = looked(small_vit(), 5)
    one = explorer.sizes_of(network.trace(seen.pictures[:1]))[0]
    monkeypatch.setattr(explorer, "BUDGET", 3 * one + 1)
    found = explorer.gather(network, seen)
    assert (found.count, found.left_out, found.whole) == (3, 2, True)
    monkeypatch.setattr(explorer, "BUDGET", one - 1)
    found = explorer.gather(network, seen)
    assert not found.whole
    assert found.count == 5
    held = found.data["pictures"][1]["streams"][0]["attention"]
    close(rows_of(held, 2, 2, 1, 9)[:, :, 0], seen.streams[0].attention[1].double())


def page_with(network: Network, seen: Look, script: str, folder: Path) -> dict[str, Any]:
    """Open the page in a browser, let a script use it as a reader would, and return what it found."""
    tested = trust(network, seen.pictures, seen, steps=2, orders=1)
    text = render_look("test", Insight(seen, explorer.gather(network, seen), tested, places(network)))
    text = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", text)
    use = f"""<pre id="found"></pre><script>
      const all = (selector) => [...document.querySelectorAll(selector)];
      const part = (name) => document.querySelector(`[data-part="${{name}}"]`);
      const buttons = (name) => [...part(name).querySelectorAll("button")];
      const press = (name, text) => buttons(name).find((b) => b.textContent === text).click();
      const at = (element, y, x) => {{ const box = element.getBoundingClientRect();
        return {{ clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true }}; }};
      const colours = (canvas) => [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
      const errors = []; window.addEventListener("error", (event) => errors.push(event.message));
      const found = {{}};
      {script}
      found.errors = errors;
      document.getElementById("found").textContent = JSON.stringify(found);
    </script></body>"""
    file = folder / "page.html"
    file.write_text(text.replace("</body>", use), encoding="utf-8")
    done = subprocess.run(
        [str(BROWSER), "--no-sandbox", "--disable-gpu", "--dump-dom", "--window-size=1200,2000", file.as_uri()],
        check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    assert found[1], "the script ended early: " + done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))


in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here")


@in_a_browser
@pytest.mark.parametrize("kind", [Softmax, Linformer], ids=lambda kind: kind.kind)
def test_a_reader_sees_the_weights_of_what_was_chosen(kind: Any, tmp_path: Path) -> None:
    network, seen = looked(small_vit(attention=small_attention(kind), registers=1))
    found = page_with(
        network, seen,
        """
        part("pictures").querySelectorAll("button")[1].click();
        press("layers", "layer 1"); press("heads", "head 2");
        part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.75, 0.6)));
        found.read = part("readout").textContent; found.title = part("title").textContent;
        part("who").dispatchEvent(new MouseEvent("click", at(part("who"), 0.2, 0.9)));
        part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.75, 0.6)));
        found.patch = part("readout").textContent; found.looker = part("looker").textContent;
        found.canvas = colours(part("what").querySelector("canvas"));
        press("tokens", "register 1");
        part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.2, 0.1)));
        found.register = part("readout").textContent;
        press("show", "rollout");
        part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.2, 0.1)));
        found.rollout = part("readout").textContent;
        press("show", "likeness of tokens"); press("layers", "input");
        part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.2, 0.1)));
        found.likeness = part("readout").textContent;
        press("show", "relevance");
        found.classes = [...part("layers").querySelectorAll("button")].map((b) => b.textContent);
        found.lens = [...part("lens").children].map((line) => line.textContent);
        part("who").focus(); press("show", "attention");
        part("who").dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
        found.keyed = part("looker").textContent;
        const touch = { ...at(part("what"), 0.2, 0.1), pointerType: "touch" };
        for (const kind of ["pointerdown", "pointerleave"]) {
          part("what").dispatchEvent(new PointerEvent(kind, touch));
          all("svg[data-x]")[0].dispatchEvent(new PointerEvent(kind, touch));
        }
        found.chart = all("svg[data-x] ~ .readout")[0].textContent;
        found.tapped = part("readout").textContent; found.named = part("what").getAttribute("aria-label");
        """,
        tmp_path,
    )  # fmt: skip
    assert found["errors"] == []
    layer = network.maps(seen.pictures)[0].layers[0][1, 1].detach()  # first layer, second picture, second head
    assert found["title"] == "Attention, layer 1, head 2"
    assert value(found["read"]) == ((2, 3), pytest.approx(float(layer[0, 2 + 4 + 2]), rel=0.06, abs=0.004))
    assert "row 1, column 4" in found["looker"]
    assert value(found["patch"])[1] == pytest.approx(float(layer[2 + 3, 2 + 4 + 2]), rel=0.06, abs=0.004)
    assert value(found["register"]) == ((1, 1), pytest.approx(float(layer[1, 2]), rel=0.06, abs=0.004))
    row = layer[2 + 3, 2:].numpy()
    signed = kind is Linformer
    most = explorer.scale_of(seen, 0)["most"]
    share = row / most if signed else np.sqrt(np.abs(row / most))
    levels = (np.clip((share + 1) / 2 if signed else share, 0, 1) * 254).round()
    strength = np.array(found["canvas"]).reshape(-1, 4)[:, 3]  # opacity goes with the level
    expected = explorer.palette(signed)[levels.astype(int)][:, 3]
    assert np.abs(strength - expected.astype(int)).max() <= 3
    mixed = torch.eye(10)
    for maps in network.maps(seen.pictures)[0].layers:
        mixed = (maps[1].detach().mean(dim=0) + torch.eye(10)) / 2 @ mixed
    assert value(found["rollout"])[1] == pytest.approx(float(mixed[1, 2]), rel=0.06, abs=0.004)
    tokens = network.embed(seen.pictures)[1].detach()
    cosine = torch.nn.functional.cosine_similarity(tokens[1], tokens[2], dim=0)
    assert value(found["likeness"])[1] == pytest.approx(float(cosine), rel=0.06, abs=0.01)
    best = seen.logits[1].topk(2).indices.tolist()
    assert found["classes"] == [f"for {label}" for label in best]
    guesses = [f"{int(row.argmax())}" for row in seen.lens[1]]
    assert [re.sub(r"^(input|block \d)", "", line)[0] for line in found["lens"]] == guesses
    assert "row 1, column 1" in found["keyed"]
    row = layer[2, 2:]
    assert value(found["tapped"]) == ((1, 1), pytest.approx(float(row[0]), rel=0.06, abs=0.004))
    assert "rollout" in found["chart"]
    assert f"on the patch in row {int(row.argmax()) // 4 + 1}, column {int(row.argmax()) % 4 + 1}" in found["named"]


@in_a_browser
def test_a_misread_picture_says_what_it_is_and_narrow_screens_keep_its_shape(tmp_path: Path) -> None:
    network, seen = looked(small_vit())
    truths = [(guess + 1) % 5 if place else guess for place, guess in enumerate(seen.guesses)]
    shown = tuple(replace(one, truth=truth) for one, truth in zip(seen.shown, truths, strict=True))
    script = """found.names = buttons("pictures").map((b) => b.textContent);
        part("who").parentElement.style.width = "200px"; const box = part("who").getBoundingClientRect();
        found.size = [box.width, box.height];
        const mosaic = all(".mosaics img")[0]; mosaic.parentElement.style.width = "50px";
        found.mosaic = [mosaic.width, mosaic.height, mosaic.naturalWidth / mosaic.naturalHeight];"""
    found = page_with(network, replace(seen, shown=shown), script, tmp_path)
    first, second = found["names"][:2]
    assert first == str(seen.guesses[0])
    assert second == f"{seen.guesses[1]}truly {truths[1]}"
    width, height = shown[0].pixels.shape[2], shown[0].pixels.shape[1]
    assert found["size"][0] == 200
    assert found["size"][0] / found["size"][1] == pytest.approx(width / height, rel=0.02)
    wide, high, ratio = found["mosaic"]
    assert wide == 50
    assert wide / high == pytest.approx(ratio, rel=0.05)


def value(readout: str) -> tuple[tuple[int, int], float]:
    """The place and the weight that the page reads out."""
    found = re.match(r"Row (\d+), column (\d+): ([−\d.e-]+?)(, [−\d.e-]+ × an even share)?\.$", readout)
    assert found, readout
    return (int(found[1]), int(found[2])), float(found[3].replace("−", "-"))


@in_a_browser
def test_the_page_begins_with_the_token_that_was_asked(tmp_path: Path) -> None:
    network, _ = looked(small_vit())
    seen = look(network, some_pictures(1), token="2,3")
    script = """part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.2, 0.1)));
        found.read = part("readout").textContent; found.looker = part("looker").textContent;"""
    found = page_with(network, seen, script, tmp_path)
    assert "the patch in row 2, column 3" in found["looker"]
    expected = seen.streams[0].attention[0, -1].mean(dim=0)[1]
    assert value(found["read"]) == ((1, 1), pytest.approx(float(expected), rel=0.06, abs=0.004))


@in_a_browser
def test_every_scale_can_be_chosen_and_long_sequences_still_show_what_is_read(tmp_path: Path, monkeypatch) -> None:
    network, seen = looked(small_multiscale())
    found = page_with(
        network, seen,
        """
        found.views = [...part("views").querySelectorAll("button")].map((b) => b.textContent);
        press("views", found.views[1]);
        found.size = [part("what").querySelector("canvas").width, part("what").querySelector("canvas").height];
        """,
        tmp_path,
    )  # fmt: skip
    assert found == {"views": ["patches of 4×4 pixels", "patches of 8×8 pixels"], "size": [2, 1], "errors": []}
    network = build(small_vit(tokens=ConvPatches(1), head=Mean()), Shape(1, 6, 8)).eval()
    seen = look(network, torch.randn(1, 1, 6, 8))
    monkeypatch.setattr(explorer, "BUDGET", 1000)
    script = """part("what").dispatchEvent(new PointerEvent("pointermove", at(part("what"), 0.5, 0.5)));
        found.read = part("readout").textContent; found.hidden = part("tokens").hidden;
        found.one = part("pictures").hidden;"""
    found = page_with(network, seen, script, tmp_path)
    assert found["errors"] == []
    assert found["hidden"]
    assert found["one"], "a single picture leaves nothing to choose"
    expected = seen.streams[0].attention[0, -1].mean(dim=0)[3 * 8 + 4]
    assert value(found["read"]) == ((4, 5), pytest.approx(float(expected), rel=0.06))
