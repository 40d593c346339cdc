"""The parts of a Vision Transformer, one idea per file, and the two models built of them."""

from vitlab.model.layout import Shape
from vitlab.model.multiscale import MultiScale, MultiScaleTransformer
from vitlab.model.stream import Maps, Stream
from vitlab.model.vit import VisionTransformer, ViT

Model = ViT | MultiScale
Network = VisionTransformer | MultiScaleTransformer

__all__ = [
    "Maps",
    "Model",
    "MultiScale",
    "MultiScaleTransformer",
    "Network",
    "Shape",
    "Stream",
    "ViT",
    "VisionTransformer",
]
