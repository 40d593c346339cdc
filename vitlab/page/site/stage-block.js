// @ts-check
// A block: where each head looks, how strong each token is after it, and what the head would say already.
import { PatchMap } from "./maps.js";
import { stage } from "./stage.js";
import { make, percent } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./maps.js").Scale} Scale */

const MOST = 10; // classes in the lens

/** @param {import("./engine.js").Model} model */
const explained = ({ shift }) =>
  "Attention: each token gathers from the others what it asks for, each head in its own way. Then a small network works on every token"
  + `${shift ? " and a few numbers of its four neighbours" : " alone"}. Both are added to what was there.`;

export class BlockStage {
  /** @param {Pane} pane @param {number} layer */
  constructor(pane, layer) {
    this.layer = layer;
    const { model } = pane;
    this.element = stage("block", `Block ${layer + 1}`, layer ? "" : explained(model));
    const maps = make("div", "maps");
    maps.style.setProperty("--count", String(model.heads + 1));
    this.heads = Array.from({ length: model.heads }, (_, head) => new PatchMap(model, model.heads > 1 ? `head ${head + 1}` : "attention"));
    this.strength = new PatchMap(model, "strength");
    this.strength.element.classList.add("strength");
    maps.append(...this.heads.map((map) => map.element), this.strength.element);
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
    const { model } = pane, rows = this.heads.map((_, head) => pane.row(this.layer, head));
    this.heads.forEach((map, head) => {
      const off = model.extra.map((name, i) => `${name} ${percent(rows[head][i])}`).join(", ");
      map.update(pane, pane.onPatches(rows[head]), scale, map.name + (off ? ` (${off})` : ""));
    });
    this.strength.update(pane, pane.onPatches(pane.norms(this.layer + 1)), strengths);
    const shares = pane.lens(this.layer + 1), best = shares.indexOf(Math.max(...shares));
    const places = shares.map((_, i) => i);
    if (model.classes.length > MOST) places.sort((a, b) => shares[b] - shares[a]);
    this.columns.forEach(({ column, fill, name }, at) => {
      const i = places[at];
      fill.style.height = `${100 * shares[i]}%`;
      name.textContent = model.classes[i];
      column.classList.toggle("best", i === best);
    });
    this.saying.replaceChildren("if it ended here: ", make("b", "", model.classes[best]), ` ${percent(shares[best])}`);
    this.lens.setAttribute("aria-label", `After block ${this.layer + 1} it would say ${model.classes[best]}, ${percent(shares[best])}`);
  }
}
