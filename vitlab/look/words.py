"""What a look says, in words: for drawings, pages and the terminal."""

import math

from torch import Tensor

from vitlab.data.words import counted
from vitlab.look.heat import NAMES
from vitlab.look.inside import Inside, Seen
from vitlab.look.shown import Look
from vitlab.look.trust import Trust


def said(look: Look, place: int) -> str:
    """What the model says of a picture: "7, 99.8 %", and the truth where it is another."""
    guess, truth = look.guesses[place], look.shown[place].truth
    text = f"{look.classes[guess]}, {percent(float(look.probabilities[place, guess]))}"
    return text if truth is None or truth == guess else f"{text} (true class: {look.classes[truth]})"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.9995 or share == 1 else "> 99.9 %"


def name_of(seen: Inside, stream: Seen) -> str:
    """Which stream of a model: nothing where there is only one."""
    if len(seen.streams) == 1:
        return ""
    if stream is seen.streams[-1]:
        return "all scales together"
    grid = stream.layout.grids[0]
    return f"patches of {seen.shape.height // grid.rows}×{seen.shape.width // grid.columns} pixels"


def apart(stream: Seen, row: Tensor) -> str:
    """The share of a row's strength that lies on the class token and on registers, stated apart from the patches."""
    shares = (row.abs() / row.abs().sum().clamp(min=1e-30))[: stream.layout.extra].tolist()
    has_class = "class" in stream.names
    said = [f"class {100 * shares[0]:.0f} %"] if has_class else []
    registers = shares[has_class:]
    return ", ".join(said + ([f"registers {100 * sum(registers):.0f} %"] if registers else []))


def sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def target_words(look: Look) -> str:
    """Which class relevance is about."""
    targets = look.target.tolist()
    if targets == look.guesses:
        return "the class it names"
    return f"the class {look.classes[targets[0]]}" if len(set(targets)) == 1 else "the class that was asked for"


def describe_look(look: Look, calibrated: bool = False) -> list[str]:
    """For the terminal: what looks, how true the maps are, and what the model says of each picture, block by block."""
    sizes = [
        f"{counted(stream.attention.shape[1], 'layer')} of {counted(stream.attention.shape[2], 'head')}"
        for stream in look.attending
    ]
    true = "exactly" if look.gap == 0 else f"to within {look.gap:.0e} of the largest number"
    lines = [
        f"attention {look.looking}; {', '.join(sizes)}",
        f"maps verified: map × values gives every layer's own tokens, {true}",
    ]
    if look.blind:
        lines.append("what is read has met no patch: nothing of the picture reaches the answer")
    before = " (before calibration)" if calibrated else ""
    for place, shown in enumerate(look.shown):
        lines.append(f"{shown.name}: {said(look, place)}{before}{f'; {shown.note}' if shown.note else ''}")
        best = [(int(row.argmax()), float(row.softmax(dim=-1).max())) for row in look.lens[place]]
        named = [f"{look.classes[label]} ({share:.0%})" for label, share in best]
        stages = ["input", *(f"block {block}" for block in range(1, len(named)))]
        lines.append("  logit lens: " + ", ".join(f"{stage} {what}" for stage, what in zip(stages, named, strict=True)))
    return lines


def describe_trust(trust: Trust) -> list[str]:
    """For the terminal: how far each map is ahead of random order."""
    many = counted(trust.count, "picture")
    lines = [
        f"do the maps mean anything? on {many}, lead over deleting and inserting patches in random order, in points:",
        f"  {'':24}{'deletion':14}{'insertion':14}",
    ]
    for kind, name in NAMES.items():
        leads = [lead(*figures) for figures in trust.leads(kind).values()]
        lines.append(f"  {name:24}{leads[0]:14}{leads[1]:14}{trust.verdict(kind)}")
    return lines


def lead(mean: float, half: float) -> str:
    """Points ahead, and half the interval where there is one."""
    return f"{100 * mean:+5.1f}" + ("" if math.isnan(half) else f" ± {100 * half:.1f}")
