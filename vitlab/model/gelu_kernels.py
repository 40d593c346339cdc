"""Triton kernels of GELU, alone, behind a bias and behind a norm over a whole picture.

Imported only where there is a GPU. Whatever lies in memory is read once and written once; a picture's pixels lie one
after another, and the features of a pixel.
"""

import triton
import triton.language as tl

from vitlab.model.kernels import load, store


@triton.jit
def normal(x):
    """Φ(x) within 7.5e-8 (Abramowitz and Stegun, 26.2.17), and φ(x)."""
    density = 0.3989422804014327 * tl.exp2(x * x * -0.7213475204444817)
    t = 1.0 / (1.0 + 0.2316419 * tl.abs(x))
    tail = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail *= density
    return tl.where(x >= 0, 1.0 - tail, tail), density


@triton.jit
def gelu_of(x):
    return x * normal(x)[0]


@triton.jit
def slope_of(x):
    below, density = normal(x)
    return below + x * density


@triton.jit
def gelu_there(x, y, count, BLOCK: tl.constexpr):
    """y = x·Φ(x)."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    found = gelu_of(tl.load(x + places, mask=places < count).to(tl.float32))
    tl.store(y + places, found.to(y.dtype.element_ty), mask=places < count)


@triton.jit
def gelu_back(asked, x, given, count, BLOCK: tl.constexpr):
    """Its gradient: asked · (Φ(x) + x·φ(x))."""
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    slope = slope_of(tl.load(x + places, mask=places < count).to(tl.float32))
    found = tl.load(asked + places, mask=places < count).to(tl.float32) * slope
    tl.store(given + places, found.to(given.dtype.element_ty), mask=places < count)


@triton.jit
def bias_gelu_there(
    x, bias, y, count, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """y = GELU(x + v), for `count` rows of WIDTH features."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    v = tl.load(bias + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)[None, :]
    store(y, gelu_of(load(x, rows, columns, count, WIDTH, WIDTH) + v), rows, columns, count, WIDTH, WIDTH)


@triton.jit
def bias_gelu_back(
    asked, x, bias, given, bias_given, count, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Its gradient for x, and each tile's share of that for v, which would take a pass of its own."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    v = tl.load(bias + columns, mask=columns < WIDTH, other=0.0).to(tl.float32)[None, :]
    slope = slope_of(load(x, rows, columns, count, WIDTH, WIDTH) + v)
    found = load(asked, rows, columns, count, WIDTH, WIDTH) * slope
    store(given, found, rows, columns, count, WIDTH, WIDTH)
    tl.store(bias_given + tl.program_id(0) * WIDTH + columns, tl.sum(found, 0), mask=columns < WIDTH)


@triton.jit
def norm_gelu_there(
    z, weight, bias, y, moments, epsilon,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """y = GELU(w·(z − mean)/√(variance + ε) + v), mean and variance of a picture's pixels and features."""
    picture, columns = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    z += picture * PIXELS * CHANNELS
    y += picture * PIXELS * CHANNELS
    total, squares = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, PIXELS, ROWS):
        x = load(z, first + tl.arange(0, ROWS), columns, PIXELS, CHANNELS, CHANNELS)
        total += x
        squares += x * x
    mean = tl.sum(tl.sum(total, 1), 0) / (PIXELS * CHANNELS)
    variance = tl.sum(tl.sum(squares, 1), 0) / (PIXELS * CHANNELS) - mean * mean
    length = tl.rsqrt(tl.maximum(variance, 0.0) + epsilon)
    tl.store(moments + 2 * picture, mean)
    tl.store(moments + 2 * picture + 1, length)
    w = tl.load(weight + columns, mask=columns < CHANNELS, other=0.0).to(tl.float32)[None, :] * length
    v = tl.load(bias + columns, mask=columns < CHANNELS, other=0.0).to(tl.float32)[None, :] - mean * w
    for first in range(0, PIXELS, ROWS):  # the picture lies in the cache now
        rows = first + tl.arange(0, ROWS)
        x = load(z, rows, columns, PIXELS, CHANNELS, CHANNELS)
        store(y, gelu_of(x * w + v), rows, columns, PIXELS, CHANNELS, CHANNELS)


@triton.jit
def norm_gelu_back(
    asked, z, weight, bias, moments, given, weight_given, bias_given,
    PIXELS: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Its gradient for z, and each picture's share of those for w and v."""
    picture, columns = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    asked += picture * PIXELS * CHANNELS
    z += picture * PIXELS * CHANNELS
    given += picture * PIXELS * CHANNELS
    mean, length = tl.load(moments + 2 * picture), tl.load(moments + 2 * picture + 1)
    w = tl.load(weight + columns, mask=columns < CHANNELS, other=0.0).to(tl.float32)[None, :]
    v = tl.load(bias + columns, mask=columns < CHANNELS, other=0.0).to(tl.float32)[None, :]
    total, along = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in range(0, PIXELS, ROWS):
        rows = first + tl.arange(0, ROWS)
        x = (load(z, rows, columns, PIXELS, CHANNELS, CHANNELS) - mean) * length
        slope = load(asked, rows, columns, PIXELS, CHANNELS, CHANNELS) * slope_of(x * w + v)
        store(given, slope, rows, columns, PIXELS, CHANNELS, CHANNELS)  # kept there until it is known what to subtract
        total += slope
        along += slope * x  # beyond the edge what is asked is 0
    total_of, along_of = tl.sum(total, 0), tl.sum(along, 0)
    tl.store(bias_given + picture * CHANNELS + columns, total_of, mask=columns < CHANNELS)
    tl.store(weight_given + picture * CHANNELS + columns, along_of, mask=columns < CHANNELS)
    flat = tl.sum(total_of[None, :] * w, 1)[:, None] / (PIXELS * CHANNELS)
    leaning = tl.sum(along_of[None, :] * w, 1)[:, None] / (PIXELS * CHANNELS)
    tl.debug_barrier()
    for first in range(0, PIXELS, ROWS):  # both lie in the cache now
        rows = first + tl.arange(0, ROWS)
        x = (load(z, rows, columns, PIXELS, CHANNELS, CHANNELS) - mean) * length
        slope = load(given, rows, columns, PIXELS, CHANNELS, CHANNELS)
        store(given, (slope * w - flat - x * leaning) * length, rows, columns, PIXELS, CHANNELS, CHANNELS)
