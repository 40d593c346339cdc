"""Settings: there and back through JSON, `name=value`, the list of them all, and refusals."""

import ast
import inspect
import json
import types
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import (
    JOINS,
    MODELS,
    OPTIMISERS,
    SOURCES,
    UNIONS,
    each,
    refusal,
)

from vitlab.data.prepared import Card
from vitlab.experiment import Experiment
from vitlab.model import MultiScale, ViT
from vitlab.model.tokens import SeveralScales
from vitlab.settings import comments, from_json, override, parse_json, to_json, walk

quickly = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def any_of(wanted: Any) -> st.SearchStrategy:
    """Every value a type allows; whole numbers from 1 and shares below 1 please every class's own checks."""
    if get_origin(wanted) is types.UnionType:
        return st.one_of([any_of(member) for member in get_args(wanted)])
    if is_dataclass(wanted):
        hints = get_type_hints(wanted)
        return st.builds(wanted, **{field.name: any_of(hints[field.name]) for field in fields(wanted)})
    if get_origin(wanted) is Literal:
        return st.sampled_from(get_args(wanted))
    if get_origin(wanted) is tuple:
        (member, _) = get_args(wanted)
        word = st.text(st.characters(exclude_characters=","), min_size=1, max_size=20)  # a list is cut at its commas
        return st.lists(word if member is str else any_of(member), min_size=member is not str, max_size=4).map(tuple)
    return {int: st.integers(1, 10**9), float: st.floats(0, 0.999), bool: st.booleans(), str: st.text(max_size=20)}[
        wanted
    ]


def reachable(wanted: Any, seen: set[type] | None = None) -> set[type]:
    """Every settings class that an experiment may hold."""
    seen = set() if seen is None else seen
    for member in get_args(wanted) if get_origin(wanted) is types.UnionType else (wanted,):
        if is_dataclass(member) and member not in seen:
            seen.add(member)
            for hint in get_type_hints(member).values():
                reachable(hint, seen)
    return seen


CLASSES = sorted(reachable(Experiment), key=lambda kind: kind.__name__)


def test_the_walk_of_types_reaches_every_kind() -> None:
    assert {kind for union in UNIONS.values() for kind in union} <= set(CLASSES)


@pytest.mark.parametrize("name", UNIONS)
def test_kinds_of_a_union_have_tags_of_their_own(name: str) -> None:
    tags = [kind.kind for kind in UNIONS[name]]
    assert len(set(tags)) == len(tags)
    assert all(tag == tag.lower() and " " not in tag for tag in tags)


@quickly
@given(any_of(Experiment))
def test_every_configuration_survives_json(experiment: Experiment) -> None:
    text = json.dumps(to_json(experiment), allow_nan=False)
    assert from_json(Experiment, json.loads(text)) == experiment


@each([kind for union in UNIONS.values() for kind in union])
def test_every_kind_survives_json_in_an_experiment(kind) -> None:
    experiment = place(Experiment(), kind())
    assert from_json(Experiment, json.loads(json.dumps(to_json(experiment)))) == experiment
    assert f'"kind": "{kind.kind}"' in json.dumps(to_json(experiment))


def place(experiment: Experiment, part: Any) -> Experiment:
    """The experiment with a part put where its kind belongs."""
    kind = type(part)
    if kind in JOINS:
        return replace(experiment, model=MultiScale(join=part))
    for name in ("attention", "tokens", "positions", "head"):
        if kind in UNIONS[name]:
            return replace(experiment, model=replace(ViT(), **{name: part}))
    if kind in SOURCES:
        return replace(experiment, data=replace(experiment.data, source=part))
    if kind in OPTIMISERS:
        return replace(experiment, training=replace(experiment.training, optimiser=part))
    return replace(experiment, **{"model" if kind in MODELS else "objective": part})


