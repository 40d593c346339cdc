// @ts-check
// Maps: one weight for each patch, in colour over the picture. Every map is a place to point at.
import { bytes } from "./engine.js";
import { centre, covered, gridOf, patchAt } from "./grids.js";
import { figure, make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Grid} Grid */
/** @typedef {{most: number, signed: boolean, root: boolean}} Scale */

/** @type {Uint8Array[]} */
let palettes = [];
export const NOTHING = "0 everywhere";

/** @param {string[]} coded */
export const setPalettes = (coded) => { palettes = coded.map(bytes); };

/** @param {ArrayLike<number>[]} rows @param {number} [most] @returns {Scale} */
export function scaleOf(rows, most) {
  let strongest = 0, least = 0;
  for (const row of rows)
    for (let i = 0; i < row.length; i++) {
      strongest = Math.max(strongest, Math.abs(row[i]));
      least = Math.min(least, row[i]);
    }
  const signed = least < -1e-6 * strongest;
  return { most: most ?? strongest, signed, root: !signed };
}

/** @param {number} weight @param {Scale} scale */
function colour(weight, { most, signed, root }) {
  let share = most ? weight / most : 0;
  if (root) share = Math.sign(share) * Math.sqrt(Math.abs(share));
  const level = Math.round(Math.min(Math.max(signed ? (share + 1) / 2 : share, 0), 1) * 254);
  return palettes[signed ? 1 : 0].subarray(4 * level, 4 * level + 4);
}

/** @param {HTMLCanvasElement} canvas @param {ArrayLike<number>} weights @param {number} columns @param {Scale} scale */
export function paint(canvas, weights, columns, scale) {
  const rows = weights.length / columns;
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < weights.length; i++) image.data.set(colour(weights[i], scale), 4 * i);
  context.putImageData(image, 0, 0);
}

/** @param {HTMLCanvasElement} canvas @param {Model} model @param {Uint8Array} pixels @param {Set<number>} [masked] */
export function paintPicture(canvas, model, pixels, masked) {
  const { channels, height, width, mean } = model, size = height * width, gone = covered(model, masked ?? []);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(width, height);
  for (let i = 0; i < size; i++) {
    for (let c = 0; c < 3; c++) {
      const own = channels === 3 ? c : 0;
      image.data[4 * i + c] = gone[i] ? 255 * mean[own] : pixels[own * size + i];
    }
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** @param {Element} from @param {"point" | "leave" | "mask" | "tap"} what @param {number} [patch] */
export const tell = (from, what, patch) => from.dispatchEvent(new CustomEvent("patch", { bubbles: true, detail: { what, patch } }));

/** A picture with a map over it, and a name below. */
export class PatchMap {
  /** @param {Model} model @param {Grid} grid @param {string} name @param {boolean} [bare] without a picture behind */
  constructor(model, grid, name, bare = false) {
    this.model = model;
    this.grid = grid;
    this.element = make("figure", "map");
    this.stack = make("span", "stack");
    this.stack.setAttribute("role", "img");
    this.stack.setAttribute("aria-label", name);
    this.stack.style.aspectRatio = `${model.width} / ${model.height}`;
    this.picture = bare ? null : /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", "over"));
    this.outline = make("span", "outline");
    this.caption = make("figcaption", "", name);
    this.name = name;
    if (this.picture) this.stack.append(this.picture);
    this.stack.append(this.canvas, this.outline);
    this.element.append(this.stack, this.caption);
    /** @type {ArrayLike<number>} */
    this.weights = [];
    listen(this.stack, grid);
  }

  /** @param {Pane} pane @param {ArrayLike<number>} weights @param {Scale} scale @param {string} [caption] */
  update(pane, weights, scale, caption) {
    this.weights = weights;
    if (this.picture) paintPicture(this.picture, pane.model, pane.pixels, pane.masked);
    paint(this.canvas, weights, this.grid.columns, scale);
    mark(this.outline, this.model, pane.chosen);
    if (caption !== undefined) this.caption.textContent = caption;
    let best = 0;
    for (let i = 0; i < weights.length; i++) if (weights[i] > weights[best]) best = i;
    const told = Array.from(weights).some(Boolean) ? `most, ${figure(weights[best])}, on ${pane.name(this.grid.first + best)}` : NOTHING;
    this.stack.setAttribute("aria-label", `${this.name}: ${told}`);
  }
}

/** Where the pointer is, told as events that rise to the page. @param {HTMLElement} element @param {Grid} grid */
function listen(element, grid) {
  const place = (/** @type {MouseEvent} */ event) => {
    const box = element.getBoundingClientRect();
    return patchAt(grid, (event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width);
  };
  let last = "mouse";
  element.addEventListener("pointerdown", (event) => { last = event.pointerType; });
  element.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") tell(element, "point", place(event)); });
  element.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tell(element, "leave"); });
  element.addEventListener("click", (event) => tell(element, last === "touch" ? "tap" : "mask", place(event)));
}

/** @param {HTMLElement} outline @param {Model} model @param {number | null} patch */
export function mark(outline, model, patch) {
  outline.hidden = patch === null;
  if (patch === null) return;
  const grid = gridOf(model, patch), { rows, columns } = grid, [y, x] = centre(grid, patch);
  outline.style.left = `${100 * x - 50 / columns}%`;
  outline.style.top = `${100 * y - 50 / rows}%`;
  outline.style.width = `${100 / columns}%`;
  outline.style.height = `${100 / rows}%`;
}

/** The colours of a scale with its ends. @param {Scale} scale @param {string} name */
export function legend(scale, name) {
  const element = make("div", "scale"), canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
  const steps = Array.from({ length: 255 }, (_, i) => (scale.signed ? (2 * i) / 254 - 1 : i / 254));
  paint(canvas, steps, 255, { most: 1, signed: scale.signed, root: false });
  canvas.setAttribute("aria-hidden", "true");
  element.append(make("span", "", name), make("span", "", scale.signed ? figure(-scale.most) : "0"), canvas,
    make("span", "", scale.most ? figure(scale.most) + (scale.root ? " (root scale)" : "") : NOTHING));
  return element;
}
