"""An experiment for your own pictures: chosen from what they are, each choice with its reason."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from vitlab.data import Arrays, Folder
from vitlab.data.folder import parse_size
from vitlab.data.prepared import Card
from vitlab.data.survey import Survey
from vitlab.data.words import counted
from vitlab.engine.evaluation import UNEVEN
from vitlab.engine.optimisers import Muon, Schedule
from vitlab.errors import BadInput
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import Mean
from vitlab.model.tokens import HalvingStem
from vitlab.objectives.supervised import Supervised
from vitlab.settings import find, override

OWN = {"folder": Folder, "npz": Arrays}
LONGEST = 64  # pixels of a side; what is finer is seldom worth its time here
TOKENS = 64  # about so many patches: enough to tell where things are, few enough for two cores
SHOWN, OFTEN = 150_000, 200  # pictures shown in all, some minutes on two cores, and each at most so often
TUNED, AGAIN = 6_000, 40  # the same for a model that is trained already, and larger
FEW = 20  # pictures a class
LOST = 0.1  # share of the pictures' areas that may be cut off without a word
PACE = {("training", "epochs"), ("training", "batch"), ("data", "validation"), ("data", "limit")}

Learning = Literal["supervised", "mae", "dino"]

BASE = Experiment(
    model=ViT(
        width=96,
        depth=4,
        tokens=HalvingStem(patch=4, channels=16),
        attention=Softmax(heads=3, bias=False, qk_norm=True, lean=True),
        block=Block(norm_kind="rms", shift=8, lean=True),
        head=Mean(),
        start="zero",
    ),
    objective=Supervised(label_smoothing=0.1),
    training=Training(
        clip=0.0, ema=0.99, graph=True, optimiser=Muon(matrix_rate=0.02, filters=True), schedule=Schedule(warmup=1)
    ),
)


@dataclass(frozen=True)
class Choice:
    """Settings as they would be typed, and why; a remark has none."""

    settings: tuple[str, ...]
    reason: str


def is_own(name: str) -> bool:
    """Whether a recipe's name is a place of pictures: folder:PATH or npz:FILE."""
    return name.partition(":")[0] in OWN


def own_name(name: str) -> str:
    """What a run of these pictures is called."""
    return Path(name.partition(":")[2]).resolve().name.partition(".")[0] or "pictures"


def experiment(name: str, found: Sequence[Choice]) -> Experiment:
    """The experiment for the pictures at folder:PATH or npz:FILE, by what was chosen for them."""
    return override(begin(name), [word for choice in found for word in choice.settings])


def begin(name: str) -> Experiment:
    kind, _, path = name.partition(":")
    return override(BASE, [f"data.source={kind}:{path}"])


