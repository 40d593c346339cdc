"""How the page shows what was learned without labels: sentences, rows of pictures, and the map with its legend."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from vitlab.engine.probe import GLANCE, NEIGHBOURS
from vitlab.look.features import LEAST
from vitlab.report import charts, pictures, words
from vitlab.report.content import Restored, Unlabelled, View
from vitlab.report.paired import Paired, points

ROOM = 84  # pixels for a picture that was restored
SMALL = 64  # and for a neighbour
COLOURS = 10  # kinds of points that can be told apart
LONG = 40  # letters of a class's name that every point may repeat
SPREAD = (
    "The spread of the features is 1 where their directions are uniform and 0 where all are the same: it has "
    "collapsed, and learns nothing any more."
)
LEAD = {
    "dino": (
        "It learned by self-distillation (DINO): from a crop, the student had to predict what the teacher, a moving "
        "average of itself, says of nearly the whole picture."
    ),
    "apart": (
        "It learned by contrast (after MoCo v3): from a crop, the student had to find the same picture among all of "
        "its batch, of which the teacher, a moving average of itself, had seen other crops."
    ),
}
COURSE = {
    "mae": (
        "The loss is the mean squared error of the patches that it draws, once each is brought to mean 0 and "
        "deviation 1."
    ),
    "dino": (
        "The loss is the cross-entropy between student and teacher; the teacher moves as well, so the loss need not "
        f"fall. {SPREAD} In the numbers, entropy says how undecided the teacher is about one picture and variety how "
        "its answers spread over the prototypes, both as shares of the most that they can be."
    ),
    "apart": (
        "The loss is the cross-entropy of finding its picture among the others of the batch: 0 where it is always sure "
        f"and right. {SPREAD} In the numbers, entropy is that of the teacher's own softmax over the batch, as a share "
        "of the most that it can be."
    ),
}
VOTED = (
    f"Labels play no part in training. To follow it, after each epoch up to {words.grouped(GLANCE[1])} held-out "
    f"pictures are read by a vote of the {NEIGHBOURS} nearest of up to {words.grouped(GLANCE[0])} training pictures."
)
ALONE = "Nothing was held out with labels to follow it by, so the curves do not show what its features are worth."
PROBE = (
    "The network learned without labels. Then it was frozen, and one linear layer learned from the labels to read its "
    f"features: this is the figure of that linear probe. Nearest neighbours learn nothing: the {NEIGHBOURS} training "
    "pictures whose features are most alike vote."
)
NO_LABELS = "These pictures have no labels, so there is no accuracy to measure."


@dataclass(frozen=True)
class Picture:
    """One picture on the page, and what is said of it."""

    uri: str
    width: int
    height: int
    index: int
    label: int
    other: bool = False  # of another class than the picture that it is likened to


@dataclass(frozen=True)
class Section:
    """What the template is given."""

    labelled: bool  # whether the pictures have labels, though it did not learn from them
    part: str  # of which its pictures are
    probe: str  # what the figure at the top is
    course: str  # what the curves are
    lead: str
    verdict: str  # whether its features are worth more than the pixels
    restored: tuple[tuple[str, tuple[Picture, ...]], ...]  # rows with their names
    neighbours: tuple[tuple[Picture, tuple[Picture, ...]], ...]
    among: str  # how many neighbours are of the same class
    drawing: Markup | None  # the map
    mapped: str  # what it shows
    legend: tuple[tuple[int, str, int | None, int], ...]  # kind, shape, class (or none: all others), pictures


def gather(view: View) -> Section | None:
    """Everything the section says and shows; nothing for a run that learned from labels."""
    found = view.unlabelled
    if found is None:
        return None
    drawing, legend = draw(found, view.classes)
    followed = any("knn_accuracy" in epoch for epoch in view.epochs)
    return Section(
        labelled=len(view.classes) > 1,
        part=found.part,
        probe=PROBE if found.knn_accuracy is not None else "",
        course=f"{COURSE.get(found.aim, '')} {VOTED if followed else ALONE}".strip(),
        lead=lead(found),
        verdict=against_pixels(found.knn_accuracy, found.pixels_accuracy, found.apart),
        restored=rows(found.restored),
        neighbours=tuple(
            (
                shown(each.picture, each.index, each.truth),
                tuple(shown(one.picture, one.index, one.label, other=one.label != each.truth) for one in each.near),
            )
            for each in found.neighbours
        ),
        among=among(found, len(view.classes) > 1),
        drawing=drawing,
        mapped=(
            f"Each point is one of {words.grouped(len(found.points))} {found.part} pictures: pictures with like "
            "features lie side by side, but how far apart two groups lie, and how large they are, means little."
        ),
        legend=legend,
    )


def lead(found: Unlabelled) -> str:
    """How it learned, in one sentence."""
    if found.aim in LEAD:
        return LEAD[found.aim]
    seen, all_of_them = found.patches
    hidden = f"{all_of_them - seen} of its {all_of_them} patches" if all_of_them else "most of its patches"
    return f"It learned by drawing what it could not see: {hidden} were hidden from it, and it drew them from the rest."


def probed(view: View) -> str:
    """What was learned where no epoch was trained: a linear probe on weights from elsewhere."""
    found = view.probe
    if found is None:
        return ""
    chosen = f", its decay, {found.decay:g}, chosen on {words.grouped(found.held_out)} held-out ones" * bool(
        found.held_out
    )
    said = (
        "No epoch was trained: the weights came from elsewhere, and stayed as they were. Its logits are a linear "
        f"probe, a logistic regression on the features of {words.grouped(found.learned)} training pictures{chosen}."
    )
    return f"{said} {against_pixels(found.knn_accuracy, found.pixels_accuracy, found.apart)}".strip()


def against_pixels(knn: float | None, pixels: float | None, apart: tuple[int, int, int] | None) -> str:
    """Whether k-NN on the features is right more often than on the pixels, as far as the same pictures tell."""
    if pixels is None or knn is None:
        return ""
    figures = f"k-NN is right for {words.percent(knn)} by the features, for {words.percent(pixels)} by the raw pixels"
    if apart is None:
        return f"{figures}."
    gained, lost, count = apart
    paired = Paired(count - gained - lost, gained, lost, 0, gained + lost)
    told = {
        -1: "The features tell classes apart less well than the raw pixels do",
        0: "Whether the features tell classes apart better than the raw pixels do, these pictures do not settle",
        1: "The features tell classes apart better than the raw pixels do",
    }[paired.sign]
    low, high = (points(bound) for bound in paired.interval)
    return f"{told}: {figures}, {points(paired.difference)} points (95{words.NARROW_SPACE}% interval {low} to {high})."


def shown(picture: np.ndarray, index: int, label: int, *, room: int = SMALL, other: bool = False) -> Picture:
    return Picture(pictures.picture_uri(picture), *pictures.display_size(picture, room), index, label, other)


def rows(restored: Sequence[Restored]) -> tuple[tuple[str, tuple[Picture, ...]], ...]:
    """Three rows of the same pictures; none where nothing was restored."""
    names = {"shown": "Masked input", "drawn": "Reconstruction", "original": "Original"}
    return tuple(
        (name, tuple(shown(getattr(each, part), each.index, each.truth, room=ROOM) for each in restored))
        for part, name in names.items()
        if restored
    )


def among(found: Unlabelled, labelled: bool) -> str:
    """How many neighbours are of their picture's class, and where they were sought."""
    count = sum(len(each.near) for each in found.neighbours)
    same = sum(one.label == each.truth for each in found.neighbours for one in each.near)
    searched, every = found.searched
    said = [f"{same} of these {count} are of the same class."] if labelled else []
    if searched < every:
        said.append(f"They were sought among {words.grouped(searched)} of {words.grouped(every)}.")
    return " ".join(said)


