"""The page of several runs: well formed, true to the runs it compares, and honest about what cannot be compared."""

import base64
import hashlib
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import QUICK
from kinds import refusal
from test_report import HOSTILE, Page, decode

import vitlab
from vitlab import cli
from vitlab.data.prepared import Card
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run
from vitlab.engine.storage import write_tensors
from vitlab.lab import report
from vitlab.report import comparison, comparison_accuracy, comparison_curves, comparison_settings
from vitlab.report.comparison_runs import Compared, compared, distinct, why_not_paired

CPU = torch.device("cpu")
COUNT = 60
PICTURES = torch.from_numpy(np.random.default_rng(9).integers(0, 256, (COUNT, 1, 28, 28)).astype(np.uint8))
DIGITS = tuple("0123456789")
CARD = Card("digits", 1, 28, 28, DIGITS, (0.1,), (0.3,), 900, 100, COUNT, "f" * 64, ())
COURSE = ((1, 0.4, 1.6), (2, 0.7, 0.9), (3, 0.8, 0.6))  # epoch, accuracy, loss


def answers(right: float = 0.8, seed: int = 0, classes: int = 10, count: int = COUNT) -> Evaluation:
    """Random logits whose highest is the truth for about a share `right` of the pictures."""
    random = np.random.default_rng([seed, classes])
    labels = np.arange(count) % classes
    guesses = np.where(random.random(count) < right, labels, (labels + 1 + random.integers(0, 3, count)) % classes)
    logits = random.normal(size=(count, classes)).astype(np.float32)
    logits[np.arange(count), guesses] = logits.max(axis=1) + random.random(count).astype(np.float32) * 3
    return Evaluation(torch.from_numpy(logits), torch.from_numpy(labels))


def make(folder: Path, *settings: str, **changes: Any) -> Run:
    """A finished run folder with these settings and, by name, this evaluation, course, card, device and facts."""
    given = {
        "evaluation": answers(),
        "course": COURSE,
        "card": CARD,
        "device": "a machine",
        "validated": True,
    } | changes
    folder.mkdir(parents=True)
    run = Run(folder)
    base = ["width=16", "depth=1", "patch=14", *settings]
    experiment = vitlab.override(vitlab.recipe("digits"), base)
    run.begin(experiment, given["card"], torch.device("cpu"))
    environment = run.environment | {"device": given["device"]}
    (folder / "environment.json").write_text(json.dumps(environment))
    for epoch, accuracy, loss in given["course"]:
        line = {"epoch": epoch, "step": epoch * 7, "accuracy": accuracy - 0.1, "loss": loss + 0.1}
        if given["validated"]:
            line |= {"validation_accuracy": accuracy, "validation_loss": loss}
        run.add_metrics(line)
    facts = {"seed": experiment.seed, "epochs": len(given["course"]), "train_seconds": 12.0, "parameters": 3000}
    facts |= {"images_per_second": 800.0, "peak_memory": 400_000_000} | changes.get("facts", {})
    torch.manual_seed(experiment.seed)
    write_tensors(run.weights, run.build().state_dict(), {})
    run.write_evaluation(given["evaluation"], {name: value for name, value in facts.items() if value is not None})
    return run


def page_of(runs: list[Run], **given: Any) -> tuple[str, Page]:
    chosen = compared(runs)
    text = comparison.render(chosen, PICTURES, comparison.commands(chosen, None, None), CPU, **given)
    return text, Page(text)


def plain(text: str) -> str:
    return " ".join(text.replace("\u202f", " ").split())


def words_of(page: Page) -> str:
    return plain(" ".join(page.texts["main"]))


