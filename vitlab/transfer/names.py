"""Other people's names for our weights: one table per family, read in both directions."""

from dataclasses import dataclass, replace

Pairs = tuple[tuple[tuple[str, ...], str], ...]


@dataclass(frozen=True)
class Family:
    """One way to name the weights of a Vision Transformer; {i} is the number of the block, or of the convolution."""

    title: str
    prefixes: tuple[str, ...]  # that may stand before every name of the encoder
    layers: Pairs  # theirs ↔ ours, each with .weight and .bias; several of theirs are the rows of one of ours
    scales: Pairs  # the same, of single vectors
    tokens: tuple[tuple[str, ...], ...]  # class token, distillation token, registers, under any of these names
    positions: str
    heads: tuple[str, ...]  # of the class token, of the distillation token
    beside: tuple[tuple[str, str], ...]  # beginnings of names that no answer depends on, and what they are
    epsilon: float = 1e-6  # of the norms, where nothing says


TIMM = Family(
    title="timm's names (also those of DINO, DINOv2 and MAE as published)",
    prefixes=(),
    layers=(
        (("patch_embed.proj",), "tokens.embed"),
        (("blocks.{i}.norm1",), "blocks.{i}.norm_attention"),
        (("blocks.{i}.attn.qkv",), "blocks.{i}.attention.qkv"),
        (("blocks.{i}.attn.proj",), "blocks.{i}.attention.out"),
        (("blocks.{i}.norm2",), "blocks.{i}.norm_mlp"),
        (("blocks.{i}.mlp.fc1",), "blocks.{i}.mlp.enter"),
        (("blocks.{i}.mlp.fc2",), "blocks.{i}.mlp.leave"),
        (("norm",), "norm"),
    ),
    scales=(
        (("blocks.{i}.ls1.gamma",), "blocks.{i}.end_attention.scale"),
        (("blocks.{i}.ls2.gamma",), "blocks.{i}.end_mlp.scale"),
    ),
    tokens=(("cls_token",), ("dist_token",), ("reg_token", "register_tokens")),
    positions="pos_embed",
    heads=("head", "head_dist"),
    beside=(
        ("mask_token", "what pretraining put in the place of hidden patches"),
        ("decoder", "MAE's decoder, used in pretraining only"),
        ("head.mlp.", "DINO's projection head, used in pretraining only"),
        ("head.last_layer.", "DINO's projection head, used in pretraining only"),
    ),
)

VIT = Family(
    title="the names of Hugging Face's ViT, DeiT and ViTMAE",
    prefixes=("vit.", "deit."),
    layers=(
        (("embeddings.patch_embeddings.projection",), "tokens.embed"),
        (("encoder.layer.{i}.layernorm_before",), "blocks.{i}.norm_attention"),
        (
            tuple(f"encoder.layer.{{i}}.attention.attention.{part}" for part in ("query", "key", "value")),
            "blocks.{i}.attention.qkv",
        ),
        (("encoder.layer.{i}.attention.output.dense",), "blocks.{i}.attention.out"),
        (("encoder.layer.{i}.layernorm_after",), "blocks.{i}.norm_mlp"),
        (("encoder.layer.{i}.intermediate.dense",), "blocks.{i}.mlp.enter"),
        (("encoder.layer.{i}.output.dense",), "blocks.{i}.mlp.leave"),
        (("layernorm",), "norm"),
    ),
    scales=(),
    tokens=(("embeddings.cls_token",), ("embeddings.distillation_token",), ()),
    positions="embeddings.position_embeddings",
    heads=("classifier", "distillation_classifier"),
    beside=(
        ("embeddings.mask_token", "what pretraining put in the place of hidden patches"),
        ("pooler.", "a layer after the class token that no classifier of the library reads"),
        ("decoder.", "MAE's decoder, used in pretraining only"),
    ),
)

TAUGHT = replace(VIT, heads=("cls_classifier", "distillation_classifier"))

DINOV2 = Family(
    title="the names of Hugging Face's DINOv2",
    prefixes=("dinov2.", "dinov2_with_registers."),
    layers=(
        VIT.layers[0],
        (("encoder.layer.{i}.norm1",), "blocks.{i}.norm_attention"),
        *VIT.layers[2:4],
        (("encoder.layer.{i}.norm2",), "blocks.{i}.norm_mlp"),
        (("encoder.layer.{i}.mlp.fc1",), "blocks.{i}.mlp.enter"),
        (("encoder.layer.{i}.mlp.fc2",), "blocks.{i}.mlp.leave"),
        (("layernorm",), "norm"),
    ),
    scales=(
        (("encoder.layer.{i}.layer_scale1.lambda1",), "blocks.{i}.end_attention.scale"),
        (("encoder.layer.{i}.layer_scale2.lambda1",), "blocks.{i}.end_mlp.scale"),
    ),
    tokens=(("embeddings.cls_token",), (), ("embeddings.register_tokens",)),
    positions=VIT.positions,
    heads=(),
    beside=(
        VIT.beside[0],
        ("classifier.", "logits of the class token and the patches' mean side by side, which is no head of vitlab's"),
    ),
)

GATED = replace(
    DINOV2,
    layers=(
        *DINOV2.layers[:5],
        (("encoder.layer.{i}.mlp.weights_in",), "blocks.{i}.mlp.enter"),
        (("encoder.layer.{i}.mlp.weights_out",), "blocks.{i}.mlp.leave"),
        DINOV2.layers[-1],
    ),
)

CCT = Family(
    title="the names of CCT as published, and of vit-pytorch's",
    prefixes=("classifier.",),
    layers=(
        (("tokenizer.conv_layers.{i}.0",), "tokens.see.{i}"),
        (("blocks.{i}.pre_norm",), "blocks.{i}.norm_attention"),
        (("blocks.{i}.self_attn.qkv",), "blocks.{i}.attention.qkv"),
        (("blocks.{i}.self_attn.proj",), "blocks.{i}.attention.out"),
        (("blocks.{i}.norm1",), "blocks.{i}.norm_mlp"),
        (("blocks.{i}.linear1",), "blocks.{i}.mlp.enter"),
        (("blocks.{i}.linear2",), "blocks.{i}.mlp.leave"),
        (("norm",), "norm"),
    ),
    scales=((("attention_pool.weight",), "head.ask"),),
    tokens=((), (), ()),
    positions="positional_emb",
    heads=("fc",),
    beside=(("attention_pool.bias", "a bias of all tokens alike, which the softmax over them takes away"),),
    epsilon=1e-5,
)
