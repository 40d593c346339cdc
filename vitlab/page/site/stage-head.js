// @ts-check
// The head: what is read, what reaches it through all blocks, and what of that speaks for the class.
import { NOTHING, PatchMap, scaleOf } from "./maps.js";
import { stage } from "./stage.js";
import { figure, make, percent } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */

const LAST = "last layer's attention";
const READ = {
  mean: "It averages all tokens and weighs the average for each class.",
  "sequence-pool": "It averages all tokens, each as much as it has learned to, and weighs the average for each class.",
  "class-token": "It reads the class token alone and weighs it for each class.",
  "first-token": "It reads the first patch alone and weighs it for each class.",
  "class-attention": "It reads the class token, which has looked at the tokens of all scales, and weighs it for each class.",
  "late-class-token": "It reads a class token that joins after the last block: it has met no patch, so whatever you draw, it says the same.",
};

/** The top of a map's own scale. @param {import("./maps.js").Scale} scale */
const upTo = ({ most }) => (most ? `, up to ${figure(most)}` : `, ${NOTHING}`);

/** @param {Float64Array[]} rows */
const mean = (rows) => rows[0].map((_, i) => rows.reduce((sum, row) => sum + row[i] / rows.length, 0));

export class HeadStage {
  /** @param {Pane} pane */
  constructor(pane) {
    const { model } = pane;
    this.element = stage("head", "Head", READ[/** @type {keyof typeof READ} */ (model.kinds.head)] ?? "");
    const rows = make("div", "all-maps");
    this.rows = model.grids.map((grid) => {
      const row = make("div", "maps wide"), of = model.grids.length > 1 ? `, ${grid.rows}×${grid.columns}` : "";
      const [last, rollout, relevance] = [LAST, "rollout", "relevance"].map((name) => new PatchMap(model, grid, name + of));
      row.append(...[last, rollout, relevance].map((map) => map.element));
      rows.append(row);
      return { last, rollout, relevance, of };
    });
    this.note = make("p", "remark", "Three answers to where it looked: the last layer's attention; rollout, the attention of all layers multiplied; relevance, what of it speaks for the class. Each has a scale of its own. Click patches away to test which is right.");
    this.verdict = make("p", "verdict");
    this.element.append(rows, this.note, this.verdict);
  }

  /** @param {Pane} pane */
  update(pane) {
    const { model } = pane, attending = [...model.streams].reverse().filter((stream) => stream.layers);
    const ends = attending[0].before.length ? attending.slice(0, 1) : pane.sources; // the join's own, or each scale's
    const last = ends.flatMap((stream) => pane.onGrids(stream, mean(Array.from({ length: stream.heads }, (_, head) => pane.row(stream, stream.layers - 1, head)))));
    const rollout = pane.entered(pane.rollout()), relevance = pane.relevance && pane.entered(pane.relevance);
    const scales = [last, rollout, relevance ?? []].map((maps) => scaleOf(maps)); // one for all grids of a map
    this.rows.forEach((row, place) => {
      row.last.update(pane, last[place], scales[0], LAST + row.of + upTo(scales[0]));
      row.rollout.update(pane, rollout[place], scales[1], `rollout${row.of}${upTo(scales[1])}`);
      row.relevance.element.classList.toggle("late", !relevance);
      if (relevance) row.relevance.update(pane, relevance[place], scales[2], `relevance for ${model.classes[pane.guess]}${row.of}${upTo(scales[2])}`);
    });
    const shares = pane.probabilities;
    this.verdict.replaceChildren("So it says ", make("b", "", model.classes[pane.guess]), `, ${percent(shares[pane.guess] ?? 0)}.`);
  }
}
