// @ts-check
// A pane: one model, the picture it was given, what it answered, and which patch is pointed at.
import { floats } from "./engine.js";
import { centre, gridOf, middle, patchAt, size } from "./grids.js";
import { softmax } from "./words.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Answer} Answer @typedef {import("./engine.js").Stream} Stream */

export const ALONE = ["conv-patches", "linear-patches", "several-scales"]; // tokens that see their own patch and nothing else

export class Pane {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.pixels = new Uint8Array(model.channels * model.height * model.width);
    /** @type {Answer | null} */
    this.answer = null;
    /** @type {(Uint8Array | Set<number>)[]} */
    this.answered = []; // what it is the answer to: pixels, and what was taken away
    /** @type {Float32Array | null} */
    this.relevance = null;
    /** @type {Set<number>} */
    this.masked = new Set();
    /** @type {number | null} */
    this.chosen = null; // a patch, or what the head reads
    this.positions = model.positions ? floats(model.positions) : null;
  }

  /** Whether the answer is to another picture than is shown. */
  get behind() {
    return this.answered[0] !== this.pixels || this.answered[1] !== this.masked;
  }

  /** Whether nothing in the model tells one order of the patches from another. */
  get bag() {
    const { kinds, shift } = this.model, ordered = shift || kinds.attention === "linformer" || kinds.head === "first-token";
    return kinds.positions === "none" && !ordered && ALONE.includes(kinds.tokens);
  }

  /** The streams whose tokens are cut from the picture. */
  get sources() {
    return this.model.streams.filter((stream) => !stream.before.length);
  }

  /** All tokens that enter. */
  get entering() {
    return this.sources.reduce((sum, stream) => sum + tokens(stream), 0);
  }

  /** The row of a patch among the tokens that enter. @param {number} patch */
  entry(patch) {
    return this.sources.filter((stream) => stream.grids[0].first <= patch).reduce((sum, stream) => sum + stream.extra.length, patch);
  }

  /** Each token's share in the look: all of the patch pointed at, or of the one at its place, or as much as each counts for what comes next. @param {Stream} stream */
  shares(stream) {
    const n = tokens(stream), first = this.start(stream, tokens), { chosen } = this;
    if (chosen === null && this.answer) return this.answer.shares.slice(first, first + n);
    const shares = new Float32Array(n);
    if (chosen === null) return shares;
    const grid = gridOf(this.model, chosen), own = stream.grids.some((one) => one.first === grid.first);
    const finest = stream.grids.reduce((best, one) => (size(one) > size(best) ? one : best));
    shares[stream.extra.length + (own ? chosen : patchAt(finest, ...centre(grid, chosen))) - stream.grids[0].first] = 1;
    return shares;
  }

  /** The patch of a grid at the place that is pointed at, or in the middle. @param {import("./engine.js").Grid} grid */
  within(grid) {
    return this.chosen === null ? middle(grid) : patchAt(grid, ...centre(gridOf(this.model, this.chosen), this.chosen));
  }

  get looking() {
    const read = new Set(this.model.streams.filter((stream) => stream.layers).map((stream) => stream.reading));
    return this.chosen === null ? [...read].join("; where scales are joined, ") : `from the patch in ${this.name(this.chosen)}`;
  }

  /** @param {number} patch */
  name(patch) {
    const grid = gridOf(this.model, patch), place = patch - grid.first;
    const which = this.model.grids.length > 1 ? ` of ${grid.rows}×${grid.columns}` : "";
    return `row ${Math.floor(place / grid.columns) + 1}, column ${(place % grid.columns) + 1}${which}`;
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

  /** Where a stream's numbers begin, given how many each of the earlier ones has. @param {Stream} stream @param {(one: Stream) => number} many */
  start(stream, many) {
    const { streams } = this.model;
    return streams.slice(0, streams.indexOf(stream)).reduce((sum, one) => sum + many(one), 0);
  }

  /** One weight for each token of a stream: where those that look look, in a head of a layer. @param {Stream} stream @param {number} layer @param {number} head */
  row(stream, layer, head) {
    const n = tokens(stream), found = new Float64Array(n);
    const first = this.start(stream, (one) => one.layers * one.heads * tokens(one) ** 2) + (layer * stream.heads + head) * n * n;
    this.shares(stream).forEach((share, looker) => {
      if (share && this.answer) for (let i = 0; i < n; i++) found[i] += share * this.answer.attention[first + looker * n + i];
    });
    return found;
  }

  /** row ← row · (I + mean of heads)/2 from the last layer to the first (Abnar and Zuidema, 2020), of all that enters. */
  rollout() {
    const last = this.model.streams[this.model.streams.length - 1];
    return Float64Array.from(this.flow(last, Float64Array.from(this.shares(last))));
  }

  /** @param {Stream} stream @param {Float64Array} row @returns {number[]} */
  flow(stream, row) {
    const n = tokens(stream), { layers, heads } = stream, first = this.start(stream, (one) => one.layers * one.heads * tokens(one) ** 2);
    for (let layer = layers - 1; layer >= 0 && this.answer; layer--) {
      const next = Float64Array.from(row, (share) => share / 2);
      for (let head = 0; head < heads; head++)
        for (let i = 0; i < n; i++) {
          const share = row[i] / (2 * heads), start = first + ((layer * heads + head) * n + i) * n;
          if (share) for (let j = 0; j < n; j++) next[j] += share * this.answer.attention[start + j];
        }
      row = next;
    }
    if (!stream.before.length) return Array.from(row);
    let from = stream.extra.length;
    return stream.before.flatMap((place) => {
      const source = this.model.streams[place], count = tokens(source);
      const given = this.chosen === null ? row.slice(from, from + count) : Float64Array.from(this.shares(source)); // a patch that is pointed at looks in its own stream
      from += count;
      return this.flow(source, given);
    });
  }

  /** The lengths of a stream's tokens before the first block (0) and after each. @param {Stream} stream @param {number} step */
  norms(stream, step) {
    const n = tokens(stream), first = this.start(stream, (one) => (one.layers + 1) * tokens(one)) + step * n;
    return this.answer ? this.answer.norms.subarray(first, first + n) : new Float32Array(n);
  }

  /** A stream's row on each of its grids. @param {Stream} stream @param {ArrayLike<number>} row @returns {number[][]} */
  onGrids(stream, row) {
    const all = Array.from(row), base = stream.extra.length - stream.grids[0].first;
    return stream.grids.map((grid) => all.slice(base + grid.first, base + grid.first + size(grid)));
  }

  /** A row over all tokens that enter, on each grid of the model. @param {ArrayLike<number>} row */
  entered(row) {
    const all = Array.from(row);
    let from = 0;
    return this.sources.flatMap((stream) => this.onGrids(stream, all.slice(from, (from += tokens(stream)))));
  }

  /** Cosine of the positions of a grid's patches with that of one of them. @param {import("./engine.js").Grid} grid @param {number} patch @returns {number[]} */
  positionLikeness(grid, patch) {
    const table = this.positions, d = this.model.features;
    if (!table) return new Array(size(grid)).fill(0);
    const at = (/** @type {number} */ i) => table.subarray(this.entry(i) * d, (this.entry(i) + 1) * d);
    const dot = (/** @type {Float32Array} */ a, /** @type {Float32Array} */ b) => a.reduce((sum, one, i) => sum + one * b[i], 0);
    const own = at(patch);
    return Array.from({ length: size(grid) }, (_, i) => {
      const other = at(grid.first + i);
      return dot(own, other) / (Math.sqrt(dot(own, own) * dot(other, other)) || 1);
    });
  }
}

/** How many tokens a stream has. @param {Stream} stream */
export const tokens = (stream) => stream.grids.reduce((sum, grid) => sum + size(grid), stream.extra.length);
