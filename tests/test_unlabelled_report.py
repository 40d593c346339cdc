"""The report of a run that learned without labels: its section, its curves, its headline, and the map of features."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import QUICK
from test_report import Page, check_page, decode, example, shape

from vitlab import recipe, train
from vitlab.data.prepared import Normalise, unit
from vitlab.engine.run import Run
from vitlab.given import load_data
from vitlab.lab import report
from vitlab.look import features
from vitlab.model import Shape
from vitlab.objectives import Dino, Mae
from vitlab.report import history, render, unlabelled, unlabelled_section
from vitlab.report.content import Neighbour, Neighbours, Restored, Unlabelled
from vitlab.report.gather import gather

CPU = torch.device("cpu")
SMALL = (*QUICK, "epochs=1", "head=mean", "learning_rate=0.0005", "checkpoint=30")
TITLE = "Learned without labels"
POINTS = 150  # of the maps here: a thousand take two seconds


def random_features(*size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def clusters(each: int = 40) -> tuple[torch.Tensor, np.ndarray]:
    """Three groups of unit vectors, far from each other in 12 dimensions, and which is which."""
    labels = np.repeat(np.arange(3), each)
    points = np.eye(3, 12)[labels] + 0.08 * random_features(3 * each, 12)
    return torch.from_numpy(points).float(), labels


def purity(places: np.ndarray, labels: np.ndarray, neighbours: int = 10) -> float:
    """The share of each point's nearest points that are of its kind."""
    squares = ((places[:, None] - places[None]) ** 2).sum(-1)
    np.fill_diagonal(squares, np.inf)
    return float((labels[squares.argsort(axis=1)[:, :neighbours]] == labels[:, None]).mean())


def test_the_map_keeps_far_clusters_apart() -> None:
    points, labels = clusters()
    places = features.tsne(points).numpy()
    assert places.shape == (120, 2)
    assert purity(places, labels) == 1.0
    centres = np.stack([places[labels == kind].mean(axis=0) for kind in range(3)])
    width = max(places[labels == kind].std() for kind in range(3))
    assert np.linalg.norm(centres - centres[[1, 2, 0]], axis=1).min() > 2 * width
    assert np.array_equal(places, features.tsne(points).numpy())


@pytest.mark.parametrize("perplexity", [30.0, 5.0])
def test_every_row_has_the_perplexity_that_was_asked_for(perplexity: float) -> None:
    points = random_features(100, 7)
    shares = features.affinities(torch.from_numpy(points), perplexity).numpy()
    assert shares.dtype == np.float64
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-12)
    assert (np.diag(shares) == 0).all()
    off = shares[~np.eye(100, dtype=bool)].reshape(100, 99)
    assert np.allclose(2 ** -(off * np.log2(off)).sum(axis=1), perplexity, rtol=1e-7)
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)[~np.eye(100, dtype=bool)].reshape(100, 99)
    for row, square in zip(off, squares, strict=True):  # log p is a straight line over the squared distance
        slope, start = np.polyfit(square, np.log(row), 1)
        assert slope < 0
        assert np.allclose(start + slope * square, np.log(row), atol=1e-6)


