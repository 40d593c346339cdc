"""The page's server: whatever it is sent, it answers with a sentence and never with a fault."""

import base64
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import schemathesis
import studies
import torch
from conftest import refused
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from page_tools import served

from vitlab import lab, open_run, train
from vitlab.cli import main
from vitlab.data.prepared import Normalise, unit
from vitlab.engine.cost import flops
from vitlab.engine.evaluation import Evaluation
from vitlab.errors import BadInput
from vitlab.given import load_data
from vitlab.page import patience
from vitlab.page.border import LARGEST, WAITING, Border, named
from vitlab.page.command import engines
from vitlab.page.server import application
from vitlab.page.still import PARTS, RUNTIME, runtime
from vitlab.page.views import MOST, SITE, cell, confusion, first_view

PICTURE = base64.b64encode(bytes(range(256)) * 3 + bytes(16)).decode()
LOOK = "/api/models/mnist/look"


@pytest.fixture(scope="module")
def shown():
    return engines([Path("mnist"), Path("cifar10")], None)


@pytest.fixture(scope="module")
def client(shown) -> TestClient:
    return TestClient(application(shown), base_url="http://127.0.0.1:8765", raise_server_exceptions=False)


def problem(reply) -> str:
    """The sentence of a refusal, which shows nothing of this machine."""
    assert 400 <= reply.status_code < 500, reply.text
    sentence = reply.json()["problem"]
    assert list(reply.json()) == ["problem"]
    assert not re.search(r"Traceback|/vitlab|\.py\b", sentence)
    return sentence


def test_a_look_is_what_pytorch_gives(client, shown):
    for engine in shown:
        pixels, card = engine.pictures.pixels[7], engine.card
        asked = {"pixels": base64.b64encode(pixels.numpy().tobytes()).decode(), "masked": [3, 10], "relevance": True}
        found = client.post(f"/api/models/{engine.name}/look", json=asked).json()
        picture = Normalise(card, torch.device("cpu"))(unit(pixels[None]))
        with torch.no_grad():
            assert torch.allclose(torch.tensor(found["unmasked"]), engine.network.logits(picture)[0], atol=1e-4)
            (grid,) = engine.grids
            side = card.height // grid.rows
            for patch in (3, 10):
                y, x = side * (patch // grid.columns), side * (patch % grid.columns)
                picture[:, :, y : y + side, x : x + side] = 0  # the mean, once normalised
            assert torch.allclose(torch.tensor(found["logits"]), engine.network.logits(picture)[0], atol=1e-4)
        seen = lab.look(engine.network, picture)
        assert torch.allclose(floats(found["lens"]), seen.lens.flatten(), atol=1e-4)
        assert torch.allclose(floats(found["relevance"]), seen.streams[0].relevance.flatten(), atol=1e-4)
        (told,) = engine.facts["streams"]
        layers, heads, n = told["layers"], told["heads"], grid.tokens
        attention = floats(found["attention"]).view(layers, heads, n, n)
        assert torch.allclose(attention.mean(dim=2), seen.streams[0].attention[0], atol=1e-5)
        assert (attention.sum(dim=-1) - 1).abs().max() < 1e-5
        assert floats(found["tokens"]).numel() == n * engine.facts["features"]


def floats(coded: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(coded)), dtype=torch.float32)


def test_facts_are_the_runs(client):
    models = {one["name"]: one for one in client.get("/api/models").json()["models"]}
    for name in ("mnist", "cifar10"):
        run = open_run(name)
        assert models[name]["accuracy"] == run.result["test_accuracy"]
        assert models[name]["parameters"] == run.result["parameters"]
        assert models[name]["flops"] == flops(run.model())
        confusion = client.get(f"/api/models/{name}/confusion").json()
        right = sum(row[i] for i, row in enumerate(confusion["counts"]))
        assert right == round(run.result["test_accuracy"] * run.result["count"])


def test_a_cell_holds_the_test_pictures_that_were_so_mistaken(trained, client):
    (engine,) = engines([trained], None)
    found = engine.run.evaluation
    counts = confusion(engine)["counts"]
    pairs = [(truth, guess) for truth in range(10) for guess in range(10) if truth != guess]
    truth, guess = max(pairs, key=lambda pair: counts[pair[0]][pair[1]])
    pictures = cell(engine, truth, guess)
    assert len(pictures) == min(counts[truth][guess], MOST)
    assert {one["label"] for one in pictures} == {truth}
    place = int(((found.labels == truth) & (found.guesses == guess)).nonzero()[0])
    test = load_data(engine.run.experiment, None).test
    assert engine.decode(pictures[0]["pixels"]).equal(test.pictures[place])
    assert "truth" in problem(client.get("/api/models/mnist/confusion/x/1"))


