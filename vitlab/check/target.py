"""What is to be checked, as the user names it: a file's class or function, a run, or a library's model."""

import ast
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from vitlab.check.loaders import Loaders, found_in, loaders_of_run, named
from vitlab.check.shapes import Shape, needs, subject_of
from vitlab.check.subject import NotFinite, first_line
from vitlab.engine.run import open_run, zoo
from vitlab.errors import BadInput, choose, shorten
from vitlab.foreign import foreign

LIBRARIES = ("timm", "transformers", "torchvision")
INSTANCES = ("model", "net", "vit", "network")
BUILDERS = ("build", "build_model", "make", "make_model", "create", "create_model", "get_model")


@dataclass(frozen=True)
class Built:
    """A model, how to build it again, the shape it is known to take, and the batches that come with it."""

    model: nn.Module
    make: Callable[[], nn.Module] | None
    shape: Shape | None
    loaders: Loaders
    guessed: bool = False  # the shape


def exists(target: str) -> None:
    """Refuse, before anything is run, a target that is no file, run or library's model."""
    place, name, _ = split(target)
    if place in LIBRARIES:
        if importlib.util.find_spec(place) is None:
            raise BadInput(f"{place} is not installed: pip install {place}")
        if not name:
            raise BadInput(f"name a model, such as {place}:vit_b_16")
    elif place.endswith(".py"):
        if not Path(place).is_file():
            raise BadInput(f"no file {shorten(place)}")
    elif Path(place).is_dir() and not (Path(place) / "experiment.json").exists():
        raise BadInput(
            f"{shorten(place)} is no run of vitlab; to check the files in it, write --folder {shorten(place)}"
        )
    elif not is_run(place) and (not name or not re.fullmatch(r"[\w.]+", place)):
        raise BadInput(f"'{shorten(target)}' is no file.py:Class, run folder, module:function or library:model")


def is_run(place: str) -> bool:
    return Path(place).is_dir() or place in zoo()


def split(target: str) -> tuple[str, str, dict[str, Any]]:
    """`place:name(key=value, …)` → place, name and arguments, which are plain Python values."""
    match = re.fullmatch(r"(?s)(?P<place>.*?)(?::(?P<name>[\w.\-]+)(?P<call>\(.*\))?)?", target)
    assert match is not None
    call = match["call"] or "()"
    try:
        tree = ast.parse(f"f{call}", mode="eval").body
        assert isinstance(tree, ast.Call)
        if tree.args:
            raise ValueError
        arguments = {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg}
    except (SyntaxError, ValueError, AssertionError):
        raise BadInput(f"cannot read '{shorten(call)}': write arguments as (image_size=28, patch=7)") from None
    return match["place"], match["name"] or "", arguments


def build(target: str, wanted: str = "", loaders: str = "", shape: Shape | None = None) -> Built:
    """Import and build what the target names; `wanted` names the model where the target does not."""
    place, name, arguments = split(target)
    if wanted and not name:
        _, name, arguments = split(f"{place}:{wanted}")
    if place in LIBRARIES:
        make = partial(library_model, place, name, arguments)
        return Built(make(), make, shape, Loaders())
    if not place.endswith(".py") and is_run(place):
        run = open_run(Path(place))
        card = run.card
        return Built(run.model(), run.build, (card.channels, card.height, card.width), loaders_of_run(run))
    module = import_file(Path(place)) if place.endswith(".py") else import_module(place)
    batches = found_in(module, loaders)
    if name:
        model, builder = from_name(module, name, arguments)
        return Built(model, builder, shape, batches)
    return first_model(module, batches, shape)


def library_model(library: str, name: str, arguments: dict[str, Any]) -> nn.Module:
    """A model of a library by its name, with weights drawn anew."""
    if library == "timm":
        package = foreign("timm")
        choose(name, package.list_models(), "timm model")
        return package.create_model(name, pretrained=False, **arguments)
    if library == "torchvision":
        package = foreign("torchvision.models")
        choose(name, package.list_models(), "torchvision model")
        return package.get_model(name, weights=None, **arguments)
    package = foreign("transformers")
    choose(name, package.CONFIG_MAPPING.keys(), "transformers model")
    config = package.AutoConfig.for_model(name, **arguments)
    return package.AutoModelForImageClassification.from_config(config)


def import_file(path: Path) -> ModuleType:
    """Import the user's file under its own name, with its folder on the path, as Python itself would."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = (
        path.stem if path.stem not in sys.modules and path.stem not in sys.stdlib_module_names else f"{path.stem}_file"
    )
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def from_name(
    module: ModuleType, name: str, arguments: dict[str, Any]
) -> tuple[nn.Module, Callable[[], nn.Module] | None]:
    """What a file calls by that name: a model, or what builds one."""
    thing = named(module, name)
    if isinstance(thing, nn.Module):
        return thing, None
    if not callable(thing):
        raise BadInput(f"{name} is {type(thing).__name__}, not a class or function that gives a model")
    missing = needs(thing, arguments)
    if missing:
        given = ", ".join(f"{word}=…" for word in missing)
        raise BadInput(f"{name} needs {', '.join(missing)}: write {file_of(module)}:{name}({given})")
    make = partial(thing, **arguments)
    made = make()
    if not isinstance(made, nn.Module):
        raise BadInput(f"{name}() gives {type(made).__name__}, not an nn.Module")
    return made, make


def first_model(module: ModuleType, loaders: Loaders, shape: Shape | None) -> Built:
    """A file without a name: a model it holds, else what builds one, else the last class; the first that answers."""
    file, unbuilt, unasked = file_of(module), [], []
    for name in candidates(module):
        model = None
        try:
            model, make = from_name(module, name, {})
            subject = subject_of(model, shape)
            return Built(model, make, subject.shape, loaders, subject.guessed)
        except Exception as error:  # whatever a stranger's model raises
            why = str(error) if isinstance(error, BadInput | NotFinite) else first_line(error)
            if model is not None:
                unasked.append(f"{name} of {file} cannot be asked: {why}")
            else:
                unbuilt.append(why if isinstance(error, BadInput) else f"{name}: {why}")
    if unasked:
        raise BadInput("; ".join(unasked[:2]))
    why = f" ({'; '.join(unbuilt[:2])})" if unbuilt else ": it defines no nn.Module"
    raise BadInput(f"no model found in {file}{why}")


def file_of(module: ModuleType) -> str:
    return Path(module.__file__ or module.__name__).name


def candidates(module: ModuleType) -> list[str]:
    """The names in a file that may be its model, likeliest first; losses are modules too, but have no weights."""
    names = vars(module)
    held = [
        name for name, value in names.items() if isinstance(value, nn.Module) and any(True for _ in value.parameters())
    ]
    own = {name: value for name, value in names.items() if getattr(value, "__module__", None) == module.__name__}
    classes = [name for name, value in own.items() if inspect.isclass(value) and issubclass(value, nn.Module)]
    builders = [name for name in BUILDERS if inspect.isfunction(own.get(name))]
    return list(dict.fromkeys([*(name for name in INSTANCES if name in held), *held, *builders, *reversed(classes)]))