def test_the_gradient_is_that_of_the_divergence() -> None:
    places, wanted = random_features(9, 2), np.abs(random_features(9, 9, seed=1))
    wanted = wanted + wanted.T
    np.fill_diagonal(wanted, 0)
    wanted /= wanted.sum()

    def divergence(points: np.ndarray) -> float:
        near = 1 / (1 + ((points[:, None] - points[None]) ** 2).sum(-1))
        np.fill_diagonal(near, 0)
        off = ~np.eye(9, dtype=bool)
        return float((wanted[off] * np.log(wanted[off] / (near / near.sum())[off])).sum())

    slope = features.gradient(torch.from_numpy(places), torch.from_numpy(wanted)).numpy()
    for place in np.ndindex(places.shape):
        step = np.zeros_like(places)
        step[place] = 1e-5
        assert slope[place] == pytest.approx((divergence(places + step) - divergence(places - step)) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("case", ["few", "alike", "one feature", "none"])
def test_odd_features_still_give_a_map(case: str) -> None:
    given = {
        "few": random_features(6, 4), "alike": np.ones((20, 4)), "one feature": random_features(20, 1),
        "none": np.zeros((0, 4)),
    }[case]  # fmt: skip
    places = features.tsne(torch.from_numpy(given).float())
    assert places.shape == (len(given), 2)
    assert bool(places.isfinite().all())


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Finished quick runs of both kinds."""
    where = tmp_path_factory.mktemp("unlabelled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unlabelled, "POINTS", POINTS)
        given = {"mae": (), "dino": ("prototypes=32", "head_width=32", "bottleneck=8", "small_views=1")}
        return {
            kind: train("digits", f"objective={kind}", *SMALL, *more, name=kind, runs=where, quiet=True)
            for kind, more in given.items()
        }


def page_of(run: Run) -> tuple[str, Page]:
    text = run.report.read_text(encoding="utf-8")
    return text, Page(text)


def alts(page: Page, start: str) -> list[str]:
    return [alt for image in page.all("img") if (alt := image["alt"] or "").startswith(start)]


def plain(text: str) -> str:
    return " ".join(text.replace("\u202f", " ").split())


@pytest.mark.parametrize("kind", ["mae", "dino"])
def test_the_page_has_the_section(learned: dict[str, Run], kind: str) -> None:
    text, page = page_of(learned[kind])
    check_page(text)
    assert TITLE in page.texts["h2"]
    assert "#unlabelled" in {link["href"] for link in page.all("a")}
    for row in ("Masked input", "Reconstruction", "Original"):
        assert len(alts(page, f"{row}: test picture")) == (8 if kind == "mae" else 0)
    near = alts(page, "Training picture")
    assert len(near) == 36
    same = sum("another class" not in alt for alt in near)
    assert f"{same} of these 36 are of the same class." in text
    assert len([1 for figure in page.all("figure") if figure.get("class") == "near other"]) == 36 - same
    assert len(page.all("use")) == POINTS
    kinds = [item["class"] for item in page.all("li") if (item.get("class") or "").startswith("of-")]
    assert kinds == [f"of-{n}" for n in range(10)]
    titles = [title for title in page.texts["title"] if ", test picture " in title]
    labels = load_data(learned[kind].experiment, None).test.labels
    assert len(set(titles)) == POINTS
    for title in titles:
        name, index = title.split(", test picture ")
        assert int(labels[int(index)]) == int(name)
    assert len(text) < 1_000_000


@pytest.mark.parametrize("kind", ["mae", "dino"])
def test_the_headline_is_that_of_a_linear_probe(learned: dict[str, Run], kind: str) -> None:
    text, page = page_of(learned[kind])
    result = learned[kind].result
    assert "Test accuracy of a linear probe on frozen features" in page.texts["h2"]
    assert "it was frozen, and one linear layer learned from the labels to read its features" in text
    said = plain(" ".join(page.texts["p"]))
    assert re.search(rf"{100 * result['test_accuracy']:.1f} %", said)
    assert f"{100 * result['knn_accuracy']:.1f} % by k-NN on the features" in said
    assert f"vitlab finetune {learned[kind].folder}" in page.texts["code"]


def test_restored_pictures_are_the_pictures(learned: dict[str, Run]) -> None:
    """What is shown is the original's, what is hidden is grey, and the model draws in the hidden patches only."""
    _, page = page_of(learned["mae"])
    test = load_data(learned["mae"].experiment, None).test
    rows = []
    for row in ("Masked input", "Reconstruction", "Original"):
        images = [image for image in page.all("img") if (image["alt"] or "").startswith(f"{row}: ")]
        rows.append([np.asarray(decode(image["src"] or "").convert("L")).astype(int) for image in images])
    places = [int(alt.rpartition(" ")[2]) for alt in alts(page, "Original")]
    assert test.labels[places].tolist() == list(range(8))
    for place, seen, drawn, original in zip(places, *rows, strict=True):
        assert np.array_equal(original, test.pictures[place, 0].numpy())
        cells = [image.reshape(2, 14, 2, 14).swapaxes(1, 2).reshape(4, 196) for image in (seen, drawn, original)]
        hidden = (cells[0] == 128).all(axis=1)
        assert hidden.sum() == 3
        assert np.abs(cells[0] - cells[2])[~hidden].max() <= 1
        assert np.abs(cells[1] - cells[2])[~hidden].max() <= 1
        assert np.abs(cells[1] - cells[2])[hidden].max() > 1


@pytest.mark.parametrize("kind", ["mae", "dino"])
def test_the_neighbours_are_the_nearest(learned: dict[str, Run], kind: str) -> None:
    run = learned[kind]
    _, page = page_of(run)
    data, network = load_data(run.experiment, None), run.model()
    normalise = Normalise(run.card, CPU)
    asked = [int(alt.split()[2].rstrip(":")) for alt in alts(page, "Test picture") if "read as" not in alt][:6]
    with torch.inference_mode():
        bank, queries = (
            network.features(normalise(unit(pictures))).double().numpy()
            for pictures in (data.train.pictures, data.test.pictures[asked])
        )
    cosines = queries @ bank.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(bank, axis=1)
    order = (-cosines).argsort(axis=1)[:, :6]
    said = [alt.removeprefix("Training picture ").split(": ") for alt in alts(page, "Training picture")]
    found = np.array([int(index) for index, _ in said]).reshape(6, 6)
    near = np.take_along_axis(cosines, found, axis=1)
    assert np.allclose(near, np.take_along_axis(cosines, order, axis=1), atol=1e-6)  # the same, but for ties
    assert all(int(name.split(",")[0]) == int(data.train.labels[int(index)]) for index, name in said)
    assert data.test.labels[asked].tolist() == list(range(6))


@pytest.mark.parametrize(("name", "count"), [("digits-dino", 10_000), ("cifar10-dino", 2_000), ("cifar10-best", 1_000)])
def test_a_costly_network_seeks_neighbours_among_fewer_without_a_gpu(name: str, count: int) -> None:
    """EFFORT over the operations of a picture (1.0 GFLOP for cifar10-dino), within bounds."""
    channels, side = (1, 28) if name == "digits-dino" else (3, 32)
    network = recipe(name).model.build(Shape(channels, side, side), 10)
    assert unlabelled.searched(network, CPU) == pytest.approx(count, rel=0.1)
    assert unlabelled.searched(network, torch.device("cuda")) == 10_000


def test_without_its_decoder_nothing_is_restored(learned: dict[str, Run], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(unlabelled, "POINTS", 20)
    folder = tmp_path / "mae"
    shutil.copytree(learned["mae"].folder, folder)
    run = Run(folder)
    run.kept.unlink()
    view = gather(run, load_data(run.experiment, None), CPU)
    assert view.unlabelled is not None
    assert not view.unlabelled.restored
    text = render(view)
    check_page(text)
    assert "Reconstruction" not in text
    assert "Nearest neighbours by features" in text


def test_a_run_that_learned_from_labels_has_no_such_section(trained: Path) -> None:
    text = (trained / "report.html").read_text(encoding="utf-8")
    for words in (TITLE, "linear probe", "earest neighbours", "vitlab finetune"):
        assert words not in text


def test_curves_without_accuracy() -> None:
    epochs = [
        {
            "epoch": n,
            "loss": 6 + n / 10,
            "knn_accuracy": 0.2 * n,
            "spread": 0.1 * n,
            "variety": 0.9,
            "learning_rate": 1.0,
        }
        for n in (1, 2, 3)
    ]
    found = history.gather(epochs, 0.1)
    assert [chart.name for chart in found.charts] == ["loss", "k-NN accuracy", "spread"]
    assert found.validated
    assert found.header == (
        "epoch",
        "training loss",
        "k-NN, held out",
        "spread",
        "variety",
        "learning rate",
    )
    assert plain(found.charts[1].sentence) == "k-NN accuracy went from 20.0 % to 60.0 %."
    assert "k-NN, held out 60.0" in found.charts[1].drawing
    plainer = history.gather([{"epoch": 1, "loss": 0.5}], 0.1)
    assert [chart.name for chart in plainer.charts] == ["loss"]
    assert not plainer.validated


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (Mae(), "drawing what it could not see: 12 of its 16 patches"),
        (Dino(), "self-distillation (DINO)"),
        (Dino(prototypes=0), "by contrast"),
    ],
)
def test_the_page_says_how_it_learned(objective: Any, said: str) -> None:
    assert said in unlabelled_section.lead(replace(made(3), aim=unlabelled.aim(objective)))