def test_pictures_that_come_with_the_page_are_of_their_classes(client, shown):
    for engine in shown:
        pictures = client.get(f"/api/models/{engine.name}/pictures").json()
        guesses = [
            max(range(10), key=engine.look(engine.decode(one["pixels"]), [], False)["logits"].__getitem__)
            for one in pictures
        ]
        right = [guess == one["label"] for guess, one in zip(guesses, pictures, strict=True)]
        assert sum(right[place] for place in range(40) if place % 4 != 3) >= 27  # the first three of each class
        assert sum(right[3::4]) <= 2  # the last is one that it got wrong


def test_the_stored_example_is_the_engines_own(shown):
    stored, made = json.loads((SITE / "first.json").read_bytes()), json.loads(first_view(shown[0]))
    assert stored["picture"] == made["picture"]
    assert {**stored["model"], "positions": 0} == {**made["model"], "positions": 0}
    for name in ("lens", "attention", "tokens", "norms", "relevance"):
        assert torch.allclose(floats(stored["answer"][name]), floats(made["answer"][name]), atol=1e-4)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"pixels": PICTURE[:-8]}, "a picture for mnist is 784 bytes, not"),
        ({"pixels": "no base64!"}, "pixels must be bytes written in base64"),
        ({"pixels": 7}, "pixels"),
        ({}, "pixels: Field required"),
        ({"pixels": PICTURE, "masked": [49]}, "there is no patch 49: they are counted from 0 to 48"),
        ({"pixels": PICTURE, "masked": [-1]}, "there is no patch -1"),
        ({"pixels": PICTURE, "masked": ["1"]}, "masked.0"),
        ({"pixels": PICTURE, "masked": [10**30]}, "there is no patch"),
        ({"pixels": PICTURE, "relevance": "yes"}, "relevance"),
        ({"pixels": PICTURE, "path": "/etc/passwd"}, "path"),
        ({"pixels": PICTURE, "weights": "another's"}, "mnist is another model than this page knows"),
        ([], "the body"),
    ],
)
def test_bad_questions_are_refused_with_a_sentence(client, body, sentence):
    assert sentence in problem(client.post(LOOK, json=body))


def test_what_is_not_json_or_not_there_is_refused(client):
    reply = client.post(LOOK, content=b"{", headers={"content-type": "application/json"})
    assert (reply.status_code, problem(reply)) == (400, "the request is no JSON")
    assert problem(client.post(LOOK, content=b"\xff\xfe", headers={"content-type": "text/plain"}))
    assert "choose from mnist, cifar10" in problem(client.post("/api/models/other/look", json={"pixels": PICTURE}))
    assert client.get(LOOK).status_code in (404, 405)
    assert client.delete("/").status_code == 405


@pytest.mark.parametrize(
    "path",
    ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "/%2e%2e%2f%2e%2e%2fcli.py", "//etc/passwd", "/%00",
     "/site/index.html", "/..\\server.py", "/engine.py", "/docs", "/redoc"],
)  # fmt: skip
def test_nothing_outside_the_site_is_served(client, path):
    assert problem(client.get(path)) in ("there is nothing here", "Not Found")


