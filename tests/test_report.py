"""The report page: well formed, self-contained, safe, and true to the numbers it is given."""

import base64
import hashlib
import io
import json
import math
import re
import shutil
from dataclasses import replace
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kinds import small_multiscale, small_vit
from PIL import Image

from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import open_run
from vitlab.given import load_data
from vitlab.inference.calibration import calibrate
from vitlab.look import Shown, inside, look, places, trust
from vitlab.look.colours import DIVERGING, LEVELS, SEQUENTIAL, palette
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Softmax, Uniform
from vitlab.model.positions import NoPositions, Rotary
from vitlab.model.tokens import ConvPatches, SeveralScales
from vitlab.report import Insight, Mistake, View, calibration, charts, confusion, explorer, pictures, render, words
from vitlab.report.gather import balance, gather
from vitlab.report.view import render_look

VOID = {"meta", "link", "img", "input", "br", "wbr"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\"quoted' & <b>",
    "</style></svg>" + "long " * 60,
    "漢字 שלום \udcff {{ 7 * 7 }}",
]


class Page(HTMLParser):
    """Every element with its attributes and text, and any tag that is not closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self.faults: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.faults.append(f"{tag} repeats an attribute")
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"stray </{tag}>")

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def shape(height: int = 28, width: int = 28, channels: int = 1, seed: int = 0) -> np.ndarray:
    """A noisy disc on a noisy ground."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    disc = (y - height / 2) ** 2 + (x - width / 2) ** 2 < (min(height, width) / 3) ** 2
    return (disc * 180 + random.integers(0, 60, (channels, height, width))).astype(np.uint8)


@cache
def insight(model: Any = None, channels: int = 1, height: int = 28, width: int = 28, names: str = "kind") -> Insight:
    """What is found inside an untrained model of 10 classes on two pictures."""
    torch.manual_seed(0)
    model = model or small_vit(tokens=ConvPatches(7))
    network = model.build(Shape(channels, height, width), 10)
    seen = [shape(height, width, channels, seed=n) for n in range(2)]
    tensor = torch.stack([torch.from_numpy(one) for one in seen]).float() / 255 - 0.5
    shown = tuple(Shown(one, f"test:{n}", truth=n) for n, one in enumerate(seen))
    classes = HOSTILE + ["other"] * 6 if names == "hostile" else [f"{names} {n}" for n in range(10)]
    looked = look(network, tensor, shown=shown, classes=tuple(classes))
    trusted = trust(network, tensor, inside(network, tensor), steps=4, orders=1)
    return Insight(looked, explorer.gather(network, looked), trusted, places(network))


def wilson(accuracy: float, count: int, z: float = 1.96) -> tuple[float, float]:
    middle, spread = (
        accuracy + z * z / 2 / count,
        z * math.sqrt(accuracy * (1 - accuracy) / count + (z / 2 / count) ** 2),
    )
    return (middle - spread) / (1 + z * z / count), (middle + spread) / (1 + z * z / count)


def example(classes: int = 10, count: int = 1000, right: float = 0.9, **changes: Any) -> View:
    random = np.random.default_rng(classes)
    truth = random.integers(0, classes, count)
    guess = np.where(random.random(count) < right, truth, (truth + 1) % classes)
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (truth, guess), 1)
    accuracy = float(np.trace(counts) / count)
    epochs = [
        {
            "epoch": n,
            "loss": 2 / n,
            "accuracy": 1 - 0.7 / n,
            "validation_loss": 1.5 / n,
            "validation_accuracy": 1 - 0.6 / n,
        }
        for n in range(1, 9)
    ]
    view = View(
        title="shapes",
        facts={"Parameters": "12 345", "Seed": "0"},
        accuracy=accuracy,
        interval=wilson(accuracy, count),
        count=count,
        baseline=float(counts.sum(1).max() / count),
        epochs=epochs,
        classes=[f"kind {index}" for index in range(classes)],
        confusion=counts,
        calibration=[(0.3, 0.5, 10), (0.55, 0.0, 0), (0.9, 0.8, 30)],
        mistakes=[Mistake(shape(seed=n), 10 + n, 1, 0, random.dirichlet(np.ones(classes))) for n in range(3)],
        insight=insight(),
        no_insight="",
        configuration=json.dumps({"width": 64}, indent=2),
        commands=[("Train again", "vitlab train digits --seed 1 && echo '<done>'")],
        notes=["A tenth was held out."],
    )
    return replace(view, **changes)


