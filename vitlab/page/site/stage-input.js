// @ts-check
// The first four stages: picture, patches, tokens, positions.
import { side, size } from "./grids.js";
import { PatchMap, paint, paintPicture, scaleOf } from "./maps.js";
import { ALONE } from "./pane.js";
import { stage } from "./stage.js";
import { make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Grid} Grid */

export class PictureStage {
  /** @param {Model} model */
  constructor(model) {
    const values = model.channels * model.height * model.width;
    const colours = model.channels === 3 ? "colours" : "shades of grey";
    this.element = stage("picture", "Picture", `${model.height}×${model.width} pixels, ${values.toLocaleString("en")} numbers: ${colours}. That is all it gets.`);
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", "picture"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "The picture as the model gets it");
    this.element.append(this.canvas);
  }

  /** @param {Pane} pane */
  update(pane) {
    paintPicture(this.canvas, pane.model, pane.pixels, pane.masked);
  }
}

export class PatchesStage {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    const cuts = model.grids.map((grid) => `${grid.rows}×${grid.columns} patches of ${side(model, grid)} pixels`).join(", and again into ");
    const lists = model.streams.length > 1 ? "a list of pieces for each size" : "a list of pieces";
    this.element = stage("patches", "Patches", `Cut into ${cuts}. From here on it works on ${lists}, not on a picture.`);
    this.source = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.canvases = model.grids.map((grid) => {
      const canvas = /** @type {HTMLCanvasElement} */ (make("canvas", "patches"));
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `The picture cut into ${size(grid)} patches`);
      this.element.append(canvas);
      return canvas;
    });
  }

  /** @param {Pane} pane */
  update(pane) {
    paintPicture(this.source, pane.model, pane.pixels, pane.masked);
    this.model.grids.forEach((grid, i) => this.paint(this.canvases[i], grid, pane.chosen));
  }

  /** @param {HTMLCanvasElement} canvas @param {Grid} grid @param {number | null} chosen */
  paint(canvas, { rows, columns, first }, chosen) {
    const { width, height } = this.model, gap = 1, scale = 5;
    const w = width / columns, h = height / rows;
    const whole = { width: (width + gap * (columns - 1)) * scale, height: (height + gap * (rows - 1)) * scale };
    if (canvas.width !== whole.width) Object.assign(canvas, whole);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, whole.width, whole.height);
    for (let patch = 0; patch < rows * columns; patch++) {
      const y = Math.floor(patch / columns), x = patch % columns, at = [x * (w + gap) * scale, y * (h + gap) * scale];
      context.drawImage(this.source, x * w, y * h, w, h, at[0], at[1], w * scale, h * scale);
      if (first + patch === chosen) {
        Object.assign(context, { strokeStyle: getComputedStyle(canvas).color, lineWidth: 4 });
        context.strokeRect(at[0] - 1, at[1] - 1, w * scale + 2, h * scale + 2);
      }
    }
  }
}

export class TokensStage {
  /** @param {Pane} pane */
  constructor(pane) {
    const { model } = pane, extra = pane.sources[0].extra;
    this.model = model;
    const sees = ALONE.includes(model.kinds.tokens) ? `by one matrix, the same for all${model.grids.length > 1 ? " of its size" : ""}` : `by ${model.kinds.tokens.replace("-", " ")}, with a little of its neighbours`;
    const others = extra.length ? ` Before them: ${extra.join(", ")}.` : "";
    this.element = stage("tokens", "Tokens", `Each patch becomes ${model.features} numbers, ${sees}: one row each.${others}`);
    this.holder = make("span", "stack matrix");
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${pane.entering} tokens of ${model.features} numbers`);
    this.line = make("span", "outline");
    this.holder.append(this.canvas, this.line);
    this.element.append(this.holder);
  }

  /** @param {Pane} pane */
  update(pane) {
    if (!pane.answer) return;
    const { tokens } = pane.answer, strength = Float32Array.from(tokens, Math.abs).sort()[Math.floor(0.995 * tokens.length)];
    paint(this.canvas, tokens, this.model.features, { most: strength || 1, signed: true, root: false });
    this.line.hidden = pane.chosen === null;
    if (pane.chosen === null) return;
    this.line.style.top = `${(100 * pane.entry(pane.chosen)) / pane.entering}%`;
    this.line.style.height = `${100 / pane.entering}%`;
  }
}

const BAG = "This model has none: to it the patches are a bag, in any order.";
const TURNED = "each block turns queries and keys by where they lie, so that attention feels the distance.";
const WITHOUT = {
  none: "This model has none: nothing is added that tells a token where it lies.",
  late: "They are added only where the scales are joined, after all blocks: until then nothing tells a token where it lies.",
  rotary: `Nothing is added: ${TURNED}`,
};

/** What tells a token where it lies. @param {Pane} pane */
function placed(pane) {
  const kind = pane.model.kinds.positions;
  if (pane.bag) return BAG;
  if (!pane.positions) return WITHOUT[/** @type {keyof typeof WITHOUT} */ (kind)] ?? WITHOUT.none;
  const learned = "Nobody told it that there are rows and columns; it learned which places are alike.";
  const added = `To each token a vector for its place is added. ${kind.startsWith("sinusoidal") ? "A fixed pattern says where each patch lies." : learned}`;
  return added + (kind === "rotary" ? ` And ${TURNED}` : "");
}

export class PositionsStage {
  /** @param {Pane} pane */
  constructor(pane) {
    this.element = stage("positions", "Positions", placed(pane));
    this.maps = pane.positions ? pane.model.grids.map((grid) => new PatchMap(pane.model, grid, "Likeness of places", true)) : [];
    this.element.append(...this.maps.map((map) => map.element));
  }

  /** @param {Pane} pane */
  update(pane) {
    const patches = this.maps.map((map) => pane.within(map.grid)), names = patches.map((patch) => pane.name(patch)).join("; ");
    this.maps.forEach((map, i) => {
      const likeness = pane.positionLikeness(map.grid, patches[i]), last = i === this.maps.length - 1;
      map.update(pane, likeness, { ...scaleOf([likeness], 1), signed: true, root: false }, last ? `alike to ${names}: orange; unlike: blue` : "");
    });
  }
}
