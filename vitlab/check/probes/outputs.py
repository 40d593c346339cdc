"""What the outputs are: logits, or something that cross-entropy should not be given."""

from math import exp, log

import torch
from torch import Tensor

from vitlab.check.finding import Finding, fine, unknown
from vitlab.check.subject import Subject
from vitlab.check.trace import Scores, watched

LOUD = 1e3  # by how much weights are amplified
LOW = 0.1  # a floor of the loss that a training comes to
# What no logits are: what is seen of it, and what makes it.
NOT_LOGITS = {
    "probabilities": ("all outputs have one sign and the same sum for every picture at any scale", "A softmax"),
    "shares from 0 to 1": (
        "all outputs lie between 0 and 1, at any scale of the pictures",
        "A sigmoid, or something else that bounds them to 0…1,",
    ),
    "no negative numbers": ("no output is negative, and some are exactly 0, at any scale of the pictures", "A ReLU"),
}
SCALES = (1.0, 10.0, 100.0)  # by which the pictures are multiplied: logits grow with them, what is bounded does not


def output(subject: Subject) -> Finding:
    """Look at the outputs in training mode, which is what the loss is given, for pictures at several scales."""
    classes = subject.classes
    if classes < 2:
        return unknown("one output only: nothing tells a probability from a logit")
    with torch.no_grad():
        with subject.lent(shaken=True, training=True) as precision:
            learning = outputs_of(subject, precision)
        with subject.lent(shaken=True) as precision:
            judging = outputs_of(subject, precision)
    if subject.alike(judging):
        return unknown("the output is the same for every picture")
    kind = kind_of(learning)
    if kind == "log-probabilities":
        return fine("the outputs are log-probabilities: the softmax that cross-entropy takes of them changes nothing")
    if kind != "logits":
        return not_logits(kind, classes)
    return bad_logits(subject, learning, judging) or fine(
        "the outputs are logits: of both signs, and their sum is free"
        if kind_of(judging) == "logits"
        else f"logits in training mode; in evaluation mode {kind_of(judging)}, which harms nothing"
    )


def bad_logits(subject: Subject, learning: Tensor, judging: Tensor) -> Finding | None:
    """What else may have been done to logits: some of them dropped, or all of them bounded."""
    if dropped(learning) and not bool((judging == 0).any()):
        return dropped_logits(float((learning == 0).double().mean()))
    low, high = bounds(subject)
    return bounded(low, high, subject.classes) if floor_of(subject.classes, high - low) > LOW else None


def floor_of(classes: int, widest: float) -> float:
    """The cross-entropy of an answer that is right, where no two logits are further apart than `widest`."""
    return log(1 + (classes - 1) * exp(-widest))


def not_logits(kind: str, classes: int) -> Finding:
    measured, what = NOT_LOGITS[kind]
    if kind == "no negative numbers":
        return Finding(
            "mistake",
            measured,
            f"{what} after the last layer: a class whose logit is below 0 gets no gradient, and stays wrong.",
            "The loss of a picture whose own class is cut off cannot fall through it.",
            "Let the last layer be a Linear, with nothing after it.",
        )
    return Finding(
        "mistake",
        measured,
        f"{what} inside the model, and a softmax inside cross-entropy on top of it: for {classes} classes the loss "
        f"cannot fall below {floor_of(classes, 1.0):.2f}, and the gradient fades as the model becomes sure.",
        "In one student's report (R1 in docs/reports.md) this cost 2.88 points of MNIST.",
        "Return the logits; take softmax where you want to read probabilities, not where you learn.",
    )


def bounds(subject: Subject) -> tuple[float, float]:
    """The numbers that outputs end at, however large one tensor of weights is; infinite where they grow with it."""
    found = (float("-inf"), float("inf"))
    with subject.lent(shaken=True) as precision, torch.no_grad():
        pictures = subject.pictures(4, dtype=precision)
        usual = float(subject.answer(pictures).abs().max())
        for weight in reversed([p for p in subject.model.parameters() if p.requires_grad and p.is_floating_point()]):
            kept = weight.clone()
            weight.mul_(LOUD)
            try:
                outputs = subject.answer(pictures)
            except Exception:  # whatever a stranger's model raises of such numbers, or they are not finite
                return float("-inf"), float("inf")
            finally:
                weight.copy_(kept)
            low, high = float(outputs.min()), float(outputs.max())
            if max(-low, high) > LOUD / 10 * usual:
                return float("-inf"), float("inf")
            at_an_end = torch.minimum(outputs - low, high - outputs) < 1e-3 * (high - low)
            if float(at_an_end.double().mean()) > 0.9:
                found = low, high
    return found


def bounded(low: float, high: float, classes: int) -> Finding:
    return Finding(
        "mistake",
        f"all outputs end at {low:.3g} and {high:.3g}, however large the weights",
        f"Something bounds them (a tanh, mostly): for {classes} classes the cross-entropy cannot fall below "
        f"{floor_of(classes, high - low):.2f}, and its gradient fades as the model becomes sure.",
        "The model cannot say that it is sure, and pushes its weights for ever.",
        "Return the logits as the last Linear gives them; a bound of 10 and more would do no harm.",
    )