FEW = replace(CARD, classes=("cat", "dog", "owl"), name="animals", fingerprint="a" * 64)
ODD = replace(CARD, classes=tuple(HOSTILE[place % 3] + str(place) for place in range(10)))
MANY = replace(CARD, classes=tuple(f"kind {place}" for place in range(100)))
CASES: dict[str, list[tuple[str, tuple[str, ...], dict[str, Any]]]] = {
    "two": [("a", (), {}), ("b", ("width=32",), {"evaluation": answers(0.9, 1)})],
    "eight": [
        (f"run-with-a-long-name-that-goes-on-and-on-{n}", (f"seed={n}",), {"evaluation": answers(0.7, n)})
        for n in range(8)
    ],
    "hostile": [
        ("<script>alert(1)<", (), {"card": ODD}),
        ("{{ 7 * 7 }} & \"'", ("width=32",), {"card": ODD, "evaluation": answers(0.6, 1)}),
    ],
    "other data": [
        ("a", (), {}),
        ("b", ("width=32",), {"card": FEW, "evaluation": answers(0.5, 1, 3)}),
        ("c", (), {"card": MANY, "evaluation": answers(0.5, 2, 100)}),
    ],
    "a hundred classes": [
        ("a", (), {"card": MANY, "evaluation": answers(0.5, 2, 100)}),
        ("b", (), {"card": MANY, "evaluation": answers(0.6, 3, 100)}),
    ],
    "without validation": [("a", (), {}), ("b", ("validation=0",), {"validated": False, "course": COURSE[:2]})],
    "one epoch and none": [("a", (), {"course": COURSE[:1]}), ("b", ("epochs=0",), {"course": ()})],
    "no epoch at all": [("a", (), {"course": ()}), ("b", (), {"course": ()})],
    "flat": [("a", (), {"course": [(n, 1.0, 0.0) for n in (1, 2)]}), ("b", (), {"course": [(1, 1.0, 0.0)]})],
    "gaps": [("a", (), {"course": [(1, 0.5, math.nan), (2, math.nan, 0.5), (3, 0.6, 0.4)]}), ("b", (), {})],
    "all right": [("a", (), {"evaluation": answers(1.1)}), ("b", (), {"evaluation": answers(1.1, 5)})],
    "all wrong": [("a", (), {"evaluation": answers(0.0)}), ("b", (), {"evaluation": answers(0.0, 5)})],
}


def folders(where: Path, name: str) -> list[Run]:
    return [make(where / run, *settings, **changes) for run, settings, changes in CASES[name]]


@pytest.mark.parametrize("name", CASES)
def test_every_page_is_well_formed_and_stands_alone(tmp_path: Path, name: str) -> None:
    text, page = page_of(folders(tmp_path, name))
    assert page.faults == []
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    for _, attributes in page.elements:
        for key in ("src", "href", "xlink:href", "action", "srcset", "data", "poster"):
            assert (attributes.get(key) or "data:").startswith(("data:", "#")), attributes
        assert attributes.get("aria-labelledby") in [None, *identifiers]
    frames = [f"#{identifier}" for identifier in identifiers]
    assert all(url.startswith("data:") or url in frames for url in re.findall(r"url\(['\"]?([^)'\"]*)", text))
    assert "@import" not in text
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert all("aria-label" in attributes for attributes in page.all("svg"))
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))
    assert {attributes["href"] for attributes in page.all("a")} <= set(frames)
    assert len(page.all("h1")) == 1
    assert not re.search(r"nan|inf", " ".join(attributes.get("d") or "" for attributes in page.all("path")))
    assert "nan" not in " ".join(attributes.get("style") or "" for _, attributes in page.elements)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.texts["script"][0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in (policy or "")
    assert len(page.all("script")) == 1
    assert len(text.encode()) < 900_000


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = folders(tmp_path, "two")
    assert page_of(runs)[0] == page_of(runs)[0]


def test_settings_that_differ_come_first_and_only_those(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / "a"),
        make(tmp_path / "b", "width=32", "attention=linformer"),
        make(tmp_path / "c", "seed=3"),
    ]
    found = comparison_settings.gather(compared(runs))
    rows = {row.name: row.values for row in found.rows}
    assert rows["model.width"] == ("16", "32", "16")
    assert rows["model.attention"] == ("softmax", "linformer", "softmax")
    assert rows["model.attention.k"] == (None, "16", None)
    assert rows["seed"] == ("0", "0", "3")
    assert set(rows) == {"seed", "model.width", "model.attention", "model.attention.k", "model.attention.per_head"}
    texts = [run.experiment for run in runs]
    for row in found.common:  # read back from the experiments by another way than `walk`
        for experiment in texts:
            part: Any = experiment
            for step in row.name.split("."):
                part = getattr(part, step)
            value = getattr(part, "kind", part)
            value = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
            assert row.values[0] == (",".join(map(str, value)) if isinstance(value, tuple) else str(value))
    assert found.lead.startswith("The runs differ in seed, width and attention. Where several settings change")
    assert [text for _, text in found.findings] == [
        "b differs from a in width and attention.",
        "c differs from a only in seed.",
    ]
    table = next(rows for rows in [page_of(runs)[1].rows])
    assert ["model.width", "16", "32", "16"] in [[cell.split("features")[0] for cell in row] for row in table]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "Every setting is the same in all runs."),
        (("seed=1",), "Only the seed differs, so what lies between these runs is what chance alone does."),
        (("seed=1", "depth=2"), "The runs differ in seed and depth."),
        (("attention.dropout=0.1",), "The runs differ in attention.dropout."),
    ],
)
def test_what_the_settings_say(tmp_path: Path, settings: tuple[str, ...], expected: str) -> None:
    assert (
        comparison_settings.gather(compared([make(tmp_path / "a"), make(tmp_path / "b", *settings)])).lead == expected
    )


