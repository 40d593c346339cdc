"""`name=value` on the command line: what it changes, and what it refuses."""

from dataclasses import fields, replace
from typing import Any

import pytest
from kinds import HEADS, POSITIONS, SOURCES, UNIONS, each, kind_id, refusal

from vitlab.data import Arrays, Folder, Sample
from vitlab.engine.optimisers import Muon
from vitlab.errors import choose
from vitlab.experiment import Experiment
from vitlab.model import MultiScale, ViT
from vitlab.model.attention import Linformer, Softmax, Uniform
from vitlab.model.heads import Mean
from vitlab.model.positions import NoPositions, Rotary
from vitlab.model.tokens import ConvStem, SeveralScales
from vitlab.settings import override, walk


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["width=32"], {"width": 32}),
        (["model.width=32"], {"width": 32}),
        (["attention=linformer", "k=4"], {"attention": Linformer(k=4)}),
        (["attention=linformer", "attention.k=4", "attention.heads=2"], {"attention": Linformer(heads=2, k=4)}),
        (["heads=8", "attention=linformer"], {"attention": Linformer(heads=8)}),
        (["bias=no", "heads=8", "attention=uniform"], {"attention": Uniform(bias=False)}),
        (["bias=no", "attention=uniform", "attention=softmax"], {"attention": Softmax(bias=False)}),
        (["attention=softmax:8"], {"attention": Softmax(heads=8)}),
        (["tokens=conv-stem:7"], {"tokens": ConvStem(patch=7)}),
        (["patch=7", "tokens=conv-stem"], {"tokens": ConvStem(patch=7)}),
        (["tokens=several-scales:4,8"], {"tokens": SeveralScales((4, 8))}),
        (["tokens=several-scales", "patches=2"], {"tokens": SeveralScales((2,))}),
        (["tokens=several-scales", "patches=2,4,8,"], {"tokens": SeveralScales((2, 4, 8))}),
        (["positions=none"], {"positions": NoPositions()}),
        (["positions=rotary:50"], {"positions": Rotary(50.0)}),
        (["head=mean"], {"head": Mean()}),
        (["final_norm=no"], {"final_norm": False}),
        (["final_norm=False"], {"final_norm": False}),
        (["final_norm=no", "final_norm=YES"], {"final_norm": True}),
        (["width=32", "width=48"], {"width": 48}),
    ],
)  # fmt: skip
def test_overrides_change_what_they_name(assignments: list[str], expected: dict[str, Any]) -> None:
    before = Experiment()
    changed_experiment = override(before, assignments)
    assert changed_experiment == replace(before, model=replace(ViT(), **expected))
    assert before == Experiment()


def test_overrides_reach_every_corner() -> None:
    experiment = override(
        Experiment(),
        ["seed=3", "source=folder:my/pictures:1=2", "limit=50", "flip=yes", "learning_rate=1e-4", "warmup=.5",
         "training.optimiser=muon", "matrix_rate=0.1", "label_smoothing=0.1", "decay=linear", "precision=float32"],
    )  # fmt: skip
    assert experiment.seed == 3
    assert experiment.data.source == Folder(path="my/pictures:1=2")
    assert experiment.data.limit == 50
    assert experiment.augment.flip is True
    assert experiment.training.optimiser == Muon(learning_rate=1e-4, matrix_rate=0.1)
    assert (experiment.training.schedule.warmup, experiment.training.schedule.decay) == (0.5, "linear")
    assert experiment.objective.label_smoothing == 0.1
    assert experiment.training.precision == "float32"


def test_a_switch_of_kind_keeps_the_fields_that_both_have() -> None:
    experiment = override(Experiment(), ["source=folder:a", "test=0.3", "source=npz"])
    assert experiment.data.source == Arrays(path="a", test=0.3)
    assert override(experiment, ["source=digits"]).data.source == Sample()
    multi = override(Experiment(), ["width=32", "depth=2", "attention=locality", "norm=after", "model=multi-scale"])
    assert isinstance(multi.model, MultiScale)
    assert (multi.model.width, multi.model.depth, multi.model.attention.kind) == (32, 2, "locality")
    assert multi.model.block.norm == "after"


