"""Whether it can learn: first weights, depth, and one batch by heart."""

import time
from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitlab.check.finding import Finding, Picture, fine, unknown
from vitlab.check.probes.gradients import cannot_be_trained, loss_of, no_way_back
from vitlab.check.subject import NotFinite, Subject, first_of

MOST = 1e3  # how much features or gradients may grow or shrink from the first block to the last
STEPS, SECONDS = 300, 10.0  # of learning one batch by heart
RATES = (1e-3, 3e-4, 3e-3)
STUCK = 150  # steps after which a rate is given up that has not brought half of them


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


@dataclass(frozen=True)
class Lesson:
    """One batch learned at one rate: the share known in evaluation mode, the lowest loss, and how it ended."""

    known: float
    loss: float
    steps: int
    in_time: bool = True
    alike: bool = False  # the outputs stayed the same for every picture


def overfit(subject: Subject) -> Finding:
    """Learn 32 pictures of noise with labels drawn at random; a model that can learn at all knows them soon."""
    pictures, labels = subject.pictures(32, seed=2), subject.labels(32)
    if subject.classes < 2 or not any(parameter.requires_grad for parameter in subject.model.parameters()):
        return unknown("there is nothing to learn")
    if trouble := no_way_back(subject):
        return cannot_be_trained(trouble)
    rates = RATES[:1] if blind(subject, pictures) else RATES
    since, lessons = now(), list[Lesson]()
    for rate in rates:
        lessons.append(by_heart(subject, pictures, labels, rate, SECONDS - spent(since)))
        if lessons[-1].known >= 0.9 or not lessons[-1].in_time:
            break
    best, lowest = max(lesson.known for lesson in lessons), min(lesson.loss for lesson in lessons)
    steps = sum(lesson.steps for lesson in lessons)
    if best >= 0.9:
        return fine(f"{best:.0%} of 32 pictures of noise known by heart after {steps} steps (loss {lowest:.2f})")
    measured = f"after {steps} steps of AdamW {best:.0%} of 32 pictures are known (lowest loss {lowest:.2f})"
    learned = sum(p.numel() for p in subject.model.parameters() if p.requires_grad)
    if learned < subject.weights / 2:
        return unknown(f"most weights are frozen, and the rest may be too few: {measured}")
    if not lessons[-1].in_time:
        return unknown(f"too slow to say: {measured} in {spent(since):.0f} s")
    return never_apart(steps) if all(lesson.alike for lesson in lessons) else not_known(measured)


def not_known(measured: str) -> Finding:
    return Finding(
        "mistake",
        measured,
        "A model that cannot learn one batch by heart will not learn a data set: gradients, outputs or first weights "
        "are wrong.",
        "It stops far below what its size could reach.",
        "Look at the other findings first; then at the learning rate, the loss and the residual connections.",
    )


def never_apart(steps: int) -> Finding:
    return Finding(
        "mistake",
        f"in training the outputs are the same for all of 32 pictures, to the last digit, and still are after {steps} "
        "steps of AdamW",
        "Nothing of a picture reaches the output while it learns: first weights that are zero all the way, dropout "
        "that takes everything, or a token that never meets a patch.",
        "It names one class for every picture, however long it learns.",
        "Let weights start from small random numbers, with zeros in one place of a path at most, and drop 0.1 or less.",
    )


def now() -> tuple[float, float]:
    return time.thread_time(), time.monotonic()


def spent(since: tuple[float, float]) -> float:
    """Seconds of work: of this thread, for a busy machine is not the model's fault; of those it only waits a third."""
    return max(time.thread_time() - since[0], (time.monotonic() - since[1]) / 3)


def blind(subject: Subject, pictures: Tensor) -> bool:
    """Whether the answer is the same for every picture, to the last bit: then no rate can teach it."""
    with subject.lent(torch.float32, shaken=True), torch.no_grad():
        try:
            answers = subject.answer(pictures)
        except NotFinite:
            return False
    return bool((answers == answers[0]).all())


def by_heart(subject: Subject, pictures: Tensor, labels: Tensor, rate: float, seconds: float) -> Lesson:
    """Learn one batch at one rate, until it is known, or shows that it will not be."""
    since, know, losses, alike = now(), 0.0, [float("inf")], True
    with subject.lent(torch.float32, training=True):
        model = subject.model
        optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.0)
        for step in range(STEPS):
            if spent(since) > seconds:
                return Lesson(know, min(losses), step, in_time=False)
            try:
                outputs = subject.answer(pictures, seed=step)
            except NotFinite:  # this rate is too high
                break
            loss = loss_of(outputs, labels)
            if not loss.requires_grad:
                break
            alike = alike and bool((outputs == outputs[0]).all())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(float(loss.detach()))
            if step % 10 == 9:
                know = max(know, known_of(subject, pictures, labels))
                if alike:
                    return Lesson(know, min(losses), step + 1, alike=True)
            if know >= 0.9 or (step > STUCK and know < 0.5):
                break
    return Lesson(know, min(losses), len(losses) - 1)


@torch.no_grad()
def known_of(subject: Subject, pictures: Tensor, labels: Tensor) -> float:
    subject.model.eval()
    try:
        return float((subject.answer(pictures).argmax(1) == labels).double().mean())
    except NotFinite:
        return 0.0
    finally:
        subject.model.train()