def choices(name: str, settings: Sequence[str] = (), how: Learning = "supervised") -> list[Choice]:
    """What is chosen for these pictures, and why; how they are to be read is for `settings` to say."""
    start = begin(name)
    source = override(start, [word for word in settings if says_how_to_read(word, start)]).data.source
    assert isinstance(source, Folder | Arrays)
    survey, asked = source.survey(), pace(settings, start)
    sides, shape = grid(survey, parse_size(source.size) if isinstance(source, Folder) else None)
    if how == "supervised":
        shape += [change(survey, sides), *model(survey)]
        return [*shape, *length(survey, source.test, **asked), *uneven(survey), *few(survey)]
    shape += [*without_labels(how, survey), *model(survey)]
    lasting = list(length(survey, source.test, SHOWN // 2, OFTEN, **asked))
    if len(survey.counts) < 2 and "validation" not in asked:
        lasting.append(Choice(("validation=0",), "no labels by which to follow what it learns, so none is held out"))
    return [*shape, *lasting]


def tuning(start: Experiment, card: Card, settings: Sequence[str]) -> list[Choice]:
    """What is chosen to teach a model that learned with labels pictures of one's own, where `settings` name some."""
    named = [word for word in settings if word.partition("=")[0] in ("data.source", "source")]
    begun = override(start, named)
    source = override(begun, [word for word in settings if says_how_to_read(word, begun)]).data.source
    if not (named and isinstance(source, Folder | Arrays) and isinstance(start.objective, Supervised)):
        return []
    survey = source.survey()
    lasting = list(length(survey, source.test, TUNED, AGAIN, **pace(settings, begun)))
    found = []
    if others := [word for word, given in (("limit=0", start.data.limit), ("classes=", start.data.classes)) if given]:
        found.append(Choice(tuple(others), "what was chosen of the others says nothing of these"))
    if not start.data.validation and not any("validation=0" in choice.settings for choice in lasting):
        found.append(Choice(("validation=0.1",), "a tenth is held out for choices, if there are pictures to spare"))
    if survey.resized:
        size = f"data.source.size={card.height}x{card.width}"
        found.append(Choice((size, f"data.source.channels={card.channels}"), "as it has learned pictures"))
    rates = [
        f"{name}={getattr(start.training.optimiser, name) / 4:g}"
        for name in ("learning_rate", "matrix_rate")
        if hasattr(start.training.optimiser, name)
    ]
    found.append(Choice((*rates, "compile=no"), "it is trained already: a quarter of its rates, for a short time"))
    return [*found, *lasting, *uneven(survey)]


def says_how_to_read(word: str, start: Experiment) -> bool:
    """Whether setting=value is one of the source's own."""
    return path_of(word, start)[:2] == ("data", "source")


def path_of(word: str, start: Experiment) -> tuple[str, ...]:
    """Where the setting of setting=value is; nowhere, if it is none, which is refused later."""
    try:
        return find(start, word.partition("=")[0])
    except BadInput:
        return ()


def pace(settings: Sequence[str], start: Experiment) -> dict[str, Any]:
    """The epochs, batch, validation and limit that `settings` ask for, where they do: nothing else is chosen then."""
    asked = {path: word for word in settings if (path := path_of(word, start)) in PACE}
    wanted = override(start, list(asked.values()))
    return {path[1]: getattr(getattr(wanted, path[0]), path[1]) for path in asked}


def grid(survey: Survey, asked: tuple[int, int] | None) -> tuple[tuple[int, int], list[Choice]]:
    """A size for all pictures, if none is asked for, and patches that divide it; what is cut off by that."""
    height, width = asked or (round(median(side)) for side in zip(*survey.sizes.elements(), strict=True))
    if asked or not survey.resized:
        patch = nearest_patch(height, width)
        halving = patch.bit_count() == 1 and patch > 1
        tokens = () if halving else ("tokens=conv-stem", "tokens.channels=8")
        reason = f"{height}×{width} pixels are {height * width // patch**2} patches"
        return (height, width), [Choice((*tokens, f"patch={patch}"), reason), *cut(survey, (height, width))]
    scale = min(1, LONGEST / max(height, width))
    patch = next(side for side in (2, 4, 8) if side == 8 or height * width * scale**2 <= 1.6 * TOKENS * side**2)
    sides = (max(round(height * scale / patch), 1) * patch, max(round(width * scale / patch), 1) * patch)
    patches = f"{sides[0] * sides[1] // patch**2} patches of {patch}×{patch}"
    if set(survey.sizes) == {sides}:
        return sides, [Choice((f"patch={patch}",), f"{height}×{width} pixels are {patches}")]
    several = f"{len(survey.sizes)} sizes, median sides {height} and {width}"
    found = several if len(survey.sizes) > 1 else f"{height}×{width}"
    size = f"data.source.size={sides[0]}x{sides[1]}"
    chosen = Choice((size, f"patch={patch}"), f"{found}: scaled to cover {sides[0]}×{sides[1]}, {patches}")
    return sides, [chosen, *cut(survey, sides)]


def cut(survey: Survey, sides: tuple[int, int]) -> Iterator[Choice]:
    """A remark, where much of the pictures is lost as they are scaled to cover this size and cut at the middle."""
    kept = [
        sides[0] * sides[1] / (height * width * max(sides[0] / height, sides[1] / width) ** 2)
        for height, width in survey.sizes.elements()
    ]
    lost = 1 - fmean(kept)
    if survey.resized and lost > LOST:
        yield Choice((), f"{lost:.0%} of their area is cut off so, at the edges: if it matters, pad them to one shape")


def nearest_patch(height: int, width: int) -> int:
    """Of the patches that divide a picture, the one that gives most nearly as many as are wanted."""
    fits = [side for side in range(1, min(height, width) + 1) if not (height % side or width % side)]
    return min(fits, key=lambda side: max(height * width / side**2 / TOKENS, TOKENS * side**2 / (height * width)))


def change(survey: Survey, sides: tuple[int, int]) -> Choice:
    """How pictures are changed while they are learned from."""
    if survey.channels == 1:
        slight = ("rotate=10", "translate=0.08", "augment.scale=0.1", "shear=8")
        return Choice(slight, "grey pictures, such as signs or scans, are turned, shifted and slanted a little")
    reason = "colour pictures, such as photographs, are mirrored, shifted and changed; flip=no where left is not right"
    return Choice(("flip=yes", f"crop={min(sides) // 8}", "trivial=yes"), reason)


def without_labels(how: Learning, survey: Survey) -> Iterator[Choice]:
    """How to learn from pictures alone (results/tuning/2026-11-20-cpu-own-without-labels.txt)."""
    if how == "mae":
        yield Choice(("objective=mae", "shift=0"), "hidden patches are not to be seen from their neighbours")
        return
    contrast = ("prototypes=0", "small_views=0", "head_width=256", "bottleneck=64", "temperature=0.1")
    yield Choice(
        ("objective=dino", *contrast, "ema=0"), "of few pictures more is learned by contrast than by prototypes"
    )
    yield Choice(("matrix_rate=0.005", "learning_rate=2.5e-4"), "small batches want low rates")
    if survey.channels == 1:
        grey = ("rotate=20", "translate=0.08", "augment.scale=0.2", "shear=20", "colour=0.6", "large=0.9")
        yield Choice(grey, "grey pictures: two views are nearly whole, turned, slanted and changed in brightness")
    else:
        colour = ("flip=yes", "colour=0.4", "hue=0.1", "grey=0.2", "large=0.15")
        yield Choice(colour, "colour pictures: two views are cut out, mirrored and changed in colour")


def model(survey: Survey) -> Iterator[Choice]:
    """A larger model where there is more to learn from."""
    if survey.total >= 20_000:
        yield Choice(("width=192", "depth=6"), f"{survey.total:,} pictures can teach a larger model")


def length(survey: Survey, tested: float, shown: int = SHOWN, often: int = OFTEN, **asked: Any) -> Iterator[Choice]:
    """How long to train, in what batches, as far as that is not asked for, and how many pictures to hold out."""
    left = survey.total if survey.tests else round(survey.total * (1 - tested))
    if "validation" in asked:
        left = round(left * (1 - asked["validation"]))
    elif left < 200:
        yield Choice(("validation=0",), f"{counted(left, 'picture')} to learn from: none to spare for choices")
    else:
        left = round(left * 0.9)
    left = min(left, asked.get("limit") or left)
    epochs = asked.get("epochs", min(max(shown // max(left, 1), 5), often))
    batch = 64 if left >= 2000 else 32 if left >= 200 else min(16, max(left // 2, 1))
    batch = asked.get("batch", batch)
    words = (f"epochs={epochs}", f"batch={batch}", f"measure={max(epochs // 20, 1)}")
    yield Choice(words, f"about {left:,} pictures to learn from, {counted(epochs, 'epoch')}, batches of {batch}")


def uneven(survey: Survey) -> Iterator[Choice]:
    least, most = min(survey.counts), max(survey.counts)
    if most > UNEVEN * least:
        said = f"classes are uneven, {least:,} to {most:,} pictures: always naming the largest would be right for"
        yield Choice((), f"{said} {most / survey.total:.0%}")


def few(survey: Survey) -> Iterator[Choice]:
    each = survey.total / len(survey.counts)
    if each < FEW and survey.channels == 3:
        better = "of photographs 'vitlab finetune cifar10 data.source=folder:PATH' knows something already"
        yield Choice((), f"{each:.0f} pictures a class are few: {better}")