def test_foreign_hosts_and_origins_are_refused(client):
    for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[", "10.0.0.1"):
        reply = client.get("/", headers={"host": host})
        assert (reply.status_code, "only under the name" in problem(reply)) == (403, True)
    for origin in ("http://evil.example", "null", "http://[", "", "http://127.0.0.1:9999", "http://localhost"):
        assert client.post(LOOK, json={"pixels": PICTURE}, headers={"origin": origin}).status_code == 403
    own = {"origin": "http://127.0.0.1:8765"}
    assert client.post(LOOK, json={"pixels": PICTURE}, headers=own).status_code == 200
    assert client.get("/", headers={"host": "localhost:1"}).status_code == 200
    assert named("10.0.0.1:80", "0.0.0.0")
    assert named("[fe80::1]:80", "::")
    assert named("lab.example", "lab.example")
    assert not named("evil.example", "0.0.0.0")


def test_too_much_is_refused_before_it_is_read(client):
    for content in (b"x" * (LARGEST + 1), iter([b"x" * (LARGEST // 2)] * 3)):
        reply = client.post(LOOK, content=content)
        assert (reply.status_code, "at most" in problem(reply)) == (413, True)


def test_a_crowd_is_told_when_to_ask_again(client):
    full = Border(client.app, "127.0.0.1")
    full.inside = WAITING
    reply = TestClient(full, base_url="http://127.0.0.1").get("/api/models")
    assert (reply.status_code, reply.headers["retry-after"], full.inside) == (503, "1", WAITING)
    assert reply.json() == {"problem": "too many ask at once: try again in a second"}
    full.inside -= 1
    assert TestClient(full, base_url="http://127.0.0.1").get("/api/models").status_code == 200
    assert full.inside == WAITING - 1


def test_a_client_that_sends_too_slowly_is_left(client, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.2)
    with served(client.app, http=patience.Patient) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port)) as slow,
            socket.create_connection(("127.0.0.1", port)) as again,
        ):
            slow.settimeout(5)
            again.settimeout(5)
            slow.sendall(b"GET / HTTP/1.1\r\nHost: 127")
            again.sendall(b"GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert again.recv(12) == b"HTTP/1.1 404"
            again.sendall(b"GET")
            assert ended(slow)
            assert ended(again)
        assert asked(f"{address}api/models")["models"]


def ended(connection: socket.socket) -> bool:
    """Whether the other side closes a connection, after whatever it still had to say."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(2**16):
            pass
    return True


def test_every_answer_has_its_headers(client):
    replies = [client.get(path) for path in ("/", "/api/models", "/none")]
    for reply in (*replies, client.get("/", headers={"host": "evil.example"})):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "server" not in reply.headers


def test_the_site_names_no_other_host_and_has_no_inline_script(client):
    page = client.get("/").text
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", page)
    for path in SITE.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?://", text), path
        assert not re.search(r"\beval\(|innerHTML", text), path


@pytest.mark.parametrize("cell", [f"{2**64}/1", "1/-1", "10/1"])
def test_a_cell_that_is_not_there_is_refused(client, cell):
    assert "from 0 to 9" in problem(client.get(f"/api/models/mnist/confusion/{cell}"))


def test_no_question_made_from_its_openapi_text_is_a_fault(client):
    own = {"host": "127.0.0.1"}
    schema = schemathesis.openapi.from_asgi("/api/openapi.json", client.app, headers=own)
    seen: list[int] = []
    right, wrong = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (right, wrong) if "{" in operation.path else (right,):

            @settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case) -> None:
                reply = case.call(headers=own)
                seen.append(reply.status_code)
                if reply.status_code != 200:
                    problem(reply)

            ask()
    assert len(seen) > 40
    assert {200, 404, 422} <= {*seen}


def test_runs_that_cannot_be_shown_are_refused_in_one_line(vitlab, tmp_path):
    assert "no run at nothing" in refused(vitlab("page", "nothing", status=2))
    assert "99999 is no port" in refused(vitlab("page", "--port", "99999", status=2))
    assert "no study at" in refused(vitlab("page", "--study", "none", status=2))
    assert "name it by --study" in refused(vitlab("page", "--trials", 3, status=2))
    assert "trials must be 1 or more" in refused(vitlab("page", "--study", "none", "--trials", 0, status=2))
    small = ("epochs=1", "data.limit=64", "batch=32", "width=16", "depth=1")
    mixed = train("digits", "across=batch", "attention=softmax", *small, runs=tmp_path, quiet=True, name="mixed")
    assert "from picture to picture" in refused(vitlab("page", mixed.folder, "--port", "0", status=2))


def test_scales_in_one_sequence_are_what_pytorch_gives(tmp_path):
    words = ("tokens=several-scales", "epochs=1", "data.limit=64", "batch=32", "width=16", "depth=1")
    (engine,) = engines([train("digits", *words, runs=tmp_path, quiet=True, name="several").folder], None)
    assert engine.facts["grids"] == [{"rows": 4, "columns": 4, "first": 0}, {"rows": 2, "columns": 2, "first": 16}]
    pixels = engine.pictures.pixels[7]
    found = engine.look(pixels, [0, 19], relevance=True)
    picture = Normalise(engine.card, torch.device("cpu"))(unit(pixels[None]))
    picture[:, :, :7, :7] = picture[:, :, 14:, 14:] = 0
    seen = lab.look(engine.network, picture)
    assert torch.allclose(torch.tensor(found["logits"]), seen.logits[0], atol=1e-4)
    assert torch.allclose(floats(found["relevance"]), seen.streams[0].relevance[0], atol=1e-4)
    assert floats(found["tokens"]).numel() == (1 + 16 + 4) * 16


def test_a_run_of_your_own_with_a_class_token(trained):
    (engine,) = engines([trained], None)
    assert len(engine.pictures.labels) == 40  # digits are MNIST's
    found = engine.look(engine.pictures.pixels[0], [], relevance=True)
    (stream,) = engine.facts["streams"]
    assert stream["extra"] == ["class"]
    assert floats(found["attention"]).numel() == stream["layers"] * stream["heads"] * 5**2
    first = json.loads(first_view(engine))
    assert first["model"]["name"] == engine.name


def test_a_run_without_test_pictures_is_shown_without_a_figure(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "untested")
    run = open_run(tmp_path / "untested")
    run.write_evaluation(Evaluation(torch.zeros(0, 10), torch.zeros(0, dtype=torch.long)), {})
    app = application(engines([run.folder], None))
    reply = TestClient(app, base_url="http://localhost").get("/api/models")
    assert reply.json()["models"][0]["accuracy"] is None


def test_a_port_in_use_is_refused_in_one_line(vitlab):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused(vitlab("page", "--port", taken.getsockname()[1], status=2))
    assert "cannot answer at 127.0.0.1 port" in said


def test_every_command_of_the_documents_opens_a_page(trained, tmp_path, processes, monkeypatch):
    root = Path(__file__).parent.parent
    texts = [(root / name).read_text(encoding="utf-8") for name in ("README.md", "docs/page.md")]
    commands = {line.strip() for text in texts for line in re.findall(r"^(vitlab page[^#\n]*)", text, re.MULTILINE)}
    commands -= {command for command in commands if "--out" in command}  # by tests/test_page_browser.py
    assert len(commands) == 4
    for name in ("digits", "bag"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    url = f"sqlite:///{tmp_path}/runs/shape/study.db"
    studies.created(studies.plan("width=8,16", name="shape"), url)
    studies.work(url, tmp_path / "runs" / "shape", name="shape")
    monkeypatch.chdir(tmp_path)
    opened = []
    for words in (shlex.split(command)[1:] for command in commands):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = processes.Process(target=main, args=([*words, "--no-browser", "--port", str(port)],))
        process.start()
        opened.append((words, port, process))
    for words, port, process in opened:
        shown = [one["name"] for one in asked(f"http://127.0.0.1:{port}/api/models")["models"]]
        os.kill(process.pid, signal.SIGINT)  # Ctrl-C
        process.join(20)
        assert process.exitcode == 0
        if "--study" in words:
            assert shown in (["width-8-seed0"], ["width-16-seed0"])  # whichever is recommended
        else:
            assert shown == ([Path(run).name for run in words[1:]] or ["mnist", "cifar10"])


def test_what_is_not_a_page_of_vitlabs_is_not_overwritten(trained, vitlab, tmp_path):
    (tmp_path / "site").mkdir()
    own = tmp_path / "site" / "index.html"
    own.write_text("my home page")
    assert "none of vitlab's pages" in refused(vitlab("page", trained, "--out", "site", status=2))
    assert own.read_text() == "my home page"


def test_a_page_goes_into_no_folder_of_other_things_and_replaces_its_own(trained, vitlab, tmp_path):
    (tmp_path / "data" / RUNTIME).mkdir(parents=True)
    for name in PARTS:  # as if npm had fetched them
        (tmp_path / "data" / RUNTIME / name).touch()
    page, own = ("page", trained, "--data", "data", "--out", "site"), tmp_path / "site/models.json"
    own.parent.mkdir()
    own.write_text("my own")
    assert "site holds other files" in refused(vitlab(*page, status=2))
    assert [path.read_text() for path in own.parent.iterdir()] == ["my own"]
    shutil.copy(SITE / "index.html", own.parent)
    (own.parent / "CNAME").write_text("lab.example")  # as hosts of pages want it
    vitlab(*page)
    assert [one["name"] for one in json.loads(own.read_text())["models"]] == [trained.name]
    assert (own.parent / "CNAME").read_text() == "lab.example"


def test_without_npm_it_says_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(f"needs {RUNTIME}, which npm") + ".*npm is not installed"):
        runtime(tmp_path)


def asked(address: str) -> dict:
    """What a server says as soon as it is there."""
    for _ in range(400):
        with contextlib.suppress(URLError), urlopen(address) as reply:
            return json.load(reply)
        time.sleep(0.05)
    raise AssertionError(f"nobody at {address}")
