"""Models of timm and transformers, made small: what a sound Vision Transformer may look like."""

PLAIN = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2}
HEADS = PLAIN | {"num_heads": 4}
WINDOWS = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
STAGES = {"img_size": 64, "embed_dims": (16, 32, 48, 64), "depths": (1, 1, 2, 1), "num_heads": (1, 2, 2, 4)}

TIMM = {
    "vit_tiny_patch16_224": PLAIN,
    "vit_base_patch16_clip_224": HEADS,
    "vit_so150m_patch16_reg4_gap_256": HEADS,
    "vit_relpos_small_patch16_224": HEADS,
    "vit_srelpos_small_patch16_224": HEADS,
    "vit_small_patch16_rope_224": HEADS,
    "vit_small_patch16_18x2_224": HEADS,
    "deit_tiny_patch16_224": PLAIN,
    "deit_tiny_distilled_patch16_224": PLAIN,
    "deit3_small_patch16_224": HEADS,
    "beit_base_patch16_224": HEADS,
    "beitv2_base_patch16_224": HEADS,
    "eva02_tiny_patch14_224": HEADS,
    "flexivit_small": HEADS,
    "cait_xxs24_224": HEADS,
    "xcit_nano_12_p16_224": HEADS,
    "convit_tiny": HEADS | {"depth": 4, "local_up_to_layer": 2},
    "swin_tiny_patch4_window7_224": WINDOWS,
    "swinv2_tiny_window8_256": WINDOWS,
    "twins_svt_small": STAGES,
    "twins_pcpvt_small": STAGES,
    "crossvit_tiny_240": {
        "img_size": 48, "embed_dim": (24, 48), "depth": ((1, 2, 0), (1, 2, 0)), "img_scale": (1.0, 1.0),
        "num_heads": (2, 4),
    },
    "pit_ti_224": {
        "img_size": 32, "patch_size": 4, "stride": 2, "base_dims": (16, 16, 16), "depth": (1, 2, 1), "heads": (1, 2, 4),
    },
    "tnt_s_patch16_224": {
        "img_size": 32, "embed_dim": 48, "inner_dim": 12, "depth": 2, "num_heads_inner": 2, "num_heads_outer": 4,
    },
    "visformer_tiny": {"img_size": 64, "embed_dim": 48, "depth": (1, 2, 1)},
    "hiera_tiny_224": {"img_size": (64, 64), "embed_dim": 24, "stages": (1, 1, 2, 1)},
}  # fmt: skip

TRANSFORMERS = {
    "vit": {
        "image_size": 32, "patch_size": 8, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96,
    },
}  # fmt: skip


def side_of(arguments: dict) -> int:
    size = arguments.get("img_size") or arguments["image_size"]
    return size if isinstance(size, int) else size[0]
