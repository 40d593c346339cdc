"""Whether every weight learns: a backward pass, and what is left without a gradient."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.check.finding import Finding, fine, unknown
from vitlab.check.subject import NotFinite, Subject, answer_of, first_line, tensors_in

DROPS = (nn.MultiheadAttention, nn.modules.dropout._DropoutNd)
FEW = 4  # outputs of a layer without gradient below which none is suspected: a ReLU may be off for all pictures


def gradients(subject: Subject) -> Finding:
    """One backward pass in evaluation and one in training mode; a weight without gradient in both is not learned."""
    named = {name: parameter for name, parameter in subject.model.named_parameters() if parameter.requires_grad}
    if not named:
        return unknown("no weight is to be learned")
    if trouble := no_way_back(subject):
        return cannot_be_trained(trouble)
    without, still = left_out(subject, named)
    frozen = sum(not parameter.requires_grad for parameter in subject.model.parameters())
    unused = {} if without else unused_rows(subject, {name: rows for name, rows in still.items() if rows.sum() >= FEW})
    if unused:
        return never_read(unused)
    if not without:
        kept = f"; {frozen} more are frozen (requires_grad=False) and stay as they are" if frozen else ""
        return fine(f"each of {len(named)} weight tensors receives a gradient{kept}")
    shown = ", ".join(sorted(without)[:4]) + (f" and {len(without) - 4} more" if len(without) > 4 else "")
    return Finding(
        "mistake",
        f"{len(without)} of {len(named)} weight tensors receive no gradient: {shown}",
        "They are never used, or what they do never reaches the loss: they stay as they started.",
        "The model learns with the rest; a part you count on may be missing.",
        "Use each of them in forward, or remove it; look for detach(), .data, torch.no_grad() and tokens that nobody "
        "reads.",
    )


def left_out(subject: Subject, named: dict[str, nn.Parameter]) -> tuple[set[str], dict[str, Tensor]]:
    """The weights that get no gradient in either mode, and of the others the rows of matrices that get none."""
    without = set(named)
    still = {name: torch.ones(len(named[name]), dtype=torch.bool) for name in matrices(subject.model) if name in named}
    for training in (False, True):
        with subject.lent(shaken=True, training=training) as precision:
            for module in subject.model.modules():
                if isinstance(module, DROPS):
                    module.eval()  # what is dropped gives a gradient to what would make no difference
            returned = subject.call(subject.pictures(8, dtype=precision))
            loss = loss_of(answer_of(returned), subject.labels(8)) + others_of(returned)
            if loss.requires_grad:
                loss.backward()
            without -= {name for name, p in named.items() if p.grad is not None and bool(p.grad.any())}
            line = line_of(precision, [p.grad for p in named.values() if p.grad is not None])
            for name in still:
                if (gradient := named[name].grad) is not None:
                    still[name] &= (gradient.abs().amax(dim=1) <= line).cpu()
    return without, still


def no_way_back(subject: Subject) -> str:
    """What one of two backward passes raises as they are made in training: its mode, single precision."""
    with subject.lent(torch.float32, training=True):
        for step in range(2):
            try:
                loss = loss_of(subject.answer(subject.pictures(8), seed=step), subject.labels(8))
            except NotFinite:
                return ""
            try:
                if loss.requires_grad:
                    loss.backward()
            except RuntimeError as error:
                return "" if "alloc" in str(error) or "out of memory" in str(error) else first_line(error)
    return ""


def cannot_be_trained(trouble: str) -> Finding:
    return Finding(
        "mistake",
        f"cannot be trained: loss.backward() raises {trouble}",
        "The answer can be computed, its gradient cannot: mostly a tensor that it needs was changed in place.",
        "The first step of training stops with this error.",
        "Write x = x + y and x = x * y in place of x += y, x *= y and x[:] = y; give no inplace=True to what works on "
        "a tensor that is used again.",
    )


def matrices(model: nn.Module) -> Iterator[str]:
    """The names of weights whose rows make a layer's outputs."""
    for name, module in model.named_modules():
        if type(module) is nn.Linear:
            yield f"{name}.weight"
        elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            yield f"{name}.in_proj_weight"


def line_of(precision: torch.dtype, gradients: list[Tensor]) -> float:
    """The size up to which a gradient may be what rounding leaves of none; in single precision that cannot be told."""
    largest = max((float(gradient.abs().max()) for gradient in gradients), default=0.0)
    return 1e-15 * largest if precision == torch.float64 else 0.0


def unused_rows(subject: Subject, still: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a layer's outputs that have no gradient those that change nothing, however large: a ReLU's may only be off."""
    unused = {}
    for name, rows in still.items():
        with subject.lent(shaken=True) as precision, torch.no_grad():
            pictures, named = subject.pictures(4, dtype=precision), dict(subject.model.named_parameters())
            before, weight = subject.answer(pictures), named[name]
            if (bias := named.get(name.removesuffix("weight") + "bias")) is not None:
                bias[rows] = 0
            generator, effect = torch.Generator().manual_seed(0), False
            for _ in range(3):
                weight[rows] = torch.randn(weight[rows].shape, generator=generator, dtype=torch.float64).to(weight)
                after = subject.answer(pictures)
                double = precision == torch.float64
                effect = effect or (subject.apart(before, after) > 1e-12 if double else not torch.equal(before, after))
        if not effect:
            unused[name] = rows
    return unused


def never_read(unused: dict[str, Tensor]) -> Finding:
    name, rows = next(iter(unused.items()))
    first, last = int(rows.nonzero()[0]), int(rows.nonzero()[-1])
    more = f", and of {len(unused) - 1} more" if len(unused) > 1 else ""
    return Finding(
        "mistake",
        f"{int(rows.sum())} of the {len(rows)} outputs of {name.removesuffix('.weight')} are never used "
        f"(between {first} and {last}){more}: whatever their weights, the model answers the same",
        "A part of what the layer makes is dropped: a head that is not joined, or queries, keys or values of a joint "
        "layer of which one is not read; or queries and keys of tokens that are all alike by then.",
        "The model learns with the rest; a part you count on may be missing.",
        "Look at how the output is split, and that each of the parts is used once.",
    )


def others_of(given: Any) -> Tensor | float:
    """What a model gives beside its logits may have a loss of its own: here the mean square of each."""
    learned = (values for values in tensors_in(given) if values.is_floating_point() and values.requires_grad)
    return sum((values.square().mean() for values in learned), 0.0)


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy; of a single logit that of yes and no, since among one class there is nothing to choose."""
    if outputs.shape[-1] == 1:
        return F.binary_cross_entropy_with_logits(outputs, torch.zeros_like(outputs))
    return F.cross_entropy(outputs, labels)