def test_data_device_and_versions_are_said_apart(tmp_path: Path) -> None:
    same = comparison_settings.gather(compared([make(tmp_path / "a"), make(tmp_path / "b", "depth=2")]))
    assert same.surroundings == ()
    other = make(tmp_path / "c", "limit=50", device="a GPU", card=replace(CARD, fingerprint="e" * 64, train=50))
    found = comparison_settings.gather(compared([Run(tmp_path / "a"), other]))
    assert [row.name for row in found.surroundings] == [
        "pictures to learn",
        "fingerprint of the training part",
        "device",
    ]


def test_accuracies_and_intervals_lie_where_they_should(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"run{n}", f"seed={n}", evaluation=answers(0.3 + 0.1 * n, n)) for n in range(5)]
    _, page = page_of(runs)
    dots = [style_of(a)["left"] for a in page.all("span") if a.get("class") == "dot"][: len(runs)]
    reach = [style_of(a) for a in page.all("span") if a.get("class") == "reach"]
    ticks = comparison_accuracy.gather(compared(runs)).ticks
    low, high = (float(label.split("\u202f")[0]) / 100 for _, label in (ticks[0], ticks[-1]))
    assert (ticks[0][0], ticks[-1][0]) == (0, 100)
    for run, dot, bar in zip(runs, dots, reach, strict=True):
        evaluation = run.evaluation
        assert dot == pytest.approx(100 * (evaluation.accuracy - low) / (high - low), abs=0.006)
        assert bar["left"] == pytest.approx(100 * (evaluation.interval[0] - low) / (high - low), abs=0.006)
        assert bar["width"] == pytest.approx(
            100 * (evaluation.interval[1] - evaluation.interval[0]) / (high - low), abs=0.006
        )


def style_of(attributes: dict[str, str | None]) -> dict[str, float]:
    pairs = (part.split(":") for part in (attributes.get("style") or "").split(";"))
    return {name: float(value.rstrip("%")) for name, value in pairs if value.endswith("%")}


