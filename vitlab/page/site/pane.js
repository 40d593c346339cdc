// @ts-check
// A pane: one model, the picture it was given, what it answered, and which patch is pointed at.
import { floats } from "./engine.js";
import { softmax } from "./words.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Answer} Answer */

export const ALONE = ["conv-patches", "linear-patches"]; // tokens that see their own patch and nothing else

export class Pane {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.pixels = new Uint8Array(model.channels * model.height * model.width);
    /** @type {Answer | null} */
    this.answer = null;
    /** @type {Float32Array | null} */
    this.relevance = null;
    /** @type {Set<number>} */
    this.masked = new Set();
    /** @type {number | null} */
    this.chosen = null; // a patch, or what the head reads
    this.positions = model.positions ? floats(model.positions) : null;
  }

  get patches() {
    return this.model.rows * this.model.columns;
  }

  get count() {
    return this.model.extra.length + this.patches;
  }

  /** Whether nothing in the model tells one order of the patches from another. */
  get bag() {
    const { kinds, shift } = this.model, ordered = shift || kinds.attention === "linformer" || kinds.head === "first-token";
    return kinds.positions === "none" && !ordered && ALONE.includes(kinds.tokens);
  }

  /** The tokens that look: the patch pointed at, or those that the head reads. @returns {number[]} */
  get lookers() {
    const [start, stop] = this.model.read;
    if (this.chosen !== null) return [this.model.extra.length + this.chosen];
    return Array.from({ length: stop - start }, (_, i) => start + i);
  }

  get looking() {
    return this.chosen === null ? this.model.reading : `from the patch in ${this.name(this.chosen)}`;
  }

  /** @param {number} patch */
  name(patch) {
    return `row ${Math.floor(patch / this.model.columns) + 1}, column ${(patch % this.model.columns) + 1}`;
  }

  /** The probabilities before the first block (0) and after each. @param {number} step */
  lens(step) {
    const n = this.model.classes.length;
    return this.answer ? softmax(this.answer.lens.subarray(step * n, (step + 1) * n)) : new Array(n).fill(0);
  }

  get probabilities() {
    return this.answer ? softmax(this.answer.logits) : [];
  }

  get guess() {
    return this.answer ? this.answer.logits.indexOf(Math.max(...this.answer.logits)) : 0;
  }

  /** One weight for each token: where those that look look, in a head of a layer. @param {number} layer @param {number} head */
  row(layer, head) {
    const n = this.count, found = new Float64Array(n), { heads } = this.model, lookers = this.lookers;
    if (this.answer)
      for (const looker of lookers) {
        const start = ((layer * heads + head) * n + looker) * n;
        for (let i = 0; i < n; i++) found[i] += this.answer.attention[start + i] / lookers.length;
      }
    return found;
  }

  /** row ← row · (I + mean of heads)/2 from the last layer to the first (Abnar and Zuidema, 2020). */
  rollout() {
    const n = this.count, { layers, heads } = this.model, lookers = this.lookers;
    let row = new Float64Array(n);
    for (const looker of lookers) row[looker] += 1 / lookers.length;
    if (!this.answer) return row;
    for (let layer = layers - 1; layer >= 0; layer--) {
      const next = Float64Array.from(row, (share) => share / 2);
      for (let head = 0; head < heads; head++)
        for (let i = 0; i < n; i++) {
          const share = row[i] / (2 * heads), start = ((layer * heads + head) * n + i) * n;
          if (share) for (let j = 0; j < n; j++) next[j] += share * this.answer.attention[start + j];
        }
      row = next;
    }
    return row;
  }

  /** The lengths of the tokens before the first block (0) and after each. @param {number} step */
  norms(step) {
    const n = this.count;
    return this.answer ? this.answer.norms.subarray(step * n, (step + 1) * n) : new Float32Array(n);
  }

  /** What of a row lies on the patches. @param {ArrayLike<number>} row */
  onPatches(row) {
    return Array.from(row).slice(this.model.extra.length);
  }

  /** Cosine of each patch's position with that of one patch. @param {number} patch @returns {number[]} */
  positionLikeness(patch) {
    const table = this.positions, d = this.model.features, extra = this.model.extra.length;
    if (!table) return new Array(this.patches).fill(0);
    const at = (/** @type {number} */ i) => table.subarray((extra + i) * d, (extra + i + 1) * d);
    const dot = (/** @type {Float32Array} */ a, /** @type {Float32Array} */ b) => a.reduce((sum, one, i) => sum + one * b[i], 0);
    const own = at(patch);
    return Array.from({ length: this.patches }, (_, i) => dot(own, at(i)) / (Math.sqrt(dot(own, own) * dot(at(i), at(i))) || 1));
  }
}