def dropped(outputs: Tensor) -> bool:
    """Whether some outputs of a picture are exactly 0 and others are not, and for other pictures other ones."""
    zero = outputs == 0
    return bool((zero.any(dim=1) & ~zero.all(dim=1)).any()) and not bool((zero == zero[0]).all())


def dropped_logits(share: float) -> Finding:
    return Finding(
        "mistake",
        f"in training mode {share:.0%} of the outputs are exactly 0, in evaluation mode none",
        "A Dropout after the last layer: a logit that is dropped says that its class is neither likely nor unlikely.",
        "The loss of a picture whose own class is dropped cannot fall, and training aims at this noise.",
        "Put the Dropout before the last Linear, and nothing after it.",
    )


def outputs_of(subject: Subject, precision: torch.dtype) -> Tensor:
    pictures = subject.pictures(4, dtype=precision)
    return torch.cat([subject.answer(pictures * scale) for scale in SCALES])


def kind_of(outputs: Tensor) -> str:
    close, sums = 1e-4, outputs.sum(dim=1)
    fixed = bool((sums - sums[0]).abs().max() < close * sums[0].abs())
    if fixed and (float(outputs.min()) >= 0 or float(outputs.max()) <= 0):
        return "probabilities"  # perhaps times a number
    if float(outputs.min()) >= 0:
        quiet = outputs[: len(outputs) // len(SCALES)]
        if float(outputs.max()) <= 1 and not bool((quiet == 0).any()):  # a ReLU's may be small
            return "shares from 0 to 1"
        return "no negative numbers" if bool((outputs == 0).any()) else "logits"
    if float(outputs.max()) <= close and bool((outputs.exp().sum(dim=1) - 1).abs().max() < close):
        return "log-probabilities"
    return "logits"


def scale(subject: Subject) -> Finding:
    """Follow every product of queries and keys to its softmax, and compare its factor with 1/√(width of a head)."""
    with subject.lent(torch.float32), watched() as watch:
        subject.answer(subject.pictures(2))
    if not watch.found:
        return unknown("no softmax over products of queries and keys was seen")
    wrong = [scores for scores in watch.found if not fits(scores)]
    settled = [scores for scores in watch.found if right(scores) or not (scores.learned or scores.lost)]
    if wrong:
        return wrongly_scaled(wrong[0], len(wrong), len(watch.found))
    if not settled:
        why = "is learned" if watch.found[0].learned else "could not be followed all the way"
        return unknown(f"the factor of the scores {why}; what was seen of it is {watch.found[0].factor:.3g}")
    if not all(right(scores) for scores in settled):
        return unknown("scores are scaled by the number of keys' root, as attention between channels is")
    width = settled[0].width
    return fine(
        f"scores are multiplied by 1/√{width}, where a head is {width} wide, in each of {len(settled)} products"
    )


def right(scores: Scores) -> bool:
    return abs(scores.factor * scores.width**0.5 - 1) < 0.01


def fits(scores: Scores) -> bool:
    """Right, or not to be judged: learned, or attention between channels, which scales by the other side's width."""
    between_channels = abs(scores.factor * scores.keys**0.5 - 1) < 1e-3  # 65 tokens are no width of 64
    return scores.learned or scores.lost or right(scores) or between_channels


def wrongly_scaled(scores: Scores, count: int, total: int) -> Finding:
    by = "not scaled at all" if abs(scores.factor - 1) < 0.01 else f"multiplied by {scores.factor:.4g}"
    root = 1 / scores.factor**2 if scores.factor else 0.0
    if abs(root - round(root)) < 0.01 * root and round(root) > 1:
        by = f"divided by √{round(root)}"
    if abs(scores.factor * scores.width - 1) < 0.01:
        return Finding(
            "warning",
            f"in {count} of {total} products the scores are divided by {scores.width}, a head's width, not by its root",
            "Attention is flatter than in the usual form; where one learning rate serves all widths (muP) it is meant.",
            "At the start every token looks almost evenly at all.",
            f"Divide by √{scores.width}, unless you mean it.",
        )
    wide, ratio = scores.width, scores.factor * scores.width**0.5
    size = (
        f"{1 / ratio:.3g} times too small: attention is flatter than meant"
        if ratio < 1
        else (f"{ratio:.3g} times too large: the softmax picks one token, and its gradient fades")
    )
    return Finding(
        "mistake",
        f"in {count} of {total} products the scores are {by}, where a head is {wide} wide",
        f"Products of queries and keys of {wide} numbers have a spread of √{wide}; divided by that they are about 1. "
        f"Here they are {size}.",
        "Report R1 scaled by the whole width; over 5 seeds that made no clear difference (0.35 ± 0.99 points). "
        "The factor is the root of the number of heads.",
        f"Divide the scores by √{wide}, the width of one head, or use F.scaled_dot_product_attention.",
    )