def test_runs_are_tested_in_pairs_against_the_first(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"run{n}", f"depth={n + 1}", evaluation=answers(0.6 + 0.1 * n, n)) for n in range(3)]
    _, page = page_of(runs)
    one = runs[0].evaluation
    for run in runs[1:]:
        two = run.evaluation
        right = [(e.logits.numpy().argmax(1) == e.labels.numpy()) for e in (one, two)]
        gained, lost = int((~right[0] & right[1]).sum()), int((right[0] & ~right[1]).sum())
        differing = int((one.logits.argmax(1) != two.logits.argmax(1)).sum())
        row = next(row for row in page.rows if len(row) == 9 and row[0].endswith(run.name))
        assert row[1:3] == [str(gained), str(lost)]
        assert row[5] == str(differing)
        assert float(row[6].replace("−", "-")) == pytest.approx(100 * (gained - lost) / COUNT, abs=0.005)
        said = words_of(page)
        assert f"{run.name} is right on {gained} pictures that run0 gets wrong and wrong on {lost} that run0" in said
    assert "not whether their settings do: that takes several seeds" in said
    assert "not adjusted for there being 2 of them" in said


def test_what_was_not_tested_on_the_same_pictures_is_not_paired(tmp_path: Path) -> None:
    base = make(tmp_path / "a")
    fewer = Evaluation(answers().logits[:50], answers().labels[:50])
    others = {
        "was tested on animals, not on digits": make(tmp_path / "b", card=FEW, evaluation=answers(0.5, 1, 3)),
        "it read other test pictures (50 of digits)": make(tmp_path / "c", evaluation=fewer),
        "changed between the two runs": make(tmp_path / "d", card=replace(CARD, fingerprint="e" * 64)),
        "another source": make(
            tmp_path / "e", "data.source=folder:elsewhere", card=replace(CARD, fingerprint="e" * 64, name="elsewhere")
        ),
        "": make(tmp_path / "f", "limit=100", card=replace(CARD, fingerprint="e" * 64, train=100)),
    }
    for reason, run in others.items():
        first, other = compared([base, run])
        found = why_not_paired(first, other)
        assert reason in found
        assert bool(reason) == bool(found)
        _, page = page_of([base, run])
        said = words_of(page)
        assert ("only it right" in said) == (not reason)
        assert ("cannot be compared picture by picture" in said) == bool(reason)
        assert plain(f"{100 * run.evaluation.accuracy:.2f} %") in said


def test_seeds_of_the_same_settings_are_taken_together(tmp_path: Path) -> None:
    shares = {"a": (0.6, 0.7, 0.8), "b": (0.8, 0.9)}
    runs = [
        make(
            tmp_path / f"{name}{seed}",
            f"seed={seed}",
            f"depth={2 if name == 'b' else 1}",
            evaluation=answers(share, seed),
        )
        for name, values in shares.items()
        for seed, share in enumerate(values)
    ]
    runs.append(make(tmp_path / "a-again", "seed=0", evaluation=answers(0.99, 9)))  # the same seed counts once
    groups = comparison_accuracy.gather(compared(runs)).groups
    assert [[run.letter for run in group.runs] for group in groups] == [["A", "B", "C"], ["D", "E"]]
    first, second = ([run.evaluation.accuracy for run in runs[place]] for place in (slice(0, 3), slice(3, 5)))
    assert groups[0].sample.mean == pytest.approx(np.mean(first))
    assert groups[0].sample.margin == pytest.approx(4.302653 * np.std(first, ddof=1) / math.sqrt(3), rel=1e-6)
    assert groups[1].sample.margin == pytest.approx(12.706205 * np.std(second, ddof=1) / math.sqrt(2), rel=1e-6)
    assert groups[1].difference is not None
    assert groups[1].difference.value == pytest.approx(np.mean(second) - np.mean(first))
    variances = np.var(first, ddof=1) / 3, np.var(second, ddof=1) / 2
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 1)
    assert groups[1].difference.margin == pytest.approx(quantile(freedom) * math.sqrt(sum(variances)), rel=1e-4)
    assert "Over seeds" in words_of(page_of(runs)[1])
    assert "Over seeds" not in words_of(page_of([runs[0], runs[3]])[1])


