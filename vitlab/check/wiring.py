"""Watch a forward pass for what is torn: pixels, cells and heads are followed by their values through every reshape."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vitlab.check.trace import LAYERS, SAME

MOVES = SAME | {"unfold", "im2col", "pixel_unshuffle"}  # numbers stay what they are, and go elsewhere
TOKENWISE = {"add", "add_", "cat", "native_layer_norm"}  # where positions, a class token or a norm meet the tokens
LEAST = 4  # tokens, heads' widths …: of fewer, one order is easily taken for another


class Wiring(TorchDispatchMode):
    """Finds tokens that are no patch, heads that are no heads, and weights that do not sum to one.

    Pictures of noise, and what layers make of them, hold no number twice: a number that was only moved is found again.
    """

    def __init__(self, pictures: Tensor):
        super().__init__()
        self.batch = len(pictures)
        self.torn: dict[str, str] = {}  # what is wrong, and what shows it
        self.whole: set[str] = set()
        self.square = ""  # tokens that cannot be told from their features
        # By a tensor's identity: what made its numbers, and the tensor that came out then.
        self.made: dict[int, tuple[str, Tensor]] = {id(pictures): ("picture", pictures)}
        self.alive: list[Tensor] = [pictures]  # so that no tensor takes another's identity

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        given = [value for value in args if isinstance(value, Tensor)]
        if name in LAYERS:
            for value in given:
                self.read(value)
        elif name == "bmm":
            self.product(*given)
        elif name.startswith("_scaled_dot_product"):
            self.whole.add("weights")
            self.heads(given[0])
            self.heads(given[2])
        elif name in TOKENWISE:
            for value in args[0] if name == "cat" else given:
                self.squares(value)
        origin = self.origin(name, given, args, result)
        if origin is not None:
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, Tensor):
                    self.made[id(tensor)] = origin
                    self.alive.append(tensor)
                    self.cells(tensor, origin)
        return result

    def origin(self, name: str, given: list[Tensor], args: Any, result: Any) -> tuple[str, Tensor] | None:
        """What made the numbers of a result, and the tensor to find them in; none where that is not followed."""
        if given and all(self.is_weight(value) for value in given):
            return "learned", given[0]
        if name in MOVES:
            return self.made.get(id(given[0])) if given else None
        return self.new(name, given, args, result)

    def new(self, name: str, given: list[Tensor], args: Any, result: Any) -> tuple[str, Tensor] | None:
        first = result[0] if isinstance(result, tuple | list) else result
        if name == "convolution" and result.ndim == 4:
            return "cells", result
        if name in ("mm", "addmm"):
            return "layer", result
        if name in ("_softmax", "_safe_softmax"):
            return "weights", first.sum(dim=args[1])
        if name.startswith("_scaled_dot_product") or (name == "bmm" and any(self.kind(v) == "weights" for v in given)):
            return "mixed", first.flatten(0, -3) if first.ndim > 2 else first
        return None

    def kind(self, value: Tensor) -> str:
        return self.made[id(value)][0] if id(value) in self.made else ""

    def is_weight(self, value: Tensor) -> bool:
        """A weight of the model, or something made of weights alone."""
        return isinstance(value, nn.Parameter) or self.kind(value) == "learned"

    def read(self, value: Tensor) -> None:
        """What a layer takes: patches of pixels, or what attention mixed."""
        kind, source = self.made.get(id(value), ("", value))
        rows = value.reshape(-1, value.shape[-1])
        if kind == "picture" and value.numel() == source.numel() and len(rows) >= LEAST * self.batch:
            self.patches(rows, source)
        elif kind == "mixed" and value.numel() == source.numel():
            self.joined(rows, source)

    def patches(self, rows: Tensor, pictures: Tensor) -> None:
        """Each row of pixels must be a box of the picture."""
        places = found(rows, pictures)
        if places is None:
            return
        picture, channel, y, x = torch.unravel_index(places, pictures.shape)
        one = (picture == picture[:, :1]).all(dim=1)
        sides = [side.amax(dim=1) - side.amin(dim=1) + 1 for side in (y, x)]
        channels = torch.tensor([len(set(row)) for row in channel.tolist()], device=rows.device)
        box = one & (channels * sides[0] * sides[1] == rows.shape[1])
        self.note(
            "patches",
            int((~box).sum()),
            f"{int((~box).sum()) // self.batch} of {len(rows) // self.batch} tokens are made of {rows.shape[1]} pixels "
            "that are no patch of the picture",
        )

    def cells(self, tensor: Tensor, origin: tuple[str, Tensor]) -> None:
        """Tokens from a convolution's (b, d, y, x): each must be all numbers of one place."""
        kind, made = origin
        if kind != "cells" or tensor.ndim != 3 or tensor is made:
            return
        b, width, count = *made.shape[:2], made.shape[2] * made.shape[3]
        if tensor.shape != (b, count, width) or count == width or min(count, width) < LEAST:
            return
        places = found(tensor[0], made)
        if places is not None:
            _, _, y, x = torch.unravel_index(places, made.shape)
            torn = int(((y != y[:, :1]) | (x != x[:, :1])).any(dim=1).sum())
            self.note("cells", torn, f"{torn} of {count} tokens hold numbers of several places of the convolution")

    def squares(self, value: Tensor) -> None:
        """As many cells as features, and a row is one feature: a transpose is missing, or tokens are mixed as meant."""
        kind, made = self.made.get(id(value), ("", value))
        count = value.shape[-1]
        if kind != "cells" or value.shape != (len(made), count, count) or made.shape[1] != count:
            return
        places = found(value[0], made)
        if places is not None and bool((places % count != places[:, :1] % count).any()):
            self.square = (
                f"{count} cells of a convolution with {count} numbers each are used with the features as rows: either "
                "flatten(2) without transpose(1, 2), or meant so"
            )

    def product(self, first: Tensor, second: Tensor) -> None:
        for value, other, axis in ((first, second, -1), (second, first, -2)):
            kind, sums = self.made.get(id(value), ("", value))
            if kind == "weights" and not self.is_weight(other) and value.shape[axis] >= LEAST:
                rounding = float((sums - 1).abs().max())
                apart = float((value.sum(dim=axis) - 1).abs().max())
                wrong = apart > max(1e-4, 20 * rounding)
                self.note("weights", wrong, f"the weights by which values are summed up add up to 1 ± {apart:.2g}")
            self.heads(value)

    def heads(self, value: Tensor) -> None:
        """A matrix of queries or values: each row a part of one token, and of another token in each row."""
        kind, made = self.made.get(id(value), ("", value))
        matrices = value.flatten(0, -3)
        if kind != "layer" or len(matrices) <= self.batch or min(matrices.shape[1:]) < 2:
            return
        places = found(matrices[0], made)
        if places is None:
            return
        tokens = places // made.shape[-1]
        if bool((tokens == tokens[:, :1]).all()):  # else it is attention between channels
            twice = len(tokens) - len(tokens[:, 0].unique())
            self.note("heads", twice, f"a head of {len(tokens)} tokens holds parts of {len(tokens) - twice} only")

    def joined(self, rows: Tensor, mixed: Tensor) -> None:
        """A token after attention: of each head's matrix one row, or one column between channels."""
        places = found(rows[0], mixed)
        if places is None or min(mixed.shape[1:]) < 2:
            return
        matrix, y, x = torch.unravel_index(places, mixed.shape)
        mine = matrix == matrix[0]
        torn = len(y[mine].unique()) > 1 and len(x[mine].unique()) > 1
        self.note("join", torn, f"after attention a token holds {len(y[mine].unique())} tokens' parts of one head")

    def note(self, what: str, wrong: int | bool, measured: str) -> None:
        if wrong:
            self.torn.setdefault(what, measured)
        else:
            self.whole.add(what)


def found(values: Tensor, source: Tensor) -> Tensor | None:
    """Where in the source each value stands; none where one is missing, or a number occurs twice."""
    ordered, places = source.detach().flatten().sort()
    if bool((ordered[1:] == ordered[:-1]).any()):
        return None
    at = torch.searchsorted(ordered, values.detach().contiguous()).clamp(max=len(ordered) - 1)
    return places[at] if bool((ordered[at] == values).all()) else None
