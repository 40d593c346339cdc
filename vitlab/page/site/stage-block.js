// @ts-check
// A block: where each head looks, how strong each token is after it, and what the head would say already.
import { PatchMap } from "./maps.js";
import { stage } from "./stage.js";
import { make, percent } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./maps.js").Scale} Scale @typedef {import("./engine.js").Stream} Stream */

const MOST = 10; // classes in the lens

/** @param {import("./engine.js").Model} model */
const explained = ({ kinds, shift }) =>
  (kinds.attention === "uniform" ? "Attention: every token gathers the same from all, whatever they are." : "Attention: each token gathers from the others what it asks for, each head in its own way.")
  + ` Then a small network works on every token${shift ? " and a few numbers of its four neighbours" : " alone"}. Both are added to what was there.`;

export class BlockStage {
  /** @param {Pane} pane @param {Stream[]} streams side by side @param {number} layer @param {string} name */
  constructor(pane, streams, layer, name) {
    this.layer = layer;
    const { model } = pane, joined = streams[0].before.length > 0;
    this.step = joined ? pane.sources[0].layers : layer + 1; // of the lens: with the join's blocks it is the answer
    this.element = stage("block", name, joined ? "The tokens of all scales in one sequence: here the class token looks at them." : layer ? "" : explained(model));
    const maps = make("div", "all-maps");
    this.rows = streams.flatMap((stream) => stream.grids.map((grid, place) => {
      const row = make("div", "maps"), of = model.grids.length > 1 ? `, ${grid.rows}×${grid.columns}` : "";
      row.style.setProperty("--count", String(stream.heads + 1));
      const heads = Array.from({ length: stream.heads }, (_, head) => new PatchMap(model, grid, (stream.heads > 1 ? `head ${head + 1}` : "attention") + of));
      const strength = new PatchMap(model, grid, `strength${of}`);
      strength.element.classList.add("strength");
      row.append(...heads.map((map) => map.element), strength.element);
      maps.append(row);
      return { stream, place, heads, strength };
    }));
    this.lens = make("div", "lens");
    this.lens.setAttribute("role", "img");
    this.columns = Array.from({ length: Math.min(model.classes.length, MOST) }, () => {
      const column = make("span", "column"), fill = make("span", "fill"), name = make("span", "name");
      const well = make("span", "well");
      well.append(fill);
      column.append(well, name);
      this.lens.append(column);
      return { column, fill, name };
    });
    const said = make("div", "lens-holder");
    this.saying = make("p", "caption");
    said.append(this.lens, this.saying);
    const row = make("div", "block-row");
    row.append(maps, said);
    this.element.append(row);
  }

  /** @param {Pane} pane @param {Scale} scale that all blocks share @param {Scale} strengths */
  update(pane, scale, strengths) {
    const { model } = pane;
    for (const { stream, place, heads, strength } of this.rows) {
      heads.forEach((map, head) => {
        const row = pane.row(stream, this.layer, head), off = place ? "" : stream.extra.map((name, i) => `${name} ${percent(row[i])}`).join(", ");
        map.update(pane, pane.onGrids(stream, row)[place], scale, map.name + (off ? ` (${off})` : ""));
      });
      strength.update(pane, pane.onGrids(stream, pane.norms(stream, this.layer + 1))[place], strengths);
    }
    const shares = pane.lens(this.step), best = shares.indexOf(Math.max(...shares));
    const places = shares.map((_, i) => i);
    if (model.classes.length > MOST) places.sort((a, b) => shares[b] - shares[a]);
    this.columns.forEach(({ column, fill, name }, at) => {
      const i = places[at];
      fill.style.height = `${100 * shares[i]}%`;
      Object.assign(name, { textContent: model.classes[i], title: model.classes[i] });
      column.classList.toggle("best", i === best);
    });
    this.saying.replaceChildren("if it ended here: ", make("b", "", model.classes[best]), ` ${percent(shares[best])}`);
    this.lens.setAttribute("aria-label", `If it ended here it would say ${model.classes[best]}, ${percent(shares[best])}`);
  }
}