def quantile(freedom: float) -> float:
    """Student's 97.5 % quantile by the trapezoid rule over a fine grid of its density."""
    places = np.linspace(0, 60, 600_001)
    constant = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    density = constant * (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
    area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * (places[1] - places[0]))])
    return float(np.interp(0.475, area, places))


def test_curves_of_different_lengths_share_their_axes(tmp_path: Path) -> None:
    runs = [make(tmp_path / "long"), make(tmp_path / "short", "epochs=2", course=[(1, 0.5, 1.2), (2, 0.9, 0.7)])]
    found = comparison_curves.gather(compared(runs))
    page = Page(str(found.charts[0].drawing))
    left, right, top, bottom = 50, 460 - 86, 12, 270 - 40
    dots = [(float(a["cx"] or ""), float(a["cy"] or "")) for a in page.all("circle")]
    expected = [
        (left + (epoch - 1) / 2 * (right - left), bottom - (value - 0.4) / 0.5 * (bottom - top))
        for epoch, value in [(1, 0.5), (2, 0.9), (1, 0.4), (2, 0.7), (3, 0.8)]  # the first run is drawn last, on top
    ]
    assert np.allclose(dots, expected, atol=0.051)
    readouts = json.loads(page.all("svg")[0]["data-readout"] or "")
    assert plain(readouts[2]) == "epoch 3 · A long 80.0 % · B short –"
    assert found.charts[0].name == "validation accuracy"
    assert plain(found.charts[0].sentence) == "Last validation accuracy: short 90.0 % (epoch 2), long 80.0 % (epoch 3)."


def test_labels_at_the_ends_of_eight_lines_do_not_lie_on_each_other(tmp_path: Path) -> None:
    runs = [make(tmp_path / f"r{n}", f"seed={n}", course=[(1, 0.5, 1.0), (2, 0.9 + n / 1000, 0.5)]) for n in range(8)]
    for chart in comparison_curves.gather(compared(runs)).charts:
        page = Page(str(chart.drawing))
        places = sorted(float(a["y"] or "") for a in page.all("text") if (a.get("class") or "").startswith("label"))
        assert len(places) == 8
        assert min(np.diff(places)) > 14.9
        assert places[0] > 12
        assert places[-1] < 270 - 30


def test_training_figures_stand_in_where_a_run_held_nothing_out(tmp_path: Path) -> None:
    found = comparison_curves.gather(compared(folders(tmp_path, "without validation")))
    assert [chart.name for chart in found.charts] == ["training accuracy", "training loss"]
    assert "b held nothing out for validation" in found.remarks[0]
    assert plain(found.charts[0].sentence) == "Last training accuracy: a 70.0 % (epoch 3), b 60.0 % (epoch 2)."
    assert [values[1:] for values in found.ends] == [("3", "70.0\u202f%", "0.700"), ("2", "60.0\u202f%", "1.00")]


def test_costs_are_set_in_ratio_to_the_first(tmp_path: Path) -> None:
    runs = [
        make(tmp_path / "a"),
        make(tmp_path / "b", "width=32", facts={"train_seconds": 30.0, "peak_memory": None}),
        make(tmp_path / "c", device="another machine"),
    ]
    _, page = page_of(runs)
    rows = {row[0][-1]: [plain(cell) for cell in row] for row in page.rows if len(row) == 8 and row[0][:1] in "ABC"}
    assert rows["b"][4] == "30.0 s× 2.50"
    assert rows["a"][6] == "400 MB"
    assert rows["b"][6] == "–", "a run folder of an older version has no peak memory"
    assert rows["c"][4:7] == ["12.0 s", "800", "400 MB"], "times on another device are no ratio"
    assert rows["c"][1:3] == ["3,000× 1.00", rows["a"][2] + "× 1.00"]
    ratio = compared(runs)[1].flops / compared(runs)[0].flops
    assert float(rows["b"][2].split("× ")[1]) == pytest.approx(ratio, rel=0.005)
    assert "not trained on the same device" in words_of(page)


