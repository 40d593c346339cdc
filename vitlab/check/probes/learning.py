"""Whether it can learn: gradients, first weights, depth, and one batch by heart."""

import time
from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.check.finding import Finding, Picture, fine, unknown
from vitlab.check.subject import NotFinite, Subject, answer_of, first_of

MOST = 1e3  # how much features or gradients may grow or shrink from the first block to the last
STEPS, SECONDS = 300, 10.0  # of learning one batch by heart
FEW = 4  # outputs of a layer without gradient below which none is suspected: a ReLU may be off for all pictures
RATES = (1e-3, 3e-4, 3e-3)
STUCK = 150  # steps after which a rate is given up that has not brought half of them


def gradients(subject: Subject) -> Finding:
    """One backward pass in evaluation and one in training mode; a weight without gradient in both is not learned."""
    named = {name: parameter for name, parameter in subject.model.named_parameters() if parameter.requires_grad}
    if not named:
        return unknown("no weight is to be learned")
    without = set(named)
    linear = (f"{name}.weight" for name, module in subject.model.named_modules() if type(module) is nn.Linear)
    still = {name: torch.ones(len(named[name]), dtype=torch.bool) for name in linear if name in named}
    for training in (False, True):
        with subject.lent(shaken=True, training=training) as precision:
            pictures = subject.pictures(8, dtype=precision)
            returned = subject.call(pictures)
            loss = loss_of(answer_of(returned), subject.labels(8)) + others_of(returned)
            if loss.requires_grad:
                loss.backward()
            without -= {name for name, p in named.items() if p.grad is not None and bool(p.grad.any())}
            for name in still:
                if (gradient := named[name].grad) is not None:
                    still[name] &= ~gradient.any(dim=1).cpu()
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


def unused_rows(subject: Subject, still: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a layer's outputs that have no gradient those that change nothing, however large: a ReLU's may only be off."""
    unused = {}
    for name, rows in still.items():
        with subject.lent(shaken=True) as precision, torch.no_grad():
            pictures = subject.pictures(4, dtype=precision)
            before, layer = subject.answer(pictures), subject.model.get_submodule(name.removesuffix(".weight"))
            assert isinstance(layer, nn.Linear)
            if layer.bias is not None:
                layer.bias[rows] = 0
            generator, effect = torch.Generator().manual_seed(0), False
            for _ in range(3):
                noise = torch.randn(layer.weight[rows].shape, generator=generator, dtype=torch.float64)
                layer.weight[rows] = noise.to(layer.weight)
                effect = effect or not torch.equal(before, subject.answer(pictures))
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
        "layer of which one is not read.",
        "The model learns with the rest; a part you count on may be missing.",
        "Look at how the output is split, and that each of the parts is used once.",
    )


def others_of(given: Any) -> Tensor | float:
    """What a model gives beside its logits may have a loss of its own: here the mean square of each."""
    values = given.values() if isinstance(given, dict) else given if isinstance(given, tuple | list) else ()
    return sum(
        (v.square().mean() for v in values if isinstance(v, Tensor) and v.is_floating_point() and v.requires_grad), 0.0
    )


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy; of a single logit that of yes and no, since among one class there is nothing to choose."""
    if outputs.shape[-1] == 1:
        return F.binary_cross_entropy_with_logits(outputs, torch.zeros_like(outputs))
    return F.cross_entropy(outputs, labels)


def copies(subject: Subject) -> Finding:
    """Compare the weights of layers of one kind that follow each other; and look for one that is listed twice."""
    for name, module in subject.model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            learned = [part for part in module if any(True for _ in part.parameters())]
            if len({id(part) for part in learned}) < len(learned):
                return one_for_many(name, learned)
    stacks = stacks_of(subject.model)
    if not stacks:
        return unknown("no stack of like blocks was found")
    for stack in stacks:
        drawn = [
            [p for p in block.parameters() if p.numel() > 1 and bool((p != p.flatten()[0]).any())] for block in stack
        ]
        alike = [d for d in drawn[1:] if drawn[0] and len(d) == len(drawn[0]) and same(drawn[0], d)]
        if alike:
            return Finding(
                "warning",
                f"{len(alike) + 1} of {len(stack)} blocks ({type(stack[0]).__name__}) start with the very same weights",
                "nn.TransformerEncoder copies one layer, so every block starts alike.",
                "In report R4's model it made no clear difference over 3 seeds.",
                "Draw each block's weights anew, for instance nn.init.xavier_uniform_ on every matrix.",
            )
    return fine(f"the {max(map(len, stacks))} blocks start with weights of their own")


def one_for_many(name: str, parts: list[nn.Module]) -> Finding:
    kinds = len({id(part) for part in parts})
    return Finding(
        "warning",
        f"{name or 'the model'} lists {len(parts)} layers, but {kinds} of their own: some are one and the same object",
        "[Block()] * n makes n names for one block: every depth uses, and learns, the same weights.",
        "The model has fewer weights than its depth says, and learns less with them.",
        "Write [Block() for _ in range(n)]; where you mean to share, call one block several times.",
    )


def same(first: list[nn.Parameter], second: list[nn.Parameter]) -> bool:
    return all(a is not b and a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, second, strict=True))


