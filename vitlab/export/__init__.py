"""Our models out: each format is written, loaded again, run and compared with the model before it is kept."""

from vitlab.export.hub import Hub
from vitlab.export.onnx import Onnx
from vitlab.export.subject import Answer, Kept, Mismatch, Subject, Target, export
from vitlab.export.torch_export import TorchExport

Format = Onnx | TorchExport | Hub

__all__ = ["Answer", "Format", "Hub", "Kept", "Mismatch", "Onnx", "Subject", "Target", "TorchExport", "export"]