def test_classes_side_by_side_are_those_of_the_predictions(tmp_path: Path) -> None:
    runs = folders(tmp_path, "two")
    _, page = page_of(runs)
    rows = [row for row in page.rows if len(row) == 5 and row[0] in DIGITS]
    assert len(rows) == 10
    for label, row in enumerate(rows):
        for run, shown in zip(runs, row[3:], strict=True):
            labels, guesses = run.evaluation.labels.numpy(), run.evaluation.logits.numpy().argmax(1)
            assert float(shown.split("\u202f")[0]) == pytest.approx(
                100 * (guesses[labels == label] == label).mean(), abs=0.051
            )


def test_the_pictures_shown_are_those_that_tell_the_runs_apart(tmp_path: Path) -> None:
    runs = [make(tmp_path / name, evaluation=answers(0.4, seed)) for seed, name in enumerate("ab")]
    _, page = page_of(runs)
    probabilities = [torch.softmax(run.evaluation.logits.double(), 1).numpy() for run in runs]
    guesses = [shares.argmax(1) for shares in probabilities]
    labels = runs[0].evaluation.labels.numpy()
    wrong = [guess != labels for guess in guesses]
    apart = np.abs(probabilities[0] - probabilities[1]).sum(1) / 2
    contested = [n for n in np.argsort(-apart, kind="stable") if wrong[0][n] != wrong[1][n]]
    missed = np.flatnonzero(wrong[0] & wrong[1])
    losses = -np.mean([np.log(shares[np.arange(COUNT), labels]) for shares in probabilities], axis=0)
    missed = missed[np.argsort(-losses[missed], kind="stable")]
    assert min(len(contested), len(missed)) >= 10, "the example has enough to choose from"
    chosen = contested[: max(6, 12 - len(missed))]
    expected = [*chosen, *missed[: 12 - len(chosen)]]
    images = [image for image in page.all("img") if re.fullmatch(r"Test picture \d+: .*", image["alt"] or "")]
    assert [image["alt"] for image in images] == [f"Test picture {n}: {labels[n]}" for n in expected]
    for image, n in zip(images, expected, strict=True):
        assert np.array_equal(np.asarray(decode(image["src"] or "")), PICTURES[n, 0].numpy())
    first = plain(page.texts["ol"][0]).split("test picture")[0]
    for run in range(2):
        guess = guesses[run][expected[0]]
        right = "✓ right" if guess == labels[expected[0]] else "✗ wrong"
        assert f"{'AB'[run]} {guess} {right}" in first
        assert f"{100 * probabilities[run][expected[0]][guess]:.0f} %" in first


def test_names_that_are_equal_are_told_apart_by_the_shortest_path() -> None:
    paths = ["/x/runs/a/digits", "/x/runs/b/digits", "/x/runs/b/bag", "/y/runs/b/digits", "/digits"]
    assert distinct([Path(path) for path in paths]) == [
        "a/digits",
        "x/runs/b/digits",
        "bag",
        "y/runs/b/digits",
        "/digits",
    ]


def test_long_names_are_called_by_their_letter(tmp_path: Path) -> None:
    said = words_of(page_of(folders(tmp_path, "eight"))[1])
    assert "B differs from A only in seed." in said
    assert "B is right on" in said


def test_every_run_is_shown_looking_at_the_same_pictures(tmp_path: Path) -> None:
    runs = folders(tmp_path, "two")
    page = page_of(runs)[1]
    assert "What they look at" in page.texts["h2"]
    drawn = [image["src"] for image in page.all("img") if re.fullmatch(r"Relevance of [A-H]", image["alt"] or "")]
    assert len(drawn) == 6 * len(runs)
    assert len(set(drawn)) > len(runs), "runs do not look all the same"


