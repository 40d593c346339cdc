"""Our models out: each format is written, loaded again, run and compared with the model before it is kept."""

from vitlab.export.hub import Hub
from vitlab.export.libraries import HuggingFace, Timm
from vitlab.export.onnx import Onnx
from vitlab.export.subject import Answer, Kept, Mismatch, Subject, Target, export
from vitlab.export.torch_export import TorchExport

Format = Onnx | TorchExport | Timm | HuggingFace | Hub

__all__ = [
    "Answer", "Format", "Hub", "HuggingFace", "Kept", "Mismatch", "Onnx", "Subject", "Target", "Timm", "TorchExport",
    "export",
]  # fmt: skip