def decode(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))


LONG = [{"epoch": n + 1, "loss": 3 / (n + 1), "validation_loss": 2 / (n + 1), "accuracy": 0.5} for n in range(1000)]
GAPS = [{"loss": 1.0}, {"loss": math.nan}, {"loss": None}, {"loss": 0.5}, {"loss": math.inf}, {"loss": 0.25}]
CASES: dict[str, dict[str, Any]] = {
    "typical": {},
    "two classes": {"classes": 2},
    "twenty-one classes": {"classes": 21},
    "a hundred classes": {"classes": 100},
    "one epoch": {"epochs": [{"epoch": 1, "loss": 0.7, "accuracy": 0.5}]},
    "no epoch": {"epochs": []},
    "flat line": {"epochs": [{"loss": 0.0, "accuracy": 1.0}] * 3},
    "gaps": {"epochs": GAPS},
    "nothing but NaN": {"epochs": [{"loss": math.nan, "accuracy": math.nan}] * 2},
    "a thousand epochs": {"epochs": LONG},
    "colour": {"insight": partial(insight, small_vit(), 3, 32, 32)},
    "rectangular": {"insight": partial(insight, small_vit(positions=Rotary()), 1, 20, 48)},
    "seven channels": {"insight": partial(insight, small_vit(positions=NoPositions()), 7, 12, 12)},
    "large picture": {"insight": partial(insight, small_vit(tokens=ConvPatches(28)), 3, 224, 196)},
    "signed": {"insight": partial(insight, small_vit(attention=Linformer(heads=2, k=3)))},
    "deep": {"insight": partial(insight, small_vit(depth=12, attention=Softmax(heads=8)))},
    "one head": {"insight": partial(insight, small_vit(attention=Uniform()))},
    "registers": {"insight": partial(insight, small_vit(registers=3))},
    "several scales": {"insight": partial(insight, small_multiscale(patches=(7, 14)))},
    "several grids": {"insight": partial(insight, small_vit(tokens=SeveralScales((7, 14))))},
    "too many tokens": {"insight": partial(insight, small_vit(tokens=ConvPatches(1)), 1, 32, 32)},
    "bare": {"mistakes": [], "insight": None, "calibration": [], "commands": [], "notes": [], "facts": {}},
    "all right": {"right": 1.1, "mistakes": []},
    "no test part": {"accuracy": math.nan, "interval": (0.0, 1.0), "count": 0, "baseline": 0.1},
    "hostile": {
        "classes": 4,
        "title": HOSTILE[0],
        "insight": partial(insight, names="hostile"),
        "notes": HOSTILE,
        "configuration": HOSTILE[2],
    },
}


def case(name: str) -> View:
    changes = dict(CASES[name])
    if changes.get("insight"):
        changes["insight"] = changes["insight"]()  # looked for when it is wanted
    if name == "no test part":
        return replace(example(), **changes, confusion=np.zeros((10, 10), int), mistakes=[])
    view = example(**changes)
    return replace(view, classes=HOSTILE) if name == "hostile" else view


@pytest.mark.parametrize("name", CASES)
def test_every_page_is_well_formed_and_stands_alone(name: str) -> None:
    check_page(render(case(name)))


@pytest.mark.parametrize("name", [name for name, changes in CASES.items() if changes.get("insight")])
def test_every_look_is_a_page_of_its_own(name: str) -> None:
    found = case(name).insight
    assert found is not None
    check_page(render_look(HOSTILE[0], found))


