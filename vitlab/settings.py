"""Frozen dataclasses ↔ JSON ↔ `name=value` on the command line. The typed unions are the only list of kinds."""

import inspect
import io
import json
import sys
import tokenize
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vitlab.errors import BadInput, choose, shorten

Settings = TypeVar("Settings")


def parse_json(content: str | bytes) -> Any:
    """What a JSON text says, or a ValueError: also for a nest too deep to be read, and for what is no Unicode."""
    try:
        found = json.loads(content)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair could be written nowhere
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def to_json(settings: Any) -> Any:
    """Dataclasses become objects; a member of a union carries its kind."""
    if is_dataclass(settings):
        kind = {"kind": settings.kind} if hasattr(settings, "kind") else {}
        return kind | {f.name: to_json(getattr(settings, f.name)) for f in fields(settings)}
    return list(settings) if isinstance(settings, tuple) else settings


def from_json(wanted: Any, given: Any, where: str = "the configuration") -> Any:
    """Read `given` as the type `wanted`, refusing what is unknown or of another type.

    A setting that is not there takes its default: files of an older version lack the newer ones, whose defaults do
    what was done before there was a choice.
    """
    if not is_settings(wanted):
        return check_value(wanted, given, where)
    if not isinstance(given, dict):
        raise BadInput(f"{where} must be an object, not {json.dumps(given)[:60]}")
    given = dict(given)
    kinds = kinds_of(wanted)
    if any(hasattr(kind, "kind") for kind in kinds.values()):
        name = given.pop("kind", None)
        if not isinstance(name, str):
            raise BadInput(f"{where} names no kind: choose from {', '.join(sorted(kinds))}")
        wanted = kinds[choose(name, kinds, f"kind of {where}")]
    types_of = field_types(wanted)
    for name in given:
        choose(name, types_of, f"setting of {where}")
    missing = sorted(f.name for f in fields(wanted) if f.name not in given and not has_default(f))
    if missing:
        raise BadInput(f"{where} lacks {', '.join(missing)}")
    return wanted(**{name: from_json(types_of[name], value, f"{where}.{name}") for name, value in given.items()})


def has_default(field: Field) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def override(settings: Settings, assignments: list[str]) -> Settings:
    """Apply `name=value` in order; a name may be shortened to any unique tail of it (`width`, `attention.k`)."""
    for assignment in assignments:
        if not isinstance(assignment, str):
            raise BadInput(f"settings are text such as 'epochs=5', each by itself, and not {shorten(repr(assignment))}")
        name, equals, value = assignment.partition("=")
        if not equals:
            raise BadInput(f"'{assignment}' is not a setting: write name=value, for example epochs=5")
        path = find(settings, name)
        settings = assign(settings, path, value)
    return settings


def assign(settings: Any, path: tuple[str, ...], value: str) -> Any:
    """A copy of `settings` with the setting at `path` read from text."""
    name, *rest = path
    if rest:
        return replace(settings, **{name: assign(getattr(settings, name), tuple(rest), value)})
    own: type = type(settings)
    wanted = field_types(own)[name]
    if not is_settings(wanted):
        return replace(settings, **{name: read_value(wanted, value, name)})
    kinds = kinds_of(wanted)
    kind, colon, first = value.partition(":")
    chosen = kinds[choose(kind, kinds, f"kind of {name}")]
    now = getattr(settings, name)
    shared = {f.name for f in fields(now)} & set(field_types(chosen))
    part = chosen(**{field: getattr(now, field) for field in shared})
    if colon and not fields(chosen):
        raise BadInput(f"{name} {kind} has no settings, so '{first}' cannot be one: write {name}={kind}")
    if colon:  # kind:value sets the kind's first setting, as in data.source=folder:pictures/
        part = assign(part, (fields(chosen)[0].name,), first)
    return replace(settings, **{name: part})


def find(settings: Any, name: str) -> tuple[str, ...]:
    """The one setting whose dotted name is `name` or ends in it."""
    paths = [entry.path for entry in walk(settings)]
    wanted = tuple(name.split("."))
    matches = [wanted] if wanted in paths else [path for path in paths if path[-len(wanted) :] == wanted]
    if not matches:
        choose(
            name,
            {path[-1] for path in paths} | {".".join(path) for path in paths if "." in name},
            "setting",
            "'vitlab settings'",
        )
    if len(matches) > 1:
        raise BadInput(f"'{name}' could be {' or '.join('.'.join(path) for path in matches)}: write more of the name")
    return matches[0]


