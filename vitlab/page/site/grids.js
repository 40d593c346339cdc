// @ts-check
// Where patches lie: grids of one size or several, their patches counted from grid to grid.

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Grid} Grid */

/** @param {Grid} grid */
export const size = (grid) => grid.rows * grid.columns;

/** The grid that a patch belongs to. @param {Model} model @param {number} patch */
export const gridOf = (model, patch) =>
  /** @type {Grid} */ (model.grids.find((grid) => patch >= grid.first && patch < grid.first + size(grid)));

/** The patch of a grid that holds a point, from 0 to 1 in both directions. @param {Grid} grid @param {number} y @param {number} x */
export function patchAt(grid, y, x) {
  const within = (/** @type {number} */ share, /** @type {number} */ count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
  return grid.first + within(y, grid.rows) * grid.columns + within(x, grid.columns);
}

/** The middle of a grid, or the place of a patch. @param {Grid} grid @param {number} patch @returns {[number, number]} */
export const centre = (grid, patch) =>
  [(Math.floor((patch - grid.first) / grid.columns) + 0.5) / grid.rows, (((patch - grid.first) % grid.columns) + 0.5) / grid.columns];

/** The patch in the middle. @param {Grid} grid */
export const middle = (grid) => patchAt(grid, 0.5, 0.5);

/** Which pixels lie in patches that are taken away, of whatever grid. @param {Model} model @param {Iterable<number>} masked */
export function covered({ grids, height, width }, masked) {
  const gone = new Set(masked), found = new Uint8Array(height * width);
  if (gone.size)
    for (let i = 0; i < found.length; i++) {
      const y = (Math.floor(i / width) + 0.5) / height, x = ((i % width) + 0.5) / width;
      found[i] = Number(grids.some((grid) => gone.has(patchAt(grid, y, x))));
    }
  return found;
}

/** @param {Model} model @param {Grid} grid */
export const side = (model, grid) => `${model.height / grid.rows}×${model.width / grid.columns}`;