def test_a_run_without_maps_says_why(tmp_path: Path) -> None:
    runs = [make(tmp_path / "a"), make(tmp_path / "b", "across=batch", "head=mean"), make(tmp_path / "c")]
    runs[2].weights.unlink()
    said = words_of(page_of(runs)[1])
    assert "Without maps: B this model attends across the batch" in said
    assert "C " + str(runs[2].folder) + " has no weights yet" in said
    assert "What they look at" not in words_of(page_of(runs[1:])[1])
    runs[2].weights.write_bytes(runs[0].weights.read_bytes()[:-8])
    assert f"{runs[2].weights} is damaged" in refusal(page_of, runs), "which is no reason to leave it out"


def test_names_from_users_stay_text(tmp_path: Path) -> None:
    _, page = page_of(folders(tmp_path, "hostile"))
    assert "<script>alert(1)<" in page.texts["bdi"]
    assert "{{ 7 * 7 }} & \"'" in page.texts["bdi"]
    assert HOSTILE[0] + "0" in page.texts["bdi"]


def test_the_colours_of_the_runs_can_be_read_and_their_lines_told_apart() -> None:
    """On a light and on a dark page: contrast of at least 4.5 with the page, as WCAG asks of text."""
    sheets = Path(comparison.__file__).parent
    light, dark = (sheets / "comparison.css").read_text().split("@media screen")[:2]
    pages = re.findall(r"--page: (#\w{6})", (sheets / "report.css").read_text())
    for sheet, page in zip((light, dark), pages, strict=False):
        colours = re.findall(r"\.run-\d \{ --run: (#\w{6})", sheet)
        assert len(set(colours)) == 8
        assert all(contrast(colour, page) >= 4.5 for colour in colours)
    assert len(set(re.findall(r"--dash: ([^;]+);", light))) == 8


def test_cells_of_nothing_can_be_read() -> None:
    """On their own ground: the page with a little grey over it."""
    sheet = (Path(comparison.__file__).parent / "report.css").read_text()
    name, share = re.search(
        r"td\.none \{ color: var\((--\w+)\); background: rgb\(128 128 128 / ([\d.]+)\)", sheet
    ).groups()
    for colour, page in zip(*(re.findall(rf"{one}: (#\w{{6}})", sheet)[:2] for one in (name, "--page")), strict=True):
        parts = [int(page[place : place + 2], 16) for place in (1, 3, 5)]
        ground = "#" + "".join(f"{round(part + float(share) * (128 - part)):02x}" for part in parts)
        assert contrast(colour, ground) >= 4.5


def contrast(one: str, two: str) -> float:
    """(L₁ + 0.05) / (L₂ + 0.05) of the relative luminances (WCAG 2)."""
    levels = []
    for colour in (one, two):
        shares = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        levels.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(levels) / min(levels)