def stacks_of(model: nn.Module) -> list[list[nn.Module]]:
    """Layers of one class and size that are parts of no larger such layers: most weights first."""
    alike: dict[tuple, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        sizes = tuple(parameter.shape for parameter in module.parameters())
        if sizes and any(True for _ in module.children()) and not isinstance(module, nn.ModuleList | nn.ModuleDict):
            alike[type(module), sizes].append(module)
    stacks = [stack for stack in alike.values() if len(stack) > 1]
    inside = {id(part) for stack in stacks for block in stack for part in block.modules() if part is not block}
    outer = [stack for stack in stacks if id(stack[0]) not in inside]
    return sorted(outer, key=lambda stack: sum(p.numel() for block in stack for p in block.parameters()), reverse=True)


def depth(subject: Subject) -> Finding:
    """The size of features after each block, and of the loss's gradient there, with the weights as they are."""
    stacks = stacks_of(subject.model)
    if not stacks:
        return unknown("no stack of like blocks was found")
    with subject.lent() as precision:
        seen: list[Tensor | None] = []
        hooks = [
            block.register_forward_hook(lambda _, __, output: seen.append(keep_gradient(output))) for block in stacks[0]
        ]
        try:
            outputs = subject.answer(subject.pictures(8, dtype=precision))
            loss_of(outputs, subject.labels(8)).backward()
        finally:
            for hook in hooks:
                hook.remove()
        kept = [features for features in seen if features is not None]
        sizes = [root_mean_square(features) for features in kept]
        steep = [root_mean_square(features.grad) for features in kept if features.grad is not None]
    bars = (
        Picture("size of the features after each block", (tuple(sizes),), "bars"),
        Picture("size of the gradient after each block", (tuple(steep),), "bars"),
    )
    if len(sizes) < 2:
        return unknown("the blocks were not called one after the other")
    growth = ratio(sizes[-1], sizes[0])
    fading = ratio(steep[0], steep[-1]) if len(steep) > 1 and steep[-1] else 1.0
    measured = (
        f"from the first of {len(sizes)} blocks to the last the features change in size by a factor of {growth:.3g}; "
        f"going back, the gradient by {fading:.3g}"
    )
    if all(1 / MOST <= value <= MOST for value in (growth, fading)):
        return Finding("fine", measured, evidence=bars)
    return Finding(
        "mistake",
        measured,
        "Features or gradients explode or vanish with depth: some blocks learn a thousand times faster than others.",
        "Training needs tiny steps, or does nothing for the blocks whose gradient has faded.",
        "Add the residual connections x + f(norm(x)), a LayerNorm before each branch and Xavier's first weights.",
        bars,
    )


def keep_gradient(output: object) -> Tensor | None:
    features = first_of(output)
    if not isinstance(features, Tensor):
        return None
    if features.requires_grad:
        features.retain_grad()
    return features


def root_mean_square(values: Tensor) -> float:
    return float(values.detach().double().square().mean().sqrt())


def ratio(first: float, second: float) -> float:
    return first / second if second else float("inf") if first else 1.0


def overfit(subject: Subject) -> Finding:
    """Learn 32 pictures of noise with labels drawn at random; a model that can learn at all knows them soon."""
    pictures, labels = subject.pictures(32, seed=2), subject.labels(32)
    if subject.classes < 2 or not any(parameter.requires_grad for parameter in subject.model.parameters()):
        return unknown("there is nothing to learn")
    rates = RATES[:1] if blind(subject, pictures) else RATES
    started, best, lowest, steps, in_time = time.monotonic(), 0.0, float("inf"), 0, True
    for rate in rates:
        left = SECONDS - (time.monotonic() - started)
        if left <= 0:
            in_time = False
            break
        know, loss, used, in_time = by_heart(subject, pictures, labels, rate, left)
        best, lowest, steps = max(best, know), min(lowest, loss), steps + used
        if best >= 0.9:
            return fine(f"{best:.0%} of 32 pictures of noise known by heart after {steps} steps (loss {lowest:.2f})")
    measured = f"after {steps} steps of AdamW {best:.0%} of 32 pictures are known (lowest loss {lowest:.2f})"
    learned = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
    if learned < subject.weights / 2:
        return unknown(f"most weights are frozen, and the rest may be too few: {measured}")
    if not in_time:
        return unknown(f"too slow to say: {measured} in {time.monotonic() - started:.0f} s")
    return Finding(
        "mistake",
        measured,
        "A model that cannot learn one batch by heart will not learn a data set: gradients, outputs or first weights "
        "are wrong.",
        "It stops far below what its size could reach.",
        "Look at the other findings first; then at the learning rate, the loss and the residual connections.",
    )


def blind(subject: Subject, pictures: Tensor) -> bool:
    """Whether the answer is the same for every picture, to the last bit: then no rate can teach it."""
    with subject.lent(torch.float32, shaken=True), torch.no_grad():
        try:
            answers = subject.answer(pictures)
        except NotFinite:
            return False
    return bool((answers == answers[0]).all())


def by_heart(
    subject: Subject, pictures: Tensor, labels: Tensor, rate: float, seconds: float
) -> tuple[float, float, int, bool]:
    """The share known (in evaluation mode) and the loss after learning one batch, the steps, and if time sufficed."""
    started, know, losses = time.monotonic(), 0.0, [float("inf")]
    with subject.lent(torch.float32, training=True):
        model = subject.model
        optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.0)
        for step in range(STEPS):
            if time.monotonic() - started > seconds:
                return know, min(losses), step, False
            try:
                loss = loss_of(subject.answer(pictures, seed=step), labels)
            except NotFinite:  # this rate is too high
                break
            if not loss.requires_grad:
                break
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(float(loss.detach()))
            if step % 10 == 9:
                know = max(know, known_of(subject, pictures, labels))
            if know >= 0.9 or (step > STUCK and know < 0.5):
                break
    return know, min(losses), len(losses) - 1, True


@torch.no_grad()
def known_of(subject: Subject, pictures: Tensor, labels: Tensor) -> float:
    subject.model.eval()
    try:
        return float((subject.answer(pictures).argmax(1) == labels).double().mean())
    except NotFinite:
        return 0.0
    finally:
        subject.model.train()