def draw(
    found: Unlabelled, classes: Sequence[str]
) -> tuple[Markup | None, tuple[tuple[int, str, int | None, int], ...]]:
    """The map and its legend; where there are many classes, the commonest have a colour and the others are grey."""
    if len(found.points) < LEAST or not np.isfinite(found.points).all():
        return None, ()
    counts = np.bincount(found.labels, minlength=len(classes))
    present = np.flatnonzero(counts)
    if len(present) > COLOURS:
        present = np.sort(np.argsort(-counts, kind="stable")[: COLOURS - 1])
    kinds = {int(label): kind for kind, label in enumerate(present)}
    said = [f"{clipped(name)}, " if len(classes) > 1 else "" for name in classes]
    points = [
        charts.Point(x, y, kinds.get(label, COLOURS), f"{said[label]}{found.part} picture {index}")
        for (x, y), label, index in zip(
            found.points.tolist(), found.labels.tolist(), found.indices.tolist(), strict=True
        )
    ]
    legend: list[tuple[int, str, int | None, int]] = [
        (kind, charts.shape(kind), label, int(counts[label])) for label, kind in kinds.items()
    ]
    rest = int(counts.sum() - counts[present].sum())
    if rest:
        legend.append((COLOURS, charts.shape(COLOURS), None, rest))
    return charts.scatter(points, f"A map of the features of {len(points)} {found.part} pictures"), tuple(legend)


def clipped(name: str) -> str:
    return name if len(name) <= LONG else name[: LONG - 1] + "…"
