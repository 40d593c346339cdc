"""Where weights come from: timm:NAME, hf:ID, a file, a folder of Hugging Face's or timm's, or a run of ours."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vitlab.data.words import shown
from vitlab.engine.run import Run, open_run, zoo
from vitlab.engine.storage import read_json, read_tensors
from vitlab.errors import BadInput, choose, shorten
from vitlab.foreign import foreign
from vitlab.model import Shape, ViT
from vitlab.transfer.files import WHOLE, read_file, read_folder
from vitlab.transfer.found import Facts, Found, normalise_of, recognise

# model_type → what its configuration means where it says nothing
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "vit": {"layer_norm_eps": 1e-12, "patch_size": 16, "image_size": 224, "hidden_act": "gelu"},
    "deit": {"layer_norm_eps": 1e-12, "patch_size": 16, "image_size": 224, "hidden_act": "gelu"},
    "vit_mae": {"layer_norm_eps": 1e-12, "patch_size": 16, "image_size": 224, "hidden_act": "gelu"},
    "dinov2": {"layer_norm_eps": 1e-6, "patch_size": 14, "image_size": 224, "hidden_act": "gelu"},
    "dinov2_with_registers": {"layer_norm_eps": 1e-6, "patch_size": 16, "image_size": 224, "hidden_act": "gelu"},
}
HALVES = ("vit",)  # whose pictures are normalised by ½ and ½ where nothing says how
PLAIN = ("VisionTransformer", "VisionTransformerDistilled")  # timm's classes that are made of our parts


def find(source: str) -> Found:
    """The model that SOURCE names, as one of ours."""
    kind, colon, rest = source.partition(":")
    if colon and kind == "timm":
        name, equals, file = rest.partition("=")
        return from_timm(name, Path(file) if equals else None)
    if colon and kind == "hf":
        return from_folder(fetched(rest))
    path = Path(source)
    if (path / "experiment.json").exists() or (source in zoo() and not path.exists()):
        return from_run(open_run(path))
    if path.is_dir():
        return from_folder(path)
    if path.is_file():
        return from_file(path)
    raise BadInput(
        f"no weights at '{shorten(source)}': name a run, a file of weights, a folder with config.json, timm:NAME, "
        "timm:NAME=FILE or hf:ID"
    )


def from_run(run: Run) -> Found:
    """A run of ours, to be adapted to other pictures."""
    model, card = run.experiment.model, run.card
    if not isinstance(model, ViT):
        raise BadInput(f"{run.folder} is a multi-scale model, and only a ViT is carried over to other pictures")
    classes = card.classes if card.labelled else ()
    shape = Shape(card.channels, card.height, card.width)
    run.model()  # there are weights, and they fit
    tensors, _ = read_tensors(run.weights)
    return Found(run.name, model, shape, tensors, classes, run.experiment.data.normalise, own=run)


def from_file(path: Path) -> Found:
    """Weights alone; a configuration beside them says what they do not."""
    facts = facts_of(path.parent / "config.json", path.stem) if (path.parent / "config.json").exists() else None
    return recognise(read_file(path), facts or Facts(path.stem))


def from_folder(folder: Path) -> Found:
    if not (folder / "config.json").exists():
        raise BadInput(f"no weights at {folder}: there is neither an experiment.json nor a config.json in it")
    facts = facts_of(folder / "config.json", folder.name)
    return recognise(read_folder(folder), facts)


def facts_of(path: Path, title: str) -> Facts:
    """What a configuration of Hugging Face's, or of timm's, says about the weights beside it."""
    config = read_json(path)
    if not isinstance(config, dict):
        raise BadInput(f"{path} is no configuration: it should hold an object")
    if "architecture" in config:
        return facts_of_timm(config["architecture"], config.get("model_args") or {}, config, title)
    kind = choose(str(config.get("model_type")), CONFIGURATIONS, f"model_type in {path}")
    config = CONFIGURATIONS[kind] | config
    if config["hidden_act"] not in ("gelu", "relu"):
        raise BadInput(f"{path}: vitlab's MLPs have gelu, relu or swiglu, not {shorten(str(config['hidden_act']))}")
    try:
        size = config["image_size"]
        height, width = size if isinstance(size, list) else (size, size)
        labels = config.get("id2label") or {}
        processor = path.parent / "preprocessor_config.json"
        pictures = read_json(processor) if processor.exists() else {}
        normalise = normalise_of(pictures.get("image_mean"), pictures.get("image_std")) if pictures else None
        return Facts(
            title=title,
            heads=int(config["num_attention_heads"]),
            epsilon=float(config["layer_norm_eps"]),
            size=(int(height), int(width)),
            activation=config["hidden_act"],
            normalise=normalise or ("half" if kind in HALVES else "imagenet"),
            classes=tuple(shown(str(labels[key])) for key in sorted(labels, key=int)),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"{path} cannot be read as a configuration of {kind}: {shorten(str(error))}") from None


def fetched(name: str) -> Path:
    """A model of the hub, or of its cache here; pickles only where there is nothing better."""
    hub = library("huggingface_hub")
    for weights in WHOLE:
        start, _, end = weights.partition(".")
        wanted = ["config.json", "preprocessor_config.json", f"{start}*.{end}", f"{weights}.index.json"]
        get = partial(hub.snapshot_download, name, allow_patterns=wanted)
        folder = Path(asked(get, f"hf:{name}", "the folder it is in"))
        if (folder / weights).exists() or (folder / wanted[-1]).exists():
            return folder
    raise BadInput(f"hf:{name} has no {' or '.join(WHOLE)}")


def from_timm(name: str, path: Path | None) -> Found:
    """A model of timm's by its name, with the weights that timm fetches, or with those of a file."""
    timm = library("timm")
    choose(name.partition(".")[0], timm.list_models(), "timm model")
    if path is not None:
        return recognise(read_file(path), facts_of_timm(name, {}, {}, name.partition(".")[0]))
    model = asked(partial(timm.create_model, name, pretrained=True), f"timm:{name}", f"timm:{name}=FILE")
    return recognise(model.state_dict(), facts_of_model(model, name.partition(".")[0]))


