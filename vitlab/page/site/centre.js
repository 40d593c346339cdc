// @ts-check
// Centre a drawing as MNIST's digits were: its box scaled to 20 of 28 pixels, its centre of mass put in the middle.

/**
 * @param {Uint8Array | Uint8ClampedArray} ink one value for each pixel of the drawing, row by row
 * @param {number} side of the drawing, a square
 * @param {number} size of the model's picture, a square
 * @returns {Uint8Array}
 */
export function centred(ink, side, size) {
  const found = new Uint8Array(size * size);
  let top = side, left = side, bottom = -1, right = -1;
  for (let y = 0; y < side; y++)
    for (let x = 0; x < side; x++)
      if (ink[y * side + x] > 0) {
        top = Math.min(top, y); bottom = Math.max(bottom, y);
        left = Math.min(left, x); right = Math.max(right, x);
      }
  if (bottom < 0) return found;
  const high = bottom - top + 1, wide = right - left + 1, scale = Math.max(high, wide) / (size * (20 / 28));
  const rows = Math.max(Math.round(high / scale), 1), columns = Math.max(Math.round(wide / scale), 1);
  const small = new Float64Array(rows * columns);
  let mass = 0, y0 = 0, x0 = 0;
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const value = mean(ink, side, top + y * (high / rows), left + x * (wide / columns), high / rows, wide / columns);
      small[y * columns + x] = value;
      mass += value;
      y0 += value * (y + 0.5);
      x0 += value * (x + 0.5);
    }
  const down = Math.round(size / 2 - y0 / mass), across = Math.round(size / 2 - x0 / mass);
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++) {
      const to = y + down, at = x + across;
      if (to >= 0 && to < size && at >= 0 && at < size) found[to * size + at] = Math.round(small[y * columns + x]);
    }
  return found;
}

/**
 * The mean of the drawing over a rectangle whose sides need not fall on pixels.
 * @param {ArrayLike<number>} ink @param {number} side
 * @param {number} top @param {number} left @param {number} high @param {number} wide
 */
function mean(ink, side, top, left, high, wide) {
  let sum = 0;
  const bottom = top + high, right = left + wide;
  for (let y = Math.floor(top); y < Math.min(bottom, side); y++) {
    const tall = Math.min(y + 1, bottom) - Math.max(y, top);
    for (let x = Math.floor(left); x < Math.min(right, side); x++)
      sum += ink[y * side + x] * tall * (Math.min(x + 1, right) - Math.max(x, left));
  }
  return sum / (high * wide);
}