@pytest.fixture(scope="module")
def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three real runs side by side, which tests may read but not change."""
    runs = tmp_path_factory.mktemp("compared") / "runs"
    quick = [word for word in QUICK if not word.startswith(("epochs", "checkpoint"))]
    for name, settings in {"plain": (), "uniform": ("attention=uniform",), "bare": ("validation=0", "depth=1")}.items():
        vitlab.train("digits", *quick, "epochs=1", *settings, name=name, runs=runs, quiet=True)
    return runs


def test_trained_runs_record_their_peak_memory(trained_runs: Path) -> None:
    result = json.loads((trained_runs / "plain" / "result.json").read_text())
    assert 10**8 < result["peak_memory"] < 10**11


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trained_runs: Path):
    """The command line in this process, beside a copy of the runs: (exit status, what it printed, its complaint)."""
    shutil.copytree(trained_runs, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, list[str], list[str]]:
        status = 0
        try:
            cli.main(list(words))
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return status, printed.out.splitlines(), printed.err.splitlines()

    return call


def test_the_command_writes_one_page_beside_the_runs_and_says_the_gist(say: Any, tmp_path: Path) -> None:
    status, lines, _ = say("report", "runs/plain", "runs/uniform", "runs/bare")
    assert status == 0
    page = Page((tmp_path / "runs" / "comparison.html").read_text(encoding="utf-8"))
    assert page.faults == []
    said = words_of(page)
    assert lines[-1] == "open runs/comparison.html"
    accuracy = json.loads((tmp_path / "runs/plain/result.json").read_text())["test_accuracy"]
    assert lines[0].startswith(f"A plain: {100 * accuracy:.2f} %")
    assert "uniform is right on" in lines[3]
    assert lines[3] in said
    assert page.texts["code"][0] == "vitlab report runs/plain runs/uniform runs/bare"
    again = say("report", "runs/plain", "runs/uniform", "runs/bare", "runs/comparison.html")  # as runs/* names them now
    assert again[:2] == (0, lines)
    assert "bare held nothing out" in said
    _, lines, _ = say("report", "runs/uniform", "runs/plain", "--out", "other.html")
    assert (tmp_path / "other.html").exists()
    assert lines[0].startswith("A uniform")
    _, lines, _ = say("report", "runs/plain")
    assert lines[0].startswith(f"test accuracy {accuracy:.2%}")
    assert lines[1] == "open runs/plain/report.html"


def test_one_run_gets_its_own_page_anew(trained_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(trained_runs / "plain", tmp_path / "plain")
    commands = re.compile(rb"vitlab \w+ [^<]*")  # the page names the folder that it was made for
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert report(folder) == folder / "report.html"
    assert commands.sub(b"", (folder / "report.html").read_bytes()) == commands.sub(b"", before)
    assert report([folder], out=tmp_path / "elsewhere.html").read_bytes() == (folder / "report.html").read_bytes()


def test_what_cannot_be_reported_is_refused_in_one_line_and_nothing_is_lost(say: Any, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "comparison.html").write_text("before")
    shutil.copy(runs / "plain" / "weights.safetensors", runs / "bare" / "checkpoint.safetensors")
    for words, expected in {
        (): "no run given",
        ("runs/plain", "runs/nowhere"): "no run at runs/nowhere",
        ("runs/plain", "runs/bare"): "runs/bare is not finished: go on with 'vitlab resume runs/bare'",
        ("runs/plain", "runs/uniform", "--out", "no/such/folder/x.html"): "cannot write no/such/folder/x.html",
        ("runs/plain", "runs/uniform", "--out", "runs"): "cannot write runs",
    }.items():
        status, printed, complaint = say("report", *words)
        assert (status, printed, len(complaint)) == (2, [], 1)
        assert complaint[0].startswith("vitlab: ")
        assert expected in complaint[0]
    assert (runs / "comparison.html").read_text() == "before"
    assert not list(tmp_path.rglob(".*.part"))


def test_refusals_from_python(trained_runs: Path, tmp_path: Path) -> None:
    one, two = trained_runs / "plain", trained_runs / "uniform"
    for given, expected in (
        ([one, two, trained_runs / "." / "plain"], "plain is given 2 times"),
        ([one] * 9, "2 to 8 runs can be compared on one page, not 9"),
        ([], "no run given"),
    ):
        with pytest.raises(vitlab.BadInput, match=expected):
            report(given, out=tmp_path / "page.html")
    with pytest.raises(vitlab.BadInput, match="no device 'warp'"):
        report([one, two], out=tmp_path / "page.html", device="warp")
    copy = shutil.copytree(one, tmp_path / "copy")
    card = json.loads((copy / "data.json").read_text()) | {"fingerprint": "0" * 64}
    (copy / "data.json").write_text(json.dumps(card))
    with pytest.raises(vitlab.BadInput, match="have changed since it was trained"):
        report([copy, two], out=tmp_path / "page.html")
    with pytest.raises(vitlab.BadInput, match="have changed since it was trained"):
        vitlab.evaluate(copy, device="cpu")
    assert not (tmp_path / "page.html").exists()


def test_each_file_of_a_run_is_read_once(tmp_path: Path) -> None:
    """A comparison that read a folder while it changed would mix two states."""
    first = Compared("A", "a", make(tmp_path / "a"))
    before = first.evaluation
    shutil.rmtree(tmp_path / "a")
    assert first.evaluation is before
