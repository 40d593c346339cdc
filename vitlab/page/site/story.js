// @ts-check
// The story of one model: its facts, and every stage from the picture to the answer.
import { legend, scaleOf } from "./maps.js";
import { BlockStage } from "./stage-block.js";
import { HeadStage } from "./stage-head.js";
import { PatchesStage, PictureStage, PositionsStage, TokensStage } from "./stage-input.js";
import { large, make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */

/** @type {WeakSet<Element>} */
const near = new WeakSet(); // what can be seen, or soon can
const watcher = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) isIntersecting ? near.add(target) : near.delete(target);
}, { rootMargin: "25%" });

export class Story {
  /** @param {Pane} pane */
  constructor(pane) {
    const { model } = pane;
    this.element = make("div", "pane");
    this.drawn = false;
    this.inputs = [new PictureStage(model), new PatchesStage(model), new TokensStage(pane), new PositionsStage(pane)];
    const joined = model.streams.length > 1 ? model.streams.slice(-1) : [], side = joined.length ? pane.sources : model.streams;
    this.blocks = Array.from({ length: side[0].layers }, (_, layer) => new BlockStage(pane, side, layer, `Block ${layer + 1}`));
    this.blocks.push(...joined.flatMap((stream) => Array.from({ length: stream.layers }, (_, layer) => new BlockStage(pane, [stream], layer, "Joined"))));
    this.head = new HeadStage(pane);
    const inputs = make("div", "inputs"), blocks = make("div", "blocks");
    inputs.append(...this.inputs.map((stage) => stage.element));
    this.legend = make("div", "legend");
    this.where = make("b");
    blocks.append(...this.blocks.map((stage) => stage.element));
    this.element.append(facts(pane), inputs, this.legend, blocks, this.head.element);
    for (const { element } of [...this.inputs, ...this.blocks, this.head]) watcher.observe(element);
  }

  /** Draw all that is shown of a picture, or only what can be seen once all has been drawn. @param {Pane} pane @param {boolean} whole */
  update(pane, whole) {
    if (!pane.answer) return;
    const all = whole || !this.drawn, wanted = (/** @type {{element: HTMLElement}} */ { element }) => all || near.has(element);
    this.drawn = true;
    const { model } = pane, rows = [], norms = [];
    for (const stream of model.streams)
      for (let layer = 0; layer < stream.layers; layer++) {
        norms.push(...pane.onGrids(stream, pane.norms(stream, layer + 1)));
        for (let head = 0; head < stream.heads; head++) rows.push(...pane.onGrids(stream, pane.row(stream, layer, head)));
      }
    const scale = scaleOf(rows), strengths = scaleOf(norms);
    for (const stage of this.inputs.filter(wanted)) stage.update(pane);
    for (const stage of this.blocks.filter(wanted)) stage.update(pane, scale, strengths);
    if (wanted(this.head)) this.head.update(pane);
    this.where.textContent = `Where it looks ${pane.looking}`;
    this.legend.replaceChildren(this.where, legend(scale, "attention"), legend(strengths, "strength (length of tokens)"));
  }
}

/** @param {Pane} pane */
function facts(pane) {
  const { model } = pane;
  const list = make("dl", "facts"), share = (/** @type {number} */ one) => `${(100 * one).toFixed(2)}\u202f%`;
  /** @type {[string, string, string?][]} */
  const lines = [
    ["model", model.name],
    ["test accuracy", model.accuracy === null ? "not tested" : share(model.accuracy), `95 % interval ${share(model.low)} to ${share(model.high)}, ${model.tested.toLocaleString("en")} pictures`],
    ["parameters", model.parameters.toLocaleString("en")],
    ["operations", large(model.flops)],
    ["tokens × features", `${pane.entering} × ${model.features}`],
    ["blocks × heads", model.streams.filter((stream) => stream.layers).map((stream) => `${stream.layers} × ${stream.heads}`).join(", ")],
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
