"""What of the pictures reaches the output: neighbours, pixels, places."""

from collections import Counter
from math import gcd
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.check.finding import Finding, Picture, fine, unknown
from vitlab.check.subject import Subject, first_of
from vitlab.data import Sample

WAYS = ("everywhere", "up and down", "left and right")
BLOCKS = 4  # to a side, into which pixels without a gradient are parted
BATCH = 3  # small and odd: few models have three tokens


def neighbours(subject: Subject) -> Finding:
    """Exchange all pictures of a batch but the first, and look at the first one's output and at every layer's."""
    with subject.lent(shaken=True) as precision, torch.no_grad():
        here = subject.pictures(BATCH, dtype=precision)
        there = torch.cat([here[:1], subject.pictures(BATCH - 1, seed=1, dtype=precision)])
        first, second = subject.answer(here), subject.answer(there)
        if subject.apart(first, subject.answer(here)) > subject.tolerance:
            return unknown("the output depends on what was asked before, so neighbours cannot be told from that")
        moved = float((first[0] - second[0]).abs().max())
        share = moved / (subject.spread(torch.cat([first, second])) or float(first.abs().max()) or 1.0)
        where = first_that_mixes(subject, here, there)
    measured = f"with other neighbours a picture's output moves by {share:.1e} of what another picture would move it"
    if share <= subject.tolerance and not where:
        return fine(measured)
    place = f" The first layer that mixes them is {where}." if where else ""
    if share <= subject.tolerance:
        measured = f"with other neighbours the output does not move, but inside, at {where}, a picture's features do"
    return Finding(
        "mistake",
        measured,
        "A prediction depends on which other pictures are in the batch: something works along the batch that should "
        f"work along the tokens, or takes statistics of the batch.{place}",
        "Report R4's attention ran across the batch: as written its model reaches 10.00 %, mended 64.85 %.",
        "nn.MultiheadAttention and nn.TransformerEncoderLayer take (tokens, batch, width) unless batch_first=True; "
        "your own attention must sum over the token axis; use LayerNorm, or BatchNorm in evaluation mode.",
    )


def first_that_mixes(subject: Subject, here: Tensor, there: Tensor) -> str:
    """The first layer whose features for the first picture change although only its neighbours did."""
    larger = torch.cat([here, here[:1]])
    runs = [features(subject, pictures) for pictures in (here, there, larger)]
    for call, one in runs[0].items():
        two, three = runs[1].get(call, one), runs[2].get(call, one)
        if one.shape != two.shape or one.ndim != three.ndim or not one.is_floating_point():
            continue
        for axis in (0, 1):  # wherever the batch is: (batch, tokens, width) or (tokens, batch, width)
            if one.shape[axis] == len(here) and three.shape[axis] == len(larger):
                mine, with_others = one.select(axis, 0), two.select(axis, 0)
                size = float(mine.square().mean().sqrt())
                if float((mine - with_others).abs().max()) > subject.tolerance * max(size, 1e-30):
                    return f"{call[0]} ({type(subject.model.get_submodule(call[0])).__name__})"
    return ""


def features(subject: Subject, pictures: Tensor) -> dict[tuple[str, int], Tensor]:
    """Each layer's output by its name and how often it was called before, in the order in which they are made."""
    seen: dict[tuple[str, int], Tensor] = {}
    calls: Counter[str] = Counter()
    hooks = []
    for name, module in subject.model.named_modules():
        if not name:
            continue

        def keep(module: nn.Module, given: object, output: object, name: str = name) -> None:
            tensor = first_of(output)
            if isinstance(tensor, Tensor) and tensor.ndim > 1:
                seen[name, calls[name]] = tensor.detach().clone()
                calls[name] += 1

        hooks.append(module.register_forward_hook(keep))
    try:
        subject.answer(pictures)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def reach(subject: Subject) -> Finding:
    """Which pixels have a gradient; those that have none are changed, to see whether the output moves."""
    with subject.lent(shaken=True) as precision:
        pictures = subject.pictures(8, dtype=precision).requires_grad_()
        strength = pixel_gradients(subject.answer(pictures), pictures)
    dark = strength == 0
    if dark.any():  # shaken, a model that chooses where it looks may look elsewhere
        with subject.lent() as precision:
            pictures = subject.pictures(8, dtype=precision).requires_grad_()
            dark &= pixel_gradients(subject.answer(pictures), pictures) == 0
    with subject.lent(shaken=True) as precision, torch.no_grad():
        dead = unseen(subject, dark, precision)
    size = strength.sum(dim=0)
    picture = Picture("how strongly each pixel moves the output", as_rows(size / (size.max() or 1)))
    total, lost = dead.numel(), int(dead.sum())
    if dark.all() and not lost:
        return unknown(
            f"none of {total:,} pixels has a gradient, and yet the output moves with them: they are rounded, detached "
            "or go through numpy; which of them are seen cannot be told"
        )
    if not lost:
        return fine(f"every one of {total:,} pixels moves the output", picture)
    channels = len(dead) > 1 and int(dead.flatten(1).all(dim=1).sum())
    measured = f"{lost:,} of {total:,} pixels can be changed at will and the output stays the same to the last digit"
    measured += f"; {channels} of {len(dead)} channels are not seen at all" if channels else ""
    if lost == total:
        return Finding(
            "mistake",
            measured,
            "The output does not depend on the picture at all: the token that is read never meets a patch.",
            "The accuracy is that of always naming one class: 10 % for ten, as in reports R0 (two scales) and R4.",
            "Join the class token to the patches before the blocks, not after them; attend along the tokens, not along "
            "the batch (batch_first=True).",
            (picture,),
        )
    if lost < total / 5 and is_an_edge(subject, dead):
        return Finding(
            "warning",
            measured + ("; the shape was guessed: give it with --shape" if subject.guessed else ""),
            "A part of the picture is never seen, mostly because the patch does not divide the picture's side.",
            "What lies there cannot help; on centred digits it rarely matters.",
            "Choose a patch that divides height and width, or pad the picture.",
            (picture,),
        )
    return Finding(
        "mistake",
        measured,
        f"{'Much' if lost >= total / 5 else 'A part'} of the picture never reaches the output: tokens are dropped, or "
        "the token that is read does not attend to the others.",
        "The model judges by the rest.",
        "Read a class token or the mean, after blocks whose attention runs along the tokens; look at the slices in "
        "forward.",
        (picture,),
    )