@each([kind for union in UNIONS.values() for kind in union])
def test_every_kind_can_be_chosen_by_its_tag(kind) -> None:
    name = next(name for name, union in UNIONS.items() if kind in union)
    first = ["model=multi-scale"] if name == "join" else []
    chosen = override(Experiment(), [*first, f"{name}={kind.kind}"])
    assert type(getattr_path(chosen, name)) is kind


def getattr_path(experiment: Experiment, name: str) -> Any:
    (path,) = [entry.path for entry in walk(experiment) if entry.path[-1] == name]
    part: Any = experiment
    for step in path:
        part = getattr(part, step)
    return part


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("width", ["'width'", "name=value"]),
        ("--width", ["--width", "name=value"]),
        ("widht=3", ["no setting called 'widht'", "did you mean 'width'?"]),
        ("model.widht=3", ["model.widht", "did you mean 'model.width'?"]),
        ("zzz=3", ["no setting called 'zzz': 'vitlab settings' lists them"]),
        ("=3", ["no setting called ''"]),
        (".width=3", ["no setting called '.width'"]),
        ("block=plain", ["no setting called 'block'"]),
        ("dropout=0.1", ["dropout", "model.attention.dropout", "model.block.dropout", " or ", "more of the name"]),
        ("scale=0.1", ["augment.scale", "model.attention.scale", " or "]),
        ("attention=softmaxx", ["kind of attention", "softmaxx", "did you mean 'softmax'?", "uniform"]),
        ("attention=", ["kind of attention", "softmax"]),
        ("attention=softmax:many", ["heads", "whole number", "many"]),
        ("width=wide", ["width", "whole number", "'wide'"]),
        ("width=3.0", ["width", "whole number", "'3.0'"]),
        ("width=", ["width", "whole number", "''"]),
        ("clip=nan", ["clip", "number"]),
        ("clip=inf", ["clip", "number"]),
        ("clip=1e999", ["clip", "number"]),
        ("clip=one", ["clip", "number", "'one'"]),
        ("flip=maybe", ["flip", "maybe", "yes", "no"]),
        ("flip=1", ["flip", "yes", "no"]),
        ("norm=befor", ["norm", "befor", "did you mean 'before'?", "after", "none"]),
        ("epochs=-1", ["epochs", "0 or more", "-1"]),
        ("crop=-1", ["crop", "0 or more"]),
        ("erase=1.5", ["erase", "share"]),
        ("mixed=1.5", ["mixed", "share"]),
        ("warmup=-1", ["warmup", "0 epochs or more"]),
    ],
)  # fmt: skip
def test_a_wrong_override_is_refused_in_one_line(assignment: str, words: list[str]) -> None:
    text = refusal(override, Experiment(), [assignment])
    assert all(word in text for word in words), text


def test_settings_in_a_list_are_refused() -> None:
    assert "settings are text such as 'epochs=5', each by itself" in refusal(override, Experiment(), [["epochs=5"]])


def test_a_wrong_part_of_a_list_is_refused() -> None:
    assert "patches" in refusal(override, Experiment(), ["tokens=several-scales", "patches=7,x"])


@pytest.mark.parametrize("kind", [kind for kind in (*HEADS, *POSITIONS, *SOURCES) if not fields(kind)], ids=kind_id)
def test_a_value_for_a_kind_without_settings_is_refused(kind) -> None:
    name = next(name for name, union in UNIONS.items() if kind in union)
    assert kind.kind in refusal(override, Experiment(), [f"{name}={kind.kind}:3"])


def test_a_choice_names_the_nearest_and_lists_the_rest_while_they_are_few() -> None:
    assert choose("b", ["a", "b"], "letter") == "b"
    text = refusal(choose, "softmx", ["uniform", "softmax"], "attention")
    assert text == "no attention called 'softmx': choose from softmax, uniform; did you mean 'softmax'?"
    many = [f"name{number}" for number in range(30)]
    assert "choose from" not in refusal(choose, "name31", many, "name")
    assert "choose from" in refusal(choose, "zzz", many, "name")
