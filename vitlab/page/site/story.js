// @ts-check
// The story of one model: its facts, and every stage from the picture to the answer.
import { legend, scaleOf } from "./maps.js";
import { BlockStage } from "./stage-block.js";
import { HeadStage } from "./stage-head.js";
import { PatchesStage, PictureStage, PositionsStage, TokensStage } from "./stage-input.js";
import { large, make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */

export class Story {
  /** @param {Pane} pane */
  constructor(pane) {
    const { model } = pane;
    this.element = make("div", "pane");
    this.inputs = [new PictureStage(model), new PatchesStage(model), new TokensStage(model), new PositionsStage(pane)];
    this.blocks = Array.from({ length: model.layers }, (_, layer) => new BlockStage(pane, layer));
    this.head = new HeadStage(pane);
    const inputs = make("div", "inputs"), blocks = make("div", "blocks");
    inputs.append(...this.inputs.map((stage) => stage.element));
    this.legend = make("div", "legend");
    this.where = make("b");
    blocks.append(...this.blocks.map((stage) => stage.element));
    this.element.append(facts(pane), inputs, this.legend, blocks, this.head.element);
  }

  /** @param {Pane} pane */
  update(pane) {
    if (!pane.answer) return;
    const { model } = pane, rows = [], norms = [];
    for (let layer = 0; layer < model.layers; layer++) {
      norms.push(pane.onPatches(pane.norms(layer + 1)));
      for (let head = 0; head < model.heads; head++) rows.push(pane.onPatches(pane.row(layer, head)));
    }
    const scale = scaleOf(rows), strengths = scaleOf(norms);
    for (const stage of this.inputs) stage.update(pane);
    for (const stage of this.blocks) stage.update(pane, scale, strengths);
    this.head.update(pane);
    this.where.textContent = `Where it looks ${pane.looking}`;
    this.legend.replaceChildren(this.where, legend(scale, "attention"), legend(strengths, "strength (length of tokens)"));
  }
}

/** @param {Pane} pane */
function facts({ model }) {
  const list = make("dl", "facts"), share = (/** @type {number} */ one) => `${(100 * one).toFixed(2)}\u202f%`;
  /** @type {[string, string, string?][]} */
  const lines = [
    ["model", model.name],
    ["test accuracy", model.accuracy === null ? "not tested" : share(model.accuracy), `95 % interval ${share(model.low)} to ${share(model.high)}, ${model.tested.toLocaleString("en")} pictures`],
    ["parameters", model.parameters.toLocaleString("en")],
    ["operations", large(model.flops)],
    ["tokens × features", `${model.extra.length + model.rows * model.columns} × ${model.features}`],
    ["blocks × heads", `${model.layers} × ${model.heads}`],
    ["attention", model.kinds.attention],
    ["positions", model.kinds.positions],
  ];
  for (const [name, value, title] of lines) {
    const pair = make("div");
    if (title) pair.title = title;
    pair.append(make("dt", "", name), make("dd", "", value));
    list.append(pair);
  }
  return list;
}