@dataclass(frozen=True)
class Entry:
    """One setting: where it is, what it is now, what it may be, and what it means."""

    path: tuple[str, ...]
    value: Any
    allowed: str
    meaning: str


def walk(settings: Any, path: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Every setting, parts before their own settings."""
    own: type = type(settings)
    for name, wanted in field_types(own).items():
        value = getattr(settings, name)
        here = (*path, name)
        meaning = comments(own).get(name, "")
        if not is_settings(wanted):
            yield Entry(here, value, describe_type(wanted), meaning)
            continue
        kinds = kinds_of(wanted)
        if hasattr(value, "kind"):
            yield Entry(here, value.kind, " | ".join(kinds), meaning)
        yield from walk(value, here)


def kinds_at(settings: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each kind that the part called `name` may be, and the equation or sentence that its docstring begins with."""
    path = find(settings, name)
    for step in path[:-1]:
        settings = getattr(settings, step)
    own: type = type(settings)
    wanted = field_types(own)[path[-1]]
    if not is_settings(wanted) or len(members(wanted)) < 2:
        raise BadInput(f"{name} is no part of which there are several kinds: to set it, write {name}=value")
    for kind, chosen in kinds_of(wanted).items():
        yield kind, " ".join((inspect.getdoc(chosen) or "").partition("\n\n")[0].split())


def is_settings(wanted: Any) -> bool:
    """Whether a type is a settings dataclass or a union of them."""
    return all(is_dataclass(member) for member in members(wanted))


def kinds_of(union: Any) -> dict[str, Any]:
    """Kind → class, for a union of settings or a single class."""
    return {getattr(member, "kind", member.__name__): member for member in members(union)}


def members(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if get_origin(wanted) in (types.UnionType, Union) else (wanted,)


@cache
def field_types(settings: type) -> dict[str, Any]:
    hints = get_type_hints(settings)
    return {f.name: hints[f.name] for f in fields(settings)}


@cache
def comments(settings: type) -> dict[str, str]:
    """The comment beside each field of a settings class, read from its source and its parents'."""
    found: dict[str, str] = {}
    for parent in reversed(settings.__mro__[:-1]):
        line_name = ""
        for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(parent)).readline):
            if token.type == tokenize.NAME and token.line.strip().startswith(f"{token.string}:"):
                line_name = token.string
            elif token.type == tokenize.COMMENT and line_name:
                found.setdefault(line_name, token.string.lstrip("# "))
            elif token.type == tokenize.NEWLINE:
                line_name = ""
    return found


def describe_type(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return " | ".join(map(str, get_args(wanted)))
    if get_origin(wanted) is tuple:
        return f"{describe_type(get_args(wanted)[0])},…"
    if wanted is bool:
        return "yes | no"
    return {int: "whole number", float: "number", str: "text"}[wanted]


def read_value(wanted: Any, text: str, name: str) -> Any:
    """Text from the command line → a value of the type `wanted`."""
    if get_origin(wanted) is Literal:
        return choose(text, get_args(wanted), f"value of {name}")
    if get_origin(wanted) is tuple:
        return tuple(read_value(get_args(wanted)[0], part, name) for part in text.split(",") if part)
    if wanted is bool:
        return choose(text.lower(), ("yes", "no", "true", "false"), f"value of {name}") in ("yes", "true")
    try:
        value = wanted(text)
    except ValueError:
        raise BadInput(f"{name} must be a {describe_type(wanted)}, not '{text}'") from None
    return check_value(wanted, value, name)


def write_value(value: Any) -> str:
    """A value as the text that `read_value` reads."""
    if isinstance(value, tuple):
        return ",".join(map(write_value, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def check_value(wanted: Any, value: Any, where: str) -> Any:
    """A value from JSON, if it is of the type `wanted`."""
    if get_origin(wanted) is tuple and isinstance(value, list):
        return tuple(check_value(get_args(wanted)[0], part, where) for part in value)
    if get_origin(wanted) is Literal:
        fits = value in get_args(wanted)
    elif wanted is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
        value = float(value) if fits else value
    else:
        fits = type(value) is wanted
    if not fits:
        raise BadInput(f"{where} must be a {describe_type(wanted)}, not {json.dumps(value)[:60]}")
    return value
