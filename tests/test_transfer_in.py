"""Other people's weights give their own answers here: features of every token, and logits."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from foreign_models import (
    as_dino,
    as_folder,
    as_mae,
    as_pth,
    as_safetensors,
    as_timm_folder,
    cct_model,
    hugging,
    pictures_of,
    timm_model,
)
from kinds import refusal
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from vitlab import override, recipe
from vitlab.model.heads import ClassToken, Distilled, Mean, SequencePool
from vitlab.model.positions import Learned, Sinusoidal1d
from vitlab.model.tokens import ConvPool
from vitlab.transfer.found import Facts, Found, network_of, recognise
from vitlab.transfer.mapping import TOLERANCE
from vitlab.transfer.sources import find

TINY = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768}
SMALL = {"hidden_size": 384, "num_attention_heads": 6}
MINI = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 28, "patch_size": 14}


@torch.inference_mode()
def compare(found: Found, features: Tensor, logits: Tensor | None, pictures: Tensor) -> None:
    """Every token after the last norm, and the logits, within the stated tolerance."""
    network = network_of(found)
    ours = network.norm(network.blocks(network.embed(pictures), None))
    assert features.abs().max() > 1
    torch.testing.assert_close(ours, features, **TOLERANCE)
    if logits is None:
        assert not found.classes
    else:
        assert logits.std() > 0.1
        assert len(found.classes) == logits.shape[1]
        torch.testing.assert_close(network(pictures), logits, **TOLERANCE)


FROM_TIMM = {
    "vit-tiny": ("vit_tiny_patch16_224", as_safetensors, 224),
    "vit-small": ("vit_small_patch16_224", as_pth, 224),
    "vit-base": ("vit_base_patch16_224", as_safetensors, 224),
    "deit": ("deit_tiny_patch16_224", as_pth, 224),
    "deit-distilled": ("deit_tiny_distilled_patch16_224", as_safetensors, 224),
    "deit3": ("deit3_small_patch16_224", partial(as_timm_folder, img_size=64), 64),
    "dino": ("vit_small_patch16_224.dino", as_safetensors, 224),
    "dinov2-registers": ("vit_small_patch14_reg4_dinov2", partial(as_timm_folder, img_size=98), 98),
    "mean": ("vit_tiny_patch16_224", partial(as_timm_folder, img_size=64, global_pool="avg", fc_norm=False), 64),
}


@pytest.mark.parametrize("case", FROM_TIMM)
def test_timms_models_answer_as_in_timm(case: str, tmp_path: Path) -> None:
    name, save, side = FROM_TIMM[case]
    arguments = getattr(save, "keywords", {})
    theirs = timm_model(name, **arguments)
    saved = save(theirs, tmp_path)
    found = find(saved if arguments else f"timm:{name}={saved}")
    pictures = pictures_of(side)
    with torch.inference_mode():
        features = theirs.forward_features(pictures)
        logits = theirs.forward_head(features) if theirs.num_classes else None
    compare(found, features, logits, pictures)
    assert found.normalise == ("half" if name.startswith("vit_") and "dino" not in name else "imagenet")
    head = {"deit-distilled": Distilled(), "mean": Mean()}.get(case, ClassToken())
    assert found.model.head == head
    assert found.model.registers == {"dinov2-registers": 4, "mean": 1}.get(case, 0)


@pytest.mark.parametrize("layout", [as_dino, as_mae, as_pth])
def test_checkpoints_as_published_are_unwrapped(layout: Callable[[nn.Module, Path], str], tmp_path: Path) -> None:
    theirs = timm_model("vit_tiny_patch16_224", num_classes=0, img_size=64)
    found = find(layout(theirs, tmp_path))
    pictures = pictures_of(64)
    with torch.inference_mode():
        compare(found, theirs.forward_features(pictures), None, pictures)
    notes = " · ".join(found.notes)
    assert "3 heads, as in every published ViT of width 192" in notes
    assert ("DINO's projection head" in notes) == (layout is as_dino)
    assert ("MAE's decoder" in notes) == (layout is as_mae)


HUGGING: dict[str, tuple[str, dict[str, Any]]] = {
    "vit-small": ("ViTForImageClassification", SMALL | {"image_size": 64, "intermediate_size": 1536, "num_labels": 7}),
    "vit-pooler": ("ViTModel", TINY | {"image_size": 64}),
    "deit": ("DeiTForImageClassification", TINY | {"image_size": 64, "num_labels": 7}),
    "deit-distilled": ("DeiTForImageClassificationWithTeacher", TINY | {"image_size": 64, "num_labels": 7}),
    "deit-headless": ("DeiTModel", TINY | {"image_size": 64}),
    "dinov2": ("Dinov2Model", MINI),
    "dinov2-registers": ("Dinov2WithRegistersModel", SMALL | {"image_size": 98, "patch_size": 14}),
    "dinov2-gated": ("Dinov2Model", MINI | {"use_swiglu_ffn": True}),
    "dinov2-classifier": ("Dinov2ForImageClassification", MINI | {"num_labels": 7}),
    "mae": ("ViTMAEForPreTraining", {"decoder_num_hidden_layers": 1, "mask_ratio": 0.0, "image_size": 112}),
}
REGISTERS = {"deit": 1, "dinov2-registers": 4}


@pytest.mark.parametrize("case", HUGGING)
def test_hugging_faces_models_answer_as_in_transformers(case: str, tmp_path: Path) -> None:
    theirs = hugging(HUGGING[case][0], **HUGGING[case][1])
    found = find(as_folder(theirs, tmp_path))
    pictures = pictures_of(theirs.config.image_size)
    base = theirs.base_model
    with torch.inference_mode():
        if case == "mae":  # its encoder shuffles the patches; this draw leaves them in their order
            features = base(pictures, noise=torch.arange(49.0).expand(1, -1)).last_hidden_state
        else:
            features = base(pictures).last_hidden_state
        logits = (
            theirs(pictures).logits if "classifier" in dict(theirs.named_children()) or "distilled" in case else None
        )
    if case == "dinov2-classifier":
        logits = None
        assert any("class token and the patches' mean" in note for note in found.notes)
    compare(found, features, logits, pictures)
    assert found.model.registers == REGISTERS.get(case, 0)
    assert isinstance(found.model.head, Distilled) == (case in ("deit-distilled", "deit-headless"))
    assert found.model.block.epsilon == theirs.config.layer_norm_eps
    assert found.normalise == ("half" if theirs.config.model_type == "vit" else "imagenet")
    assert any("pooler" in note for note in found.notes) == (case in ("vit-pooler", "deit-headless"))


CCTS: dict[str, tuple[str, dict[str, Any], ConvPool]] = {
    "cct-7/3x1": ("cct_7", {"img_size": 32, "num_classes": 10, "positional_embedding": "learnable"}, ConvPool()),
    "cct-2/3x2": ("cct_2", {"img_size": 32, "num_classes": 100, "n_conv_layers": 2}, ConvPool(patch=4, layers=2)),
    "cct-14/7x2": (
        "cct_14",
        {"img_size": 112, "kernel_size": 7, "n_conv_layers": 2, "positional_embedding": "learnable"},
        ConvPool(patch=16, kernel=7, layers=2),
    ),
}


@pytest.mark.parametrize("case", CCTS)
def test_ccts_answer_as_in_vit_pytorch(case: str, tmp_path: Path) -> None:
    name, arguments, tokens = CCTS[case]
    theirs = cct_model(name, **arguments)
    found = find(as_pth(theirs, tmp_path))
    pictures, features = pictures_of(arguments["img_size"]), []
    theirs.classifier.norm.register_forward_hook(lambda module, given, made: features.append(made))
    with torch.inference_mode():
        logits = theirs(pictures)
    compare(found, features[0], logits, pictures)
    learned = "positional_embedding" in arguments
    assert found.model.tokens == tokens
    assert found.model.head == SequencePool()
    assert found.model.positions == (Learned() if learned else Sinusoidal1d())
    assert found.normalise == ("imagenet" if arguments["img_size"] > 32 else "statistics")
    notes = " · ".join(found.notes)
    assert "left out, attention_pool.bias" in notes
    assert f"patches of {tokens.patch}, as in every published CCT" in notes
    published = {"cct-7/3x1": 3.76e6, "cct-2/3x2": 0.28e6, "cct-14/7x2": 22.36e6}
    weights = sum(weight.numel() for weight in network_of(found).parameters())
    assert weights == pytest.approx(published[case], rel=0.04), "as many weights as the paper says"


def test_the_page_has_the_settings_of_a_cct() -> None:
    page = (Path(__file__).parent.parent / "docs/transfer.md").read_text(encoding="utf-8")
    name, *words = " ".join(page.split()).partition("for CIFAR-10: `vitlab train ")[2].partition("`")[0].split()
    found = recognise(cct_model(CCTS["cct-7/3x1"][0], **CCTS["cct-7/3x1"][1]).state_dict(), Facts("cct"))
    assert override(recipe(name), words).model == found.model


def test_labels_and_normalisation_come_from_the_folder(tmp_path: Path) -> None:
    names = {0: "cat", 1: "dog", 2: "frog"}
    as_folder(hugging("ViTForImageClassification", **MINI, id2label=names), tmp_path)
    statistics = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(statistics))
    found = find(str(tmp_path))
    assert found.classes == ("cat", "dog", "frog")
    assert found.normalise == "imagenet"
    assert find(str(tmp_path / "model.safetensors")).classes == found.classes, "a file finds what is beside it"


def changed(folder: Path, **tensors: Tensor | None) -> str:
    """A small checkpoint under timm's names, with some weights added, changed or taken away."""
    model = timm_model("vit_tiny_patch16_224", img_size=32, depth=2)
    state = model.state_dict() | {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    save_file({name: tensor for name, tensor in state.items() if tensor is not None}, folder / "odd.safetensors")
    return str(folder / "odd.safetensors")


ODD: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "unknown": (
        {"blocks__0__attn__q_norm__weight": torch.zeros(64), "blocks__1__attn__q_norm__weight": torch.zeros(64),
         "fc_norm__weight": torch.zeros(192)},
        "vitlab has no part for blocks.*.attn.q_norm.weight (2), fc_norm.weight",
    ),
    "missing": (
        {"blocks__1__mlp__fc2__bias": None, "norm__weight": None}, "it lacks blocks.1.mlp.fc2.bias, norm.weight"
    ),
    "shape": (
        {"blocks__0__mlp__fc1__bias": torch.zeros(5), "pos_embed": torch.zeros(1, 9, 190)},
        "positions.table is (10, 190) and should be (10, 192); blocks.0.mlp.enter.bias is (5,) and should be (768,)",
    ),
    "positions": ({"pos_embed": torch.zeros(1, 7, 192)}, "7 positions are no square of patches"),
    "patches": ({"patch_embed__proj__weight": torch.zeros(192, 3, 16, 8)}, "filters of (192, 3, 16, 8): vitlab's"),
    "width": ({"patch_embed__proj__weight": torch.zeros(200, 3, 16, 16)}, "how many heads has it? A file of weights"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_does_not_fit_is_listed(case: str, tmp_path: Path) -> None:
    tensors, expected = ODD[case]
    assert expected in refusal(find, changed(tmp_path, **tensors))


def test_everything_that_does_not_fit_is_in_one_line(tmp_path: Path) -> None:
    given = changed(tmp_path, norm__weight=None, odd=torch.zeros(3), norm__bias=torch.zeros(7))
    text = refusal(find, given)
    assert text.endswith("it lacks norm.weight; vitlab has no part for odd; norm.bias is (7,) and should be (192,)")


@pytest.mark.parametrize("damage", ["gone", "number", "vector", "longer", "empty"])
@pytest.mark.parametrize("family", ["timm", "hugging", "cct"])
def test_any_damage_to_any_weight_is_one_line(family: str, damage: str, tmp_path: Path) -> None:
    if family == "timm":
        model = timm_model("deit_tiny_distilled_patch16_224", img_size=32, depth=2)
        path = Path(as_safetensors(model, tmp_path))
    elif family == "cct":
        path = Path(as_safetensors(cct_model("cct_2", img_size=16, n_conv_layers=2), tmp_path))
    else:
        path = Path(as_folder(hugging("ViTForImageClassification", **MINI), tmp_path)) / "model.safetensors"
    state = load_file(path)
    for name, tensor in state.items():
        if name.endswith("attention_pool.bias"):  # no answer depends on it, which a note says
            continue
        damaged = {
            "gone": None, "number": torch.zeros(()), "vector": tensor.flatten()[:1], "empty": torch.zeros(0, 0),
            "longer": torch.cat([tensor, tensor]),
        }[damage]  # fmt: skip
        given = state | {name: damaged}
        save_file({key: value for key, value in given.items() if value is not None}, path)
        assert refusal(find, str(path))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("nowhere.pth", "no weights at 'nowhere.pth'"),
        ("timm:vit_tiny_patch16_225=x.pth", "did you mean 'vit_tiny_patch16_"),
        ("timm:vit_tiny_patch16_224=x.pth", "cannot read x.pth"),
        ("timm:swin_tiny_patch4_window7_224=x.pth", "cannot read x.pth"),
    ],
)
def test_a_source_that_is_none_is_refused(source: str, expected: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert expected in refusal(find, source)


def test_other_models_are_refused_by_their_names(tmp_path: Path) -> None:
    save_file({"layers.0.weight": torch.zeros(2)}, tmp_path / "x.safetensors")
    assert "their names begin with layers.0.weight" in refusal(find, str(tmp_path / "x.safetensors"))
    assert "is a SwinTransformer of " in refusal(find, f"timm:swin_tiny_patch4_window7_224={tmp_path}/x.safetensors")
    assert "neither an experiment.json nor a config.json" in refusal(find, str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "dinov3"}')
    assert "did you mean 'dinov2'" in refusal(find, str(tmp_path))
    for config, expected in (
        ({"architecture": "vit_tiny_patch16_224", "model_args": {"wings": 2}}, "as its config.json says"),
        ({"architecture": "vit_tiny_patch16_224", "pretrained_cfg": 7}, "as its config.json says"),
        ({"architecture": "vit_tiny_patch16_225"}, "did you mean 'vit_tiny_patch16_"),
        ({"model_type": "vit", "num_attention_heads": "three"}, "cannot be read as a configuration of vit"),
        ([], "it should hold an object"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert expected in refusal(find, str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "vit", "hidden_act": "quick_gelu"}')
    assert "not quick_gelu" in refusal(find, str(tmp_path))


@pytest.mark.parametrize(
    "tensor", [torch.zeros(1).expand(10**6, 10**6), torch.zeros(3, 3).to_sparse(), torch.zeros(9, 9, device="meta")]
)
def test_weights_that_are_no_numbers_of_their_own_are_refused(tensor: Tensor, tmp_path: Path) -> None:
    torch.save({"norm.weight": tensor}, tmp_path / "x.pth")
    assert "norm.weight is no plain tensor" in refusal(find, str(tmp_path / "x.pth"))


@pytest.mark.parametrize("value", [float("inf"), 10**400, [0] * 10_000, {"a": []}])
@pytest.mark.parametrize("name", ["num_attention_heads", "image_size", "layer_norm_eps", "hidden_act", "id2label"])
def test_a_configuration_of_other_things_is_one_line(name: str, value: object, tmp_path: Path) -> None:
    config = {"model_type": "vit", "num_attention_heads": 2, name: value}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert len(refusal(find, str(tmp_path))) < 400


@pytest.mark.parametrize("content", ["[]", '{"weight_map": {"a": "../x.bin"}}', '{"weight_map": []}'])
def test_an_index_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit", "num_attention_heads": 2}')
    (tmp_path / "pytorch_model.bin.index.json").write_text(content)
    assert "is no index of weights" in refusal(find, str(tmp_path))


def test_a_checkpoint_that_unpacks_to_more_than_its_size_is_refused(tmp_path: Path) -> None:
    torch.save({"norm.weight": torch.zeros(1 << 20)}, tmp_path / "plain.pth")
    with ZipFile(tmp_path / "plain.pth") as plain, ZipFile(tmp_path / "packed.pth", "w", ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert len(torch.load(tmp_path / "packed.pth", weights_only=True)["norm.weight"]) == 1 << 20
    assert "it says that it holds" in refusal(find, str(tmp_path / "packed.pth"))
