"""Whether patches, heads and weights stay whole on their way through the model."""

from vitlab.check.finding import Finding, fine, unknown
from vitlab.check.subject import Subject, seeded
from vitlab.check.trace import plainly
from vitlab.check.wiring import Wiring

# What is torn: what it means, and how to mend it.
MEANINGS = {
    "patches": (
        "Pixels are reshaped in the order in which they lie in memory: strips, or pixels from all over the picture.",
        "b c (y p) (x q) → b (y x) (c p q): a view alone does not cut patches; use F.unfold(x, p, stride=p).mT, or "
        "nn.Conv2d(c, d, p, stride=p)(x).flatten(2).transpose(1, 2).",
    ),
    "cells": (
        "A convolution gives (b, d, y, x); reshaped to (b, y·x, d) at once, a token gets one feature of many places.",
        "embed(x).flatten(2).transpose(1, 2): flatten, then exchange the axes.",
    ),
    "heads": (
        "(b, n, d) is reshaped to (b, h, n, d/h) at once: a head gets some tokens' heads, not one head of all tokens.",
        "x.view(b, n, h, d // h).transpose(1, 2).",
    ),
    "join": (
        "(b, h, n, d/h) is reshaped to (b, n, d) at once: a token gets several tokens' parts of one head.",
        "(weights @ values).transpose(1, 2).reshape(b, n, d).",
    ),
    "weights": (
        "The softmax runs along another axis than the one that is summed over: tokens, heads or pictures compete "
        "instead of the keys, and what a token takes from the others is no mean of them.",
        "softmax(dim=-1) of scores of (…, queries, keys), before weights @ values.",
    ),
}


def torn(subject: Subject) -> Finding:
    """Follow pixels, features and weights of attention by their values, through every view and reshape."""
    with subject.lent(shaken=True) as precision, plainly(), seeded(0, subject.device):
        pictures = subject.pictures(2, dtype=precision)
        with Wiring(pictures) as wiring:
            subject.model(pictures)
    if wiring.torn:
        meanings = [MEANINGS[what] for what in wiring.torn]
        return Finding(
            "mistake",
            "; ".join(wiring.torn.values()),
            " ".join(meaning for meaning, _ in meanings),
            "It learns all the same, and less: what belongs together is taken apart before the first weight.",
            " ".join(remedy for _, remedy in meanings),
        )
    if wiring.square:
        return unknown(wiring.square)
    if not wiring.whole:
        return unknown("no patches, heads or weights of attention were seen whose numbers could be followed")
    return fine(f"followed by their numbers, these are whole: {', '.join(sorted(wiring.whole))}")
