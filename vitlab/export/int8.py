"""Weights in 8 bits: a quarter of the file, activations and arithmetic as they were."""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from vitlab.export.subject import needed
from vitlab.model import Network


@torch.no_grad()
def rounded(network: Network) -> Network:
    """w ← s·round(w / s), s = max |w| / 127 over each output feature of each Linear and convolution."""
    twin = deepcopy(network)
    for part in twin.modules():
        if isinstance(part, nn.Linear | nn.Conv2d):
            scale = part.weight.abs().flatten(1).amax(dim=1).clamp(min=1e-30) / 127
            scale = scale.view(-1, *[1] * (part.weight.dim() - 1))
            part.weight.copy_((part.weight / scale).round() * scale)
    return twin


def pack(model: Any) -> None:
    """Store the rounded weights of an ONNX model as int8 with a scale, behind a DequantizeLinear each.

    The rows of a rounded matrix are whole multiples of max |w| / 127 already, so nothing changes but the file.
    """
    (onnx,) = needed("onnx")
    graph = model.graph
    stored = {weight.name: weight for weight in graph.initializer}
    done: set[str] = set()
    for node in list(graph.node):
        if node.op_type not in ("MatMul", "Gemm", "Conv") or node.input[1] not in stored:
            continue
        name = node.input[1]
        node.input[1] = f"{name}_float"
        if name in done:
            continue
        done.add(name)
        turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        weight = onnx.numpy_helper.to_array(stored[name])
        axis = (0 if turned or node.op_type == "Conv" else -1) % weight.ndim
        others = tuple(place for place in range(weight.ndim) if place != axis)
        scale = np.maximum(np.abs(weight).max(axis=others, keepdims=True), np.float32(1e-30)) / np.float32(127)
        stored[name].CopyFrom(onnx.numpy_helper.from_array(np.rint(weight / scale).astype(np.int8), name))
        graph.initializer.append(onnx.numpy_helper.from_array(scale.reshape(-1), f"{name}_scale"))
        inputs = [name, f"{name}_scale"]
        graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", inputs, [f"{name}_float"], axis=axis))
