// @ts-check
// What a model says: a bar for each class, and how it moved since patches were taken away.
import { large, make, percent, softmax } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */

const MOST = 10; // classes that are shown

/** Why it never says 100 %. @param {import("./engine.js").Model} model */
const modest = ({ smoothing, classes }) =>
  smoothing ? `. Label smoothing taught it to stop at ${percent(1 - smoothing + smoothing / classes.length)}.` : "";

/** What 'vitlab predict' says of the same picture, where the run was calibrated. @param {Pane} pane */
const calibrated = ({ model, answer, guess }) =>
  model.temperature === 1 || !answer ? "" : `. Calibrated, as 'vitlab predict' says it: ${percent(softmax(answer.logits.map((one) => one / model.temperature))[guess])}`;

export class Bars {
  /** @param {Pane} pane @param {boolean} alone */
  constructor(pane, alone) {
    this.element = make("div", "card said");
    this.heading = make("h2", "", alone ? "What it says" : pane.model.name);
    this.problem = make("p", "problem");
    this.guess = make("p", "guess");
    this.list = make("ol", "bars");
    this.facts = make("p", "remark facts-line");
    this.element.append(this.heading, this.problem, this.guess, this.list, this.facts);
    this.element.setAttribute("role", "group");
    this.element.setAttribute("aria-label", `What ${pane.model.name} says`);
    const shown = Math.min(pane.model.classes.length, MOST);
    this.list.style.setProperty("--letters", String(1 + Math.max(...pane.model.classes.map((name) => name.length))));
    this.list.style.maxHeight = `${2 * shown}rem`; // a few bars stay together
    this.lines = Array.from({ length: shown }, () => {
      const line = make("li"), name = make("span", "class"), bar = make("span", "bar"), fill = make("span", "fill");
      const ghost = make("span", "ghost"), value = make("span", "value"), moved = make("span", "moved");
      bar.append(fill, ghost);
      line.append(name, bar, value, moved);
      this.list.append(line);
      return { line, name, fill, ghost, value, moved };
    });
  }

  /** @param {Pane} pane */
  update(pane) {
    if (!pane.answer) return;
    const shares = pane.probabilities, { classes } = pane.model, before = pane.answer.unmasked && softmax(pane.answer.unmasked);
    const places = shares.map((_, i) => i);
    if (classes.length > MOST) places.sort((a, b) => shares[b] - shares[a]);
    this.lines.forEach(({ line, name, fill, ghost, value, moved }, row) => {
      const i = places[row], change = before ? shares[i] - before[i] : 0;
      line.classList.toggle("best", i === pane.guess);
      Object.assign(name, { textContent: classes[i], title: classes[i] });
      fill.style.width = `${100 * shares[i]}%`;
      ghost.hidden = !before;
      ghost.style.left = `${100 * (before?.[i] ?? 0)}%`;
      value.textContent = percent(shares[i]);
      const points = Math.round(100 * change);
      moved.textContent = points ? `${points > 0 ? "+" : "\u2212"}${Math.abs(points)}` : "";
    });
    this.guess.replaceChildren(make("b", "", classes[pane.guess]), document.createTextNode(` ${percent(shares[pane.guess])}`));
    const took = pane.answer.milliseconds ? ` · thought for ${pane.answer.milliseconds.toFixed(0)} ms` : "";
    this.facts.textContent = before ? "In points: what the missing patches changed." : `${large(pane.model.flops)} operations${took}${calibrated(pane)}${modest(pane.model)}`;
  }
}