def check_page(text: str) -> None:
    page = Page(text)
    assert page.faults == []
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for _, attributes in page.elements:
        for key in ("src", "href", "xlink:href", "action", "srcset", "data", "poster"):
            assert (attributes.get(key) or "data:").startswith(("data:", "#")), attributes
        for key in ("for", "aria-labelledby"):
            assert attributes.get(key) in [None, *identifiers]
    assert all(url.startswith("data:") for url in re.findall(r"url\(['\"]?([^)'\"]*)", text))
    assert "@import" not in text
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert all("aria-label" in attributes for attributes in page.all("svg"))
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))
    links = {attributes["href"] for attributes in page.all("a")}
    assert links <= {f"#{identifier}" for identifier in identifiers}
    assert len(page.all("h1")) == 1
    assert "nan" not in " ".join(attributes.get("d") or "" for attributes in page.all("path"))
    assert len(text.encode()) < 5_000_000


def test_the_same_view_gives_the_same_bytes() -> None:
    assert render(example()).encode() == render(example()).encode()


def test_names_from_users_stay_text() -> None:
    text = render(case("hostile"))
    page = Page(text)
    assert [script.get("type") for script in page.all("script")] == ["application/json", None]
    assert not page.all("b") or all("alert" not in inner for inner in page.texts["b"])
    assert HOSTILE[0] in page.texts["h1"]
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2]} <= set(page.texts["bdi"])
    assert "漢字 שלום ? {{ 7 * 7 }}" in page.texts["bdi"]
    assert page.texts["code"][-1] == HOSTILE[2]


def test_the_only_script_is_the_one_the_policy_allows() -> None:
    text = render(example())
    page = Page(text)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.texts["script"][1].encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_a_curve_lies_where_its_numbers_say() -> None:
    epochs, losses = [1, 2, 3, 5], [4.0, 2.0, math.nan, 1.0]
    ticks = [charts.Tick(value, str(value)) for value in (0, 2, 4)]
    drawing = charts.curves(
        epochs, [charts.Series("training", "main", losses)], "loss", form=words.number, bounds=(0, 4), ticks=ticks
    )
    page = Page(str(drawing))
    left, right, top, bottom = 50, 460 - 86, 12, 270 - 40
    expected = [
        (left + (epoch - 1) / 4 * (right - left), bottom - loss / 4 * (bottom - top))
        for epoch, loss in zip(epochs, losses, strict=True)
        if not math.isnan(loss)
    ]
    dots = [(float(dot["cx"] or ""), float(dot["cy"] or "")) for dot in page.all("circle")]
    assert np.allclose(dots, expected, atol=0.051)
    path = next(p["d"] for p in page.all("path") if p["d"] and p["d"].count("M") == 2)
    numbers = [float(number) for number in re.findall(r"[-\d.]+", path)]
    assert np.allclose(numbers, np.array(expected).ravel(), atol=0.051)
    assert re.sub(r"[-\d. ]", "", path) == "MLM"
    readouts = json.loads(page.all("svg")[0]["data-readout"] or "")
    assert readouts[1:3] == ["epoch 2 · training 2.00", "epoch 3 · training –"]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.913, 0.978), (2.30258, 2.30261), (-3.0, 40.0), (0.0, 7e6)])
def test_ticks_are_few_even_and_cover_the_range(low: float, high: float) -> None:
    marks = charts.steps(low, high, most=5)
    assert 2 <= len(marks) <= 8
    assert marks[0] <= low + 1e-9
    assert marks[-1] >= high - 1e-9
    gaps = np.diff(marks)
    assert np.allclose(gaps, gaps[0])
    mantissa = gaps[0] / 10 ** np.floor(np.log10(gaps[0]) + 1e-9)
    assert np.isclose(mantissa, [1, 2, 5]).any()


