"""Triton kernels of attention over few tokens: a head of a picture is one program, which keeps all of it in registers.

Imported only where there is a GPU. b pictures, h heads, n tokens, e = 2 · HALF features of a head. A tile has ROWS
tokens, n or more, and queries and keys are held as halves of COLUMNS features, HALF or more, since positions turn the
pairs (i, i + HALF); what is beyond is 0.
"""

import triton
import triton.language as tl


@triton.jit
def load(start, rows, columns, n, most, step):
    """Tokens `step` numbers apart, `most` features of each, in float32."""
    inside = (rows[:, None] < n) & (columns[None, :] < most)
    return tl.load(start + rows[:, None] * step + columns[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store(start, tile, rows, columns, n, most, step):
    inside = (rows[:, None] < n) & (columns[None, :] < most)
    tl.store(start + rows[:, None] * step + columns[None, :], tile.to(start.dtype.element_ty), mask=inside)


@triton.jit
def one_over_length(first, second, epsilon, HALF: tl.constexpr):
    """1 / √(mean square + ε) of each token."""
    return tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / (2 * HALF) + epsilon)[:, None]


@triton.jit
def turned(first, second, cosine, sine):
    return first * cosine - second * sine, second * cosine + first * sine


@triton.jit
def shares(q1, q2, k1, k2, columns, n, scale):
    """softmax(QKᵀ · scale) in float32, (ROWS, ROWS)."""
    scores = tl.dot(q1, tl.trans(k1)) + tl.dot(q2, tl.trans(k2))
    scores = tl.where(columns[None, :] < n, scores * (scale * 1.4426950408889634), float("-inf"))
    raised = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return raised / tl.sum(raised, 1)[:, None]


@triton.jit
def angles(cosines, sines, rows, columns, n, HALF: tl.constexpr):
    return load(cosines, rows, columns, n, HALF, HALF), load(sines, rows, columns, n, HALF, HALF)


@triton.jit
def ready(
    start, cosines, sines, rows, columns, n, step, epsilon,
    NORM: tl.constexpr, TURN: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Queries or keys as they are compared: normalised and turned, in halves, and what normalised them."""
    first, second = load(start, rows, columns, n, HALF, step), load(start + HALF, rows, columns, n, HALF, step)
    length = one_over_length(first, second, epsilon, HALF)
    if NORM:
        first, second = first * length, second * length
    if TURN:
        cosine, sine = angles(cosines, sines, rows, columns, n, HALF)
        first, second = turned(first, second, cosine, sine)
    return first.to(start.dtype.element_ty), second.to(start.dtype.element_ty), length


@triton.jit
def give_back(
    start, first, second, d1, d2, length, cosines, sines, rows, columns, n, step,
    NORM: tl.constexpr, TURN: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """The gradient (d1, d2) of ready queries or keys (first, second), through turn and norm, into `start`."""
    if NORM:  # a turn keeps lengths and products, so the norm's share is found before it is undone
        first, second = first.to(tl.float32), second.to(tl.float32)
        along = (tl.sum(d1 * first, 1) + tl.sum(d2 * second, 1))[:, None] / (2 * HALF)
        d1, d2 = (d1 - first * along) * length, (d2 - second * along) * length
    if TURN:
        cosine, sine = angles(cosines, sines, rows, columns, n, HALF)
        d1, d2 = turned(d1, d2, cosine, -sine)
    store(start, d1, rows, columns, n, HALF, step)
    store(start + HALF, d2, rows, columns, n, HALF, step)


@triton.jit
def attention_mix(
    qkv, cosines, sines, mixed, n, heads, scale, epsilon, apart,
    NORM: tl.constexpr, TURN: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """(b, n, 3·h·e) → (b, n, h·e); tables of cosines and sines are `apart` from picture to picture, or one for all."""
    picture, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns, features = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, 2 * HALF)
    width = heads * 2 * HALF
    step = 3 * width
    cosines += picture * apart
    sines += picture * apart
    start = qkv + picture * n * step + head * 2 * HALF
    q1, q2, _ = ready(start, cosines, sines, rows, columns, n, step, epsilon, NORM, TURN, HALF)
    k1, k2, _ = ready(start + width, cosines, sines, rows, columns, n, step, epsilon, NORM, TURN, HALF)
    values = load(start + 2 * width, rows, features, n, 2 * HALF, step).to(q1.dtype)
    found = tl.dot(shares(q1, q2, k1, k2, rows, n, scale).to(q1.dtype), values)
    store(mixed + picture * n * width + head * 2 * HALF, found, rows, features, n, 2 * HALF, width)


@triton.jit
def attention_unmix(
    qkv, cosines, sines, asked, given, n, heads, scale, epsilon, apart,
    NORM: tl.constexpr, TURN: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient (b, n, 3·h·e) of queries, keys and values, from that of what was mixed, `asked`."""
    picture, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
    rows, columns, features = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, 2 * HALF)
    width = heads * 2 * HALF
    step = 3 * width
    cosines += picture * apart
    sines += picture * apart
    place = picture * n * step + head * 2 * HALF
    start, back = qkv + place, given + place
    q1, q2, q_length = ready(start, cosines, sines, rows, columns, n, step, epsilon, NORM, TURN, HALF)
    k1, k2, k_length = ready(start + width, cosines, sines, rows, columns, n, step, epsilon, NORM, TURN, HALF)
    weights = shares(q1, q2, k1, k2, rows, n, scale)
    asked = load(asked + picture * n * width + head * 2 * HALF, rows, features, n, 2 * HALF, width).to(q1.dtype)
    store(back + 2 * width, tl.dot(tl.trans(weights.to(q1.dtype)), asked), rows, features, n, 2 * HALF, step)
    values = load(start + 2 * width, rows, features, n, 2 * HALF, step).to(q1.dtype)
    wanted = tl.dot(asked, tl.trans(values))
    slope = (weights * (wanted - tl.sum(weights * wanted, 1)[:, None]) * scale).to(q1.dtype)
    d1, d2 = tl.dot(slope, k1), tl.dot(slope, k2)
    give_back(back, q1, q2, d1, d2, q_length, cosines, sines, rows, columns, n, step, NORM, TURN, HALF)
    d1, d2 = tl.dot(tl.trans(slope), q1), tl.dot(tl.trans(slope), q2)
    give_back(back + width, k1, k2, d1, d2, k_length, cosines, sines, rows, columns, n, step, NORM, TURN, HALF)