def leaves(given: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of a JSON object's settings; a kind is its object's own path."""
    for name, value in given.items():
        if name == "kind":
            yield path
        elif isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


@quickly
@given(any_of(Experiment))
def test_walk_lists_each_setting_once_with_what_it_means(experiment: Experiment) -> None:
    entries = list(walk(experiment))
    paths = [entry.path for entry in entries]
    assert len(set(paths)) == len(paths)
    assert set(paths) == set(leaves(to_json(experiment)))
    for entry in entries:
        assert entry.meaning, entry.path
        assert entry.allowed, entry.path


@quickly
@given(any_of(Experiment))
def test_every_setting_can_be_written_as_it_is(experiment: Experiment) -> None:
    """Each `path=value` that states what is there already changes nothing."""
    for entry in walk(experiment):
        value = entry.value
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        assert override(experiment, [f"{'.'.join(entry.path)}={text}"]) == experiment


def has_entry(wanted: Any) -> bool:
    """Whether a field is listed itself: a value or a choice of kinds, not a part without kinds (Data, Block …)."""
    is_part = is_dataclass(wanted) and not hasattr(wanted, "kind")
    return not is_part


@pytest.mark.parametrize("wanted", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_says_what_it_is_and_every_setting_what_it_means(wanted: type) -> None:
    assert wanted.__doc__
    assert not wanted.__doc__.startswith(f"{wanted.__name__}("), "the docstring is the one that dataclass makes up"
    hints = get_type_hints(wanted)
    written = {name: text for parent in reversed(wanted.__mro__[:-1]) for name, text in field_sources(parent).items()}
    for field in fields(wanted):
        if has_entry(hints[field.name]):
            comment = written[field.name].rpartition("  # ")[2] if "  # " in written[field.name] else ""
            assert len(comment) > 3, f"{wanted.__name__}.{field.name} has no comment"
            assert comment.startswith(comments(wanted)[field.name]), "the help text is the comment"


def field_sources(wanted: type) -> dict[str, str]:
    """The lines that define each field of a class."""
    lines = inspect.getsource(wanted).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        node.target.id: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


@pytest.mark.parametrize("wanted", CLASSES, ids=lambda kind: kind.__name__)
def test_settings_are_frozen_and_have_defaults(wanted: type) -> None:
    part = wanted()
    assert hash(part) == hash(wanted())
    for field in fields(wanted):
        with pytest.raises(AttributeError):
            setattr(part, field.name, None)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The default experiment as JSON, with one value replaced (or, for `...`, taken out)."""
    given = json.loads(json.dumps(to_json(Experiment())))
    *parents, last = path.split(".")
    inner = given
    for name in parents:
        inner = inner[name]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return given


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("modle", {}, ["modle", "did you mean 'model'?"]),
        ("model.widht", 3, ["the configuration.model", "widht", "did you mean 'width'?"]),
        ("model.kind", "vitt", ["kind of the configuration.model", "vitt", "did you mean 'vit'?"]),
        ("model.attention.kind", "linfomer", ["linfomer", "did you mean 'linformer'?", "softmax"]),
        ("model.attention.kind", ..., ["model.attention", "no kind", "linformer", "softmax", "uniform"]),
        ("model.attention.kind", 3, ["model.attention", "no kind"]),
        ("model.attention.kind", ["softmax"], ["no kind"]),
        ("model.attention.k", 4, ["model.attention", "'k'"]),
        ("model.width", "64", ["model.width", "whole number", '"64"']),
        ("model.width", 64.0, ["model.width", "whole number"]),
        ("model.width", True, ["model.width", "whole number", "true"]),
        ("model.width", None, ["model.width", "whole number", "null"]),
        ("model.width", [64], ["model.width", "whole number"]),
        ("model.width", {"of": 3}, ["model.width", "whole number"]),
        ("model.final_norm", 1, ["model.final_norm", "yes | no"]),
        ("model.final_norm", "yes", ["model.final_norm"]),
        ("training.clip", "1", ["training.clip", "number"]),
        ("training.clip", True, ["training.clip", "number", "true"]),
        ("training.clip", float("nan"), ["training.clip", "number", "NaN"]),
        ("training.clip", float("inf"), ["training.clip", "number", "Infinity"]),
        ("training.clip", float("-inf"), ["training.clip", "-Infinity"]),
        ("training.precision", "float16", ["training.precision", "auto | float32 | ", "| bfloat16", "float16"]),
        ("training.precision", 32, ["training.precision"]),
        ("training.precision", [], ["training.precision"]),
        ("model", [], ["the configuration.model", "object", "[]"]),
        ("model", None, ["the configuration.model", "object", "null"]),
        ("model.block", "plain", ["model.block", "object", "plain"]),
        ("model.block.kind", "block", ["model.block", "kind"]),
        ("training.epochs", -1, ["epochs", "0 or more", "-1"]),
        ("training.ema", 1.0, ["ema", "share"]),
        ("training.measure", 0, ["measure", "1 or more", "0"]),
        ("testing.at_once", 0, ["at_once", "1 or more", "0"]),
        ("testing.drop_last", 1, ["testing.drop_last", "yes | no"]),
        ("model.output", "probabilities", ["model.output", "logits | log-softmax | softmax", "probabilities"]),
        ("model.across", "pictures", ["model.across", "tokens | batch", "pictures"]),
        ("data.normalise", "none", ["data.normalise", "statistics | half", "none"]),
        ("seed", -1, ["seed", "0 or more"]),
        ("augment.scale", 1.5, ["scale", "share"]),
        ("objective.mixup", -0.5, ["mixup", "0 or more"]),
    ],
)  # fmt: skip
def test_a_wrong_configuration_is_refused_in_one_line(path: str, value: Any, words: list[str]) -> None:
    text = refusal(from_json, Experiment, changed(path, value))
    assert all(word in text for word in words), text