@pytest.mark.parametrize("signed", [False, True])
def test_a_map_laid_over_a_picture_has_the_colours_of_its_weights(signed: bool) -> None:
    weights = np.random.default_rng(3).normal(size=(5, 6)) if signed else np.random.default_rng(3).random((5, 6))
    overlay = np.asarray(decode(pictures.map_uri(weights, signed)).convert("RGBA")).astype(float)
    anchors = DIVERGING if signed else SEQUENTIAL
    for row, column in np.ndindex(weights.shape):
        share = weights[row, column] / np.abs(weights).max()
        place = round(((share + 1) / 2 if signed else share) * (LEVELS - 1)) / (LEVELS - 1) * 4
        before = min(int(place), 3)
        colour = anchors[before] + (place - before) * (anchors[before + 1] - anchors[before])
        assert np.abs(overlay[row, column] - colour).max() <= 0.5


def test_lightness_rises_evenly_along_the_scale() -> None:
    colours = palette(signed=False)[::8, :3] / 255
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)
    steps = np.diff(lightness)
    assert steps.min() > 1
    assert steps.max() < 4


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_come_back_from_the_page_unchanged(channels: int) -> None:
    picture = shape(20, 48, channels)
    view = example(mistakes=[Mistake(picture, 7, 1, 0, np.full(10, 0.1))], insight=None)
    image = next(a for a in Page(render(view)).all("img") if a["alt"] == "Test picture 7: kind 1, read as kind 0")
    decoded = np.asarray(decode(image["src"] or "").convert("RGB" if channels == 3 else "L"))
    assert np.array_equal(decoded.transpose(2, 0, 1) if channels == 3 else decoded[None], picture)
    assert (image["width"], image["height"]) == ("96", "40")


def test_large_pictures_shrink_by_a_whole_factor() -> None:
    picture = shape(128, 96)
    decoded = np.asarray(decode(pictures.picture_uri(picture))).astype(float)
    means = picture[0].reshape(64, 2, 48, 2).mean(axis=(1, 3))
    assert np.abs(decoded - means).max() <= 0.5


def test_confusion_cells_carry_their_counts() -> None:
    view = example(classes=5)
    rows = [row for row in Page(render(view)).rows if len(row) == 8 and row[0].startswith("kind")]
    assert np.array_equal([[int(cell) for cell in row[1:6]] for row in rows], view.confusion)
    totals = view.confusion.sum(axis=1)
    assert [int(row[6]) for row in rows] == totals.tolist()
    shares = [float(row[7].split("\u202f")[0]) for row in rows]
    assert np.allclose(shares, 100 * np.diag(view.confusion) / totals, atol=0.05)


def test_pairs_are_the_largest_counts_off_the_diagonal() -> None:
    counts = np.random.default_rng(0).integers(0, 50, (30, 30))
    found = confusion.gather(counts).pairs
    off = np.sort(counts[~np.eye(30, dtype=bool)])[::-1]
    assert [pair.times for pair in found] == off[: len(found)].tolist()
    assert all(counts[pair.truth, pair.guess] == pair.times for pair in found)
    assert all(counts[pair.guess, pair.truth] == pair.reverse for pair in found)


def test_calibration_error_is_the_weighted_gap() -> None:
    found = calibration.gather([(0.3, 0.5, 10), (0.55, 0.0, 0), (0.9, 0.8, 30)])
    assert found is not None
    assert found.error == pytest.approx((10 * 0.2 + 30 * 0.1) / 40)
    assert calibration.gather([]) is None