def made(classes: int, points: int = 60) -> Unlabelled:
    """A section of made-up pictures, with more points of the later classes."""
    labels = np.minimum(np.arange(points) % (2 * classes), classes - 1)
    near = [Neighbour(shape(seed=n), n, n % classes, 0.9) for n in range(6)]
    return Unlabelled(
        aim="mae",
        knn_accuracy=0.5 if classes > 1 else None,
        pixels_accuracy=0.9 if classes > 1 else None,
        apart=(500, 100, 1000) if classes > 1 else None,
        part="test" if classes > 1 else "held-out",
        patches=(4, 16),
        restored=[Restored(n, 0, shape(), shape(), shape()) for n in range(8)],
        neighbours=[Neighbours(n, 0, shape(), near) for n in range(6)],
        searched=(100, 200),
        points=random_features(points, 2),
        indices=np.arange(points),
        labels=labels,
    )


def test_many_classes_share_ten_colours() -> None:
    found = made(14)
    _, legend = unlabelled_section.draw(found, [f"kind {n}" for n in range(14)])
    counts = np.bincount(found.labels, minlength=14)
    assert [kind for kind, *_ in legend] == [*range(9), 10]
    named = [label for _, _, label, _ in legend[:-1]]
    assert counts[named].min() >= np.delete(counts, named).max()
    assert [count for *_, count in legend] == [*counts[named], 60 - counts[named].sum()]
    text = render(example(classes=14, unlabelled=found))
    check_page(text)
    assert "other classes" in text
    assert "They were sought among 100 of 200." in text


