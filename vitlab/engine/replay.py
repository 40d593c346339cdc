"""A step recorded once as a CUDA graph: its hundreds of small kernels are launched as one."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM = 3  # calls that are really made before one is recorded, so that nothing is allocated or chosen while recording


class Replays:
    """Calls `work` on tensors of a few shapes, each with a recording of its own."""

    def __init__(self, work: Callable[..., object]):
        self.work = work
        self.of: dict[tuple[torch.Size, ...], Replay] = {}

    def __call__(self, *given: Tensor) -> None:
        shapes = shapes_of(given)
        if shapes not in self.of:
            self.of[shapes] = Replay(self.work)
        self.of[shapes](*given)


def shapes_of(given: Sequence[Tensor]) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in given)


class Replay:
    """Calls `work` on tensors of one shape: the first times as it is, then recorded, and from there on replayed.

    Random draws follow the default generator's seed as it is at each replay, so a step still draws from (seed, step).
    """

    def __init__(self, work: Callable[..., object]):
        self.work = work
        self.calls = 0
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()
        self.given: list[Tensor] = []

    def __call__(self, *given: Tensor) -> None:
        if self.calls < WARM:
            self.beside(*given)
        else:
            if self.calls == WARM:
                self.record(given)
            for place, tensor in zip(self.given, given, strict=True):
                place.copy_(tensor)
            self.graph.replay()
        self.calls += 1

    def beside(self, *given: Tensor) -> None:
        """A real call on the stream that recording will use."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.work(*given)
        torch.cuda.current_stream().wait_stream(self.stream)

    def record(self, given: tuple[Tensor, ...]) -> None:
        self.given = [tensor.clone() for tensor in given]
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.work(*self.given)