def facts_of_timm(name: str, arguments: dict[str, Any], config: dict[str, Any], title: str) -> Facts:
    """What timm's own model of that name is made of; it is built without weights."""
    timm = library("timm")
    choose(name.partition(".")[0], timm.list_models(), "timm model")
    try:
        given = {key: config[key] for key in ("num_classes", "global_pool") if key in config} | arguments
        with torch.device("meta"):
            model = timm.create_model(name, pretrained=False, **given)
        labels = tuple(shown(str(name)) for name in config.get("label_names") or ())
        about = dict(config.get("pretrained_cfg") or model.pretrained_cfg)
    except Exception as error:  # whatever timm raises for arguments that its model does not take
        raise BadInput(f"timm cannot build {name} as its config.json says: {shorten(str(error), 120)}") from None
    return facts_of_model(model, title, about, labels)


def facts_of_model(
    model: nn.Module, title: str, config: dict[str, Any] | None = None, labels: tuple[str, ...] = ()
) -> Facts:
    """What a model of timm's says of itself; what is not made of our parts is refused by its name."""
    block = next(iter(getattr(model, "blocks", [])), None)
    kind, inner = type(model).__name__, type(block).__name__
    if kind not in PLAIN or inner != "Block":
        raise BadInput(f"timm's {title} is a {kind} of {inner}s, which vitlab has no parts for: it takes plain ViTs")
    assert isinstance(block, nn.Module)
    told: Any = model
    parts: Any = block
    acts = {"GELU": "gelu", "ReLU": "relu", "SiLU": "gelu"}  # SiLU is a gate's, which the shapes show
    act = type(parts.mlp.act).__name__
    if act not in acts or told.global_pool not in ("token", "avg") or not isinstance(parts.norm1, nn.LayerNorm):
        raise BadInput(
            f"timm's {title} has {act}, {told.global_pool} and {type(parts.norm1).__name__}: no parts of ours"
        )
    about = config or told.pretrained_cfg
    return Facts(
        title=title,
        heads=parts.attn.num_heads,
        epsilon=parts.norm1.eps,
        size=tuple(told.patch_embed.img_size),
        activation=acts[act],  # type: ignore[arg-type]
        pool=told.global_pool,
        normalise=normalise_of(about.get("mean"), about.get("std")),
        classes=labels,
    )


def library(name: str) -> Any:
    if find_spec(name) is None:
        raise BadInput(f"{name} is not installed: pip install {name.replace('_', '-')}")
    return foreign(name)


def asked(call: Callable[[], Any], what: str, instead: str) -> Any:
    """What a library fetches, or one line where there is no network, no such model or no permission."""
    try:
        return call()
    except Exception as error:  # each library has errors of its own for this
        why = shorten(str(error).partition("\n")[0] or type(error).__name__, 120)
        raise BadInput(f"{what} cannot be fetched: {why}; with the file at hand, give {instead}") from None