def test_pictures_without_labels_have_no_classes_on_the_page() -> None:
    view = example(classes=2, accuracy=float("nan"), interval=(0.0, 1.0), count=1000, unlabelled=made(1))
    bare = replace(
        view,
        classes=["unlabelled"],
        count=0,
        confusion=np.zeros((1, 1), int),
        mistakes=[],
        calibration=[],
        insight=None,
    )
    text = render(bare)
    check_page(text)
    assert unlabelled_section.NO_LABELS in text
    assert TITLE in text
    for words in ("linear probe", "same class", "another class", "dashed frame", "the classes", "unlabelled, "):
        assert words not in text


@pytest.mark.parametrize(
    ("apart", "expected"),
    [
        ((400, 10, 1000), "better than"), ((10, 400, 1000), "less well than"), ((50, 40, 1000), "do not settle"),
        ((15, 4, 1000), "better than"),  # 1.1 points that two intervals of single accuracies would not settle
        (None, "k-NN is right for 90.0 % by the features"),
    ],
)  # fmt: skip
def test_features_are_held_against_the_pixels(apart: tuple[int, int, int] | None, expected: str) -> None:
    said = unlabelled_section.against_pixels(0.9, 0.889, apart)
    assert expected in plain(said)
    assert ("interval" in said) == (apart is not None)
    assert unlabelled_section.against_pixels(0.9, None, apart) == ""


def test_runs_without_labels_can_be_compared(learned: dict[str, Run], trained: Path, tmp_path: Path) -> None:
    mixed = report([trained, learned["mae"], learned["dino"]], out=tmp_path / "mixed.html").read_text("utf-8")
    said = plain(" ".join(Page(mixed).texts["p"]))
    assert "Learned without labels: mae and dino. Such a figure is that of a linear probe" in said
    assert "The loss of mae and dino measures something else" in said
    assert "held nothing out" not in said
    alone = Page(report([learned["mae"], learned["dino"]], out=tmp_path / "alone.html").read_text("utf-8"))
    assert "K-NN accuracy" in alone.texts["h3"]
    assert "Training loss" in alone.texts["h3"]
