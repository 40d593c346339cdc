// @ts-check
// The first four stages: picture, patches, tokens, positions.
import { PatchMap, paint, paintPicture, scaleOf } from "./maps.js";
import { ALONE } from "./pane.js";
import { stage } from "./stage.js";
import { make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./engine.js").Model} Model */

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
    const side = `${model.height / model.rows}×${model.width / model.columns}`;
    this.element = stage("patches", "Patches", `Cut into ${model.rows}×${model.columns} patches of ${side} pixels. From here on it works on a list of pieces, not on a picture.`);
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas", "patches"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `The picture cut into ${model.rows * model.columns} patches`);
    this.source = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.element.append(this.canvas);
  }

  /** @param {Pane} pane */
  update(pane) {
    const { rows, columns, width, height } = this.model, gap = 1, scale = 5;
    paintPicture(this.source, pane.model, pane.pixels, pane.masked);
    const w = width / columns, h = height / rows;
    const size = { width: (width + gap * (columns - 1)) * scale, height: (height + gap * (rows - 1)) * scale };
    if (this.canvas.width !== size.width) Object.assign(this.canvas, size);
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, size.width, size.height);
    for (let patch = 0; patch < rows * columns; patch++) {
      const y = Math.floor(patch / columns), x = patch % columns, at = [x * (w + gap) * scale, y * (h + gap) * scale];
      context.drawImage(this.source, x * w, y * h, w, h, at[0], at[1], w * scale, h * scale);
      if (patch === pane.chosen) {
        Object.assign(context, { strokeStyle: getComputedStyle(this.canvas).color, lineWidth: 4 });
        context.strokeRect(at[0] - 1, at[1] - 1, w * scale + 2, h * scale + 2);
      }
    }
  }
}

export class TokensStage {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    const sees = ALONE.includes(model.kinds.tokens) ? "by one matrix, the same for all" : `by ${model.kinds.tokens.replace("-", " ")}, with a little of its neighbours`;
    const extra = model.extra.length ? ` Before them: ${model.extra.join(", ")}.` : "";
    this.element = stage("tokens", "Tokens", `Each patch becomes ${model.features} numbers, ${sees}: one row each.${extra}`);
    this.holder = make("span", "stack matrix");
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `${model.extra.length + model.rows * model.columns} tokens of ${model.features} numbers`);
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
    this.line.style.top = `${(100 * (this.model.extra.length + pane.chosen)) / pane.count}%`;
    this.line.style.height = `${100 / pane.count}%`;
  }
}

const BAG = "This model has none: to it the patches are a bag, in any order.";
const POSITIONS = {
  none: "This model has none: nothing is added that tells a token where it lies.",
  rotary: "Nothing is added: each block turns queries and keys by where they lie, so that attention feels the distance.",
};

export class PositionsStage {
  /** @param {Pane} pane */
  constructor(pane) {
    const { kinds } = pane.model, told = pane.bag ? BAG : POSITIONS[/** @type {keyof typeof POSITIONS} */ (kinds.positions)];
    const learned = kinds.positions === "learned" ? "Nobody told it that there are rows and columns; it learned which places are alike." : "A fixed pattern says where each patch lies.";
    this.element = stage("positions", "Positions", told ?? `To each token a vector for its place is added. ${learned}`);
    this.map = pane.positions ? new PatchMap(pane.model, "Likeness of places", true) : null;
    if (this.map) this.element.append(this.map.element);
  }

  /** @param {Pane} pane */
  update(pane) {
    if (!this.map) return;
    const { rows, columns } = pane.model, middle = Math.floor(rows / 2) * columns + Math.floor(columns / 2);
    const patch = pane.chosen ?? middle, likeness = pane.positionLikeness(patch);
    this.map.update(pane, likeness, { ...scaleOf([likeness], 1), signed: true, root: false }, `alike to ${pane.name(patch)}: orange; unlike: blue`);
  }
}