def test_the_report_says_what_a_temperature_did_or_could_do(trained: Path, tmp_path: Path) -> None:
    run = open_run(shutil.copytree(trained, tmp_path / "run"))
    bins = run.evaluation.calibration()
    assert calibration.expected_error(bins) > 0.02
    could = f"vitlab calibrate {run.folder} fits a temperature"
    assert could in calibration.of_temperature(run, bins)
    assert not calibration.of_temperature(run, [(0.8, 0.79, 10)]), "there is nothing to mend"
    card = json.loads((run.folder / "data.json").read_text())
    (run.folder / "data.json").write_text(json.dumps(card | {"validation": 0}))
    assert not calibration.of_temperature(run, bins), "it would be refused"
    (run.folder / "data.json").write_text(json.dumps(card))
    found = calibrate(run)
    page = Page(render(gather(run, load_data(run.experiment, None), torch.device("cpu"))))
    (said,) = [text for text in page.texts["p"] if "temperature" in text]
    assert found.test is not None
    before, after = (100 * error for error in (found.test.error_before, found.test.error_after))
    assert f"the error on the test part was {before:.3g} points and is {after:.3g} by it" in said
    assert f"the temperature {found.temperature:.3f}" in said
    assert "all other probabilities on this page are those before it" in said
    assert could not in said


def test_the_headline_gives_the_balanced_accuracy_where_the_classes_are_uneven() -> None:
    labels = torch.tensor([0] * 30 + [1] * 10)
    logits = torch.eye(2)[torch.tensor([0] * 40)]
    said = balance(Evaluation(logits, labels))
    assert said.startswith("The classes have from 10 to 30 test pictures;")
    assert said.endswith("the balanced accuracy is 50.0\u202f%.")
    assert balance(Evaluation(logits[11:], labels[11:])) == "", "19 and 10"
    page = Page(render(example(balance=said)))
    assert [text for text in page.texts["p"] if text.endswith(said)]


@pytest.mark.parametrize(
    ("right", "count", "baseline", "expected"),
    [
        (978, 1000, 0.1, "About 1 picture in 45 is misread."),
        (600, 1000, 0.1, "About 2 pictures in 5 are misread."),
        (200, 1000, 0.1, "About 1 picture in 5 is read correctly."),
        (360, 360, 0.1, "All 360 test pictures were read correctly."),
        (0, 50, 0.1, "None of the 50 test pictures was read correctly."),
        (105, 1000, 0.1, "not significantly better than"),
        (50, 1000, 0.1, "worse than always naming the commonest class"),
        (360, 360, 0.1, "not proof of a perfect model"),
        (30, 40, 0.5, "With only 40 test pictures the figure is rough"),
        (1, 1, 0.5, "The only test picture was read correctly."),
        (0, 0, 0.5, "no test pictures"),
    ],
)
def test_the_headline_says_what_the_number_means(right: int, count: int, baseline: float, expected: str) -> None:
    accuracy = right / count if count else math.nan
    interval = wilson(accuracy, count) if count else (0.0, 1.0)
    assert expected in " ".join(words.headline(accuracy, interval, count, baseline))


def test_percentages_reach_0_and_100_only_exactly() -> None:
    shares = (1.0, 0.99999, 0.0, 0.00001, 0.5, math.nan)
    found = [words.percent(share).replace("\u202f", "") for share in shares]
    assert found == ["100.0%", "99.9%", "0.0%", "<0.1%", "50.0%", "–"]


def test_empty_sections_say_so() -> None:
    bare = {"mistakes": [], "insight": None, "no_insight": "it sleeps", "calibration": [], "commands": [], "epochs": []}
    text = render(example(**bare))
    for sentence in (
        "No mistakes were kept",
        "No attention is shown: it sleeps.",
        "Confidence was not measured",
        "no curve to draw",
    ):
        assert sentence in text
    assert "it read every test picture correctly" in render(case("all right"))


def test_maps_that_are_exact_and_maps_that_are_close_are_told_apart() -> None:
    found = insight()
    close = replace(found, look=replace(found.look, gap=3e-7))
    exact = replace(found, look=replace(found.look, gap=0.0))
    assert "gives the model’s own tokens, exactly." in render(example(insight=exact))
    assert "to within 3e−7 of the largest number." in render(example(insight=close)).replace("e-07", "e−7").replace(
        "e−07", "e−7"
    )