def unseen(subject: Subject, dark: Tensor, precision: torch.dtype) -> Tensor:
    """Of pixels without a gradient those that change nothing, asked all at once, or else one block after the other."""
    pictures, others = (subject.pictures(8, seed=seed, dtype=precision) for seed in range(2))
    outputs = subject.answer(pictures)

    def moves(pixels: Tensor) -> bool:
        changed = subject.answer(torch.where(pixels, others, pictures))
        return not torch.equal(changed, outputs) and subject.apart(outputs, changed) > subject.tolerance

    if not dark.any() or not moves(dark):
        return dark
    dead = torch.zeros_like(dark)
    if outputs.unique().numel() < outputs.numel():  # rounded outputs stay as they are, where little is changed
        return dead
    rows, columns = (torch.arange(side, device=dark.device) * BLOCKS // side for side in dark.shape[1:])
    for place in range(BLOCKS**2):
        block = dark & (rows[:, None] * BLOCKS + columns == place)
        if block.any() and not moves(block):
            dead |= block
    return dead


def is_an_edge(subject: Subject, dead: Tensor) -> bool:
    """Whether the pixels that are seen are one rectangle, and what is cut off may be what a patch leaves over."""
    seen = ~dead
    rows, columns = (seen.any(dim=0).any(dim=axis).nonzero().flatten() for axis in (1, 0))
    box = torch.zeros_like(seen)
    box[:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = True
    if not torch.equal(box, seen):
        return False
    sides = [side for module in subject.model.modules() for side in sides_of(module)]
    uneven = any(isinstance(side, tuple) and len(set(side)) > 1 for side in sides)
    height, width = dead.shape[1:]
    return height != width or len(rows) == len(columns) or uneven  # square patches leave as much over on either side


def sides_of(module: nn.Module) -> list[object]:
    return [getattr(module, name, None) for name in ("kernel_size", "stride", "output_size", "patch_size")]


def pixel_gradients(outputs: Tensor, pictures: Tensor) -> Tensor:
    """(c, y, x): the size of the outputs' gradient at each pixel, over pictures."""
    if not outputs.requires_grad:
        return torch.zeros_like(pictures[0])
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
    (gradient,) = torch.autograd.grad((outputs * direction).sum(), pictures, allow_unused=True)
    return torch.zeros_like(pictures[0]) if gradient is None else gradient.abs().sum(dim=0)


def positions(subject: Subject) -> Finding:
    """Lay the blocks of a picture in another order.

    A model that does not know where patches of p pixels lie does not know it of blocks of any multiple of p either, so
    the largest blocks are enough to find it; the smallest that are not noticed then tell the patch.
    """
    _, height, width = subject.shape
    with subject.lent(shaken=True) as precision, torch.no_grad():
        pictures = subject.pictures(2, dtype=precision)
        outputs = subject.answer(pictures)
        if subject.alike(outputs):
            return unknown("the output is the same for every picture, so nothing can be said of places in it")

        def shift(moved: Tensor) -> float:
            return subject.apart(outputs, subject.answer(moved))

        def move(block: tuple[int, int], way: str) -> float | None:
            moved = shuffle(pictures, block, way)
            return None if moved is None else shift(moved)

        shares = {(block, way): move(block, way) for block in large_blocks(height, width) for way in WAYS}
        known = {key: share for key, share in shares.items() if share is not None}
        if not known:
            return unknown(f"a picture of {height} × {width} cannot be cut into equal blocks")
        for (block, way), share in known.items():
            if share <= subject.tolerance:
                smallest = next(
                    (b for b in parts_of(block) if (found := move(b, way)) is not None and found <= subject.tolerance),
                    block,
                )
                moved = shuffle(pictures, smallest, way)
                assert moved is not None
                others = torch.where(moved == pictures, pictures, subject.pictures(2, seed=1, dtype=precision))
                if shift(others) <= subject.tolerance:
                    return unknown("the blocks that were moved do not reach the output, wherever they lie")
                return blind_to_places(smallest, way, share, a_digit(height, width))
    return fine(f"laying blocks in another order moves the output by at least {min(known.values()):.1e} of the spread")


def blind_to_places(block: tuple[int, int], way: str, share: float, digit: Tensor) -> Finding:
    after = shuffle(digit, block, way)
    assert after is not None
    size = f"{block[0]} × {block[1]}" if block[0] != block[1] else f"{block[0]}"
    where = "" if way == "everywhere" else f" {way}"
    return Finding(
        "mistake",
        f"blocks of {size} pixels laid in another order{where} leave the output as it was (moved by {share:.1e} of the "
        "spread)",
        "The model sees which patches there are, not where they lie: there are no positions, or what is called so is "
        "made of the patch's own pixels, or is the same for every token.",
        "In one student's report (R1 in docs/reports.md) this cost 5.85 points of MNIST; R3's model has the same gap.",
        "Add a learned table nn.Parameter(torch.randn(1, tokens, width) * 0.02), or a sinusoidal one, to the tokens "
        "before the first block.",
        (
            Picture("a picture", as_rows(digit[0, 0]), "picture"),
            Picture("to this model, the same picture", as_rows(after[0, 0]), "picture"),
        ),
    )


def a_digit(height: int, width: int) -> Tensor:
    """A picture to show: on noise nobody sees what was moved."""
    picture = Sample().load(Path()).test.pictures[:1].double() / 255
    return F.interpolate(picture, (height, width), mode="nearest")


def large_blocks(height: int, width: int) -> list[tuple[int, int]]:
    """Blocks that are a prime part of the picture: any patch that divides it divides one of them; and a quarter's."""
    common = gcd(height, width)
    squares = [common // parts for parts in (*primes_of(common), 4) if common % parts == 0]
    halves = [(height // 2, width // 2)] * (height % 2 == 0 and width % 2 == 0)
    return list(dict.fromkeys([*((side, side) for side in squares), *halves, *[(common, common)] * (height != width)]))


def primes_of(number: int) -> list[int]:
    return [p for p in range(2, number + 1) if number % p == 0 and all(p % q for q in range(2, p))]


def parts_of(block: tuple[int, int]) -> list[tuple[int, int]]:
    """The smaller blocks of the same form that divide a block, smallest first."""
    common = gcd(*block)
    return [(block[0] // n, block[1] // n) for n in range(common, 1, -1) if common % n == 0]


def shuffle(pictures: Tensor, block: tuple[int, int], way: str) -> Tensor | None:
    """The blocks moved round in a cycle, up and down, left and right or both; none where there are too few.

    The first and the last block stay where they are: a model that reads one of them alone knows which that is. Of four
    blocks three go round: two that change places could mirror the picture, which distances alone do not tell.
    """
    rows, columns = pictures.shape[-2] // block[0], pictures.shape[-1] // block[1]
    cut = pictures.unflatten(-2, (rows, block[0])).unflatten(-1, (columns, block[1]))  # (b, c, rows, y, columns, x)
    cut = cut.permute(2, 4, 0, 1, 3, 5).clone()
    if way == "up and down":
        inner = cut[:, 1:-1] if columns > 2 else cut[1:-1]
        axis, enough = 0, (rows > 1 and columns > 2) or rows > 3
    elif way == "left and right":
        inner = cut[1:-1] if rows > 2 else cut[:, 1:-1]
        axis, enough = 1, (columns > 1 and rows > 2) or columns > 3
    else:
        last = rows * columns - (rows * columns > 4)
        inner, axis, enough = cut.flatten(0, 1)[1:last], 0, rows * columns > 3
    if not enough:
        return None
    if way == "everywhere":
        order = torch.randperm(len(inner), generator=torch.Generator().manual_seed(0))
        moved = inner[order.roll(1)][order.argsort()]  # one round through all of them, none stays
        flat = cut.flatten(0, 1)
        cut = torch.cat([flat[:1], moved, flat[len(moved) + 1 :]]).unflatten(0, (rows, columns))
    else:
        inner.copy_(inner.roll(1, axis))
    return cut.permute(2, 3, 0, 4, 1, 5).flatten(2, 3).flatten(-2)


def as_rows(values: Tensor) -> tuple[tuple[float, ...], ...]:
    """At most 64 rows and columns, by means over blocks; rounded, since it is for the eye."""
    shrink = -(-max(values.shape) // 64)
    small = (
        nn.functional.avg_pool2d(values.detach()[None].double(), shrink, ceil_mode=True)[0] if shrink > 1 else values
    )
    return tuple(tuple(round(float(value), 4) for value in row) for row in small)