# What a configuration had no word for before there was a choice.
NEWER = (
    "data.normalise", "model.output", "model.across", "model.start", "model.copies", "model.block.hidden_dropout",
    "training.graph", "training.measure", "testing",
)  # fmt: skip


def test_an_older_configuration_lacks_the_newer_settings_and_is_read() -> None:
    given = to_json(replace(Experiment(), seed=7, model=ViT(width=48)))
    for path in NEWER:
        *parents, last = path.split(".")
        inner = given
        for name in parents:
            inner = inner[name]
        del inner[last]
    read = from_json(Experiment, given)
    assert read == replace(Experiment(), seed=7, model=ViT(width=48))
    assert (read.data.normalise, read.model.output, read.model.across, read.model.start) == (
        "statistics", "logits", "tokens", "xavier",
    )  # fmt: skip
    assert (read.model.copies, read.training.graph, read.testing.drop_last) == (False, False, False)
    assert (read.model.block.hidden_dropout, read.training.measure) == (0.0, 1)


@pytest.mark.parametrize("path", [".".join(path) for path in leaves(to_json(Experiment()))])
def test_a_missing_setting_takes_its_default(path: str) -> None:
    assert from_json(Experiment, changed(path, ...)) == from_json(Experiment, {}) == Experiment()


@pytest.mark.parametrize("name", [field.name for field in fields(Card) if field.default is MISSING])
def test_what_has_no_default_is_missed(name: str) -> None:
    card = Card("own", 1, 8, 8, ("a", "b"), (0.5,), (0.5,), 9, 1, 2, "0f", ())
    given = to_json(card)
    assert from_json(Card, given) == card
    del given[name]
    assert refusal(from_json, Card, given, "the card") == f"the card lacks {name}"


@pytest.mark.parametrize("given", [None, 3, "x", [], [{}], True])
def test_a_configuration_is_an_object(given: Any) -> None:
    assert "object" in refusal(from_json, Experiment, given)


@pytest.mark.parametrize("value", ["7,14", 7, [7, "x"], [7.0], [[7]], None, {"0": 7}])
def test_a_list_of_numbers_is_just_that(value: Any) -> None:
    given = to_json(SeveralScales()) | {"patches": value}
    assert "patches" in refusal(from_json, SeveralScales, given)


def test_a_whole_number_may_stand_for_a_number() -> None:
    assert from_json(Experiment, changed("training.clip", 2)).training.clip == 2.0


def test_the_given_object_is_left_as_it_was() -> None:
    given = to_json(Experiment())
    before = json.dumps(given)
    from_json(Experiment, given)
    assert json.dumps(given) == before


def test_a_number_too_large_for_a_float_is_refused() -> None:
    assert "clip" in refusal(from_json, Experiment, changed("training.clip", 10**400))


@pytest.mark.parametrize("given", [{"a\nb": 1}, {"x" * 10_000: 1}], ids=["two-lines", "long"])
def test_a_refusal_stays_one_short_line_whatever_was_given(given: dict[str, int]) -> None:
    assert len(refusal(from_json, Experiment, to_json(Experiment()) | given)) < 1000


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, r'["\ud800"]', "", "nan,", b"\xff"])
def test_text_that_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)
