// @ts-check
// The head: what is read, what reaches it through all blocks, and what of that speaks for the class.
import { PatchMap, scaleOf } from "./maps.js";
import { stage } from "./stage.js";
import { make, percent } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */

const READ = {
  mean: "It averages all tokens and weighs the average for each class.",
  "sequence-pool": "It averages all tokens, each as much as it has learned to, and weighs the average for each class.",
  "class-token": "It reads the class token alone and weighs it for each class.",
  "first-token": "It reads the first patch alone and weighs it for each class.",
};

export class HeadStage {
  /** @param {Pane} pane */
  constructor(pane) {
    const { model } = pane;
    this.element = stage("head", "Head", READ[/** @type {keyof typeof READ} */ (model.kinds.head)] ?? "");
    const row = make("div", "maps wide");
    this.last = new PatchMap(model, "last layer's attention");
    this.rollout = new PatchMap(model, "rollout");
    this.relevance = new PatchMap(model, "relevance");
    row.append(...[this.last, this.rollout, this.relevance].map((map) => map.element));
    this.note = make("p", "remark", "Three answers to where it looked: the last layer's attention; rollout, the attention of all layers multiplied; relevance, what of it speaks for the class. Click patches away to test which is right.");
    this.verdict = make("p", "verdict");
    this.element.append(row, this.note, this.verdict);
  }

  /** @param {Pane} pane */
  update(pane) {
    const { model } = pane, last = new Float64Array(pane.count);
    for (let head = 0; head < model.heads; head++)
      pane.row(model.layers - 1, head).forEach((weight, i) => { last[i] += weight / model.heads; });
    const own = (/** @type {PatchMap} */ map, /** @type {number[]} */ weights, /** @type {string} */ name) =>
      map.update(pane, weights, scaleOf([weights]), name);
    own(this.last, pane.onPatches(last), "last layer's attention");
    own(this.rollout, pane.onPatches(pane.rollout()), "rollout");
    this.relevance.element.classList.toggle("late", !pane.relevance);
    if (pane.relevance) own(this.relevance, pane.onPatches(pane.relevance), `relevance for ${model.classes[pane.guess]}`);
    const shares = pane.probabilities;
    this.verdict.replaceChildren("So it says ", make("b", "", model.classes[pane.guess]), `, ${percent(shares[pane.guess] ?? 0)}.`);
  }
}
