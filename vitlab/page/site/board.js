// @ts-check
// The board of patches: point or move with the arrows to choose one; click or press Enter to take it away.
import { middle } from "./grids.js";
import { mark, paintPicture, tell } from "./maps.js";
import { choose, make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./engine.js").Model} Model */

export class Board {
  /** @param {HTMLElement} holder @param {Model} model */
  constructor(holder, model) {
    this.model = model;
    this.grid = model.grids[0];
    this.place = middle(this.grid);
    /** @type {HTMLButtonElement[]} */
    this.cells = [];
    /** @type {Pane | null} */
    this.pane = null;
    const choices = make("div", "choices");
    choices.setAttribute("role", "radiogroup");
    choices.setAttribute("aria-label", "Size of the patches");
    const stack = make("div", "stack board");
    stack.style.aspectRatio = `${model.width} / ${model.height}`;
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.outline = make("span", "outline");
    this.area = make("div", "cells");
    this.area.setAttribute("role", "group");
    this.area.setAttribute("aria-label", "Patches: arrows move, Enter takes one away or puts it back, Escape leaves");
    this.area.addEventListener("keydown", (event) => this.key(event));
    stack.append(this.canvas, this.area, this.outline);
    holder.replaceChildren(...(model.grids.length > 1 ? [choices, stack] : [stack]));
    const cut = (/** @type {number} */ which) => {
      this.grid = model.grids[which];
      this.lay();
      choose(choices, model.grids.map((grid, i) => [i, `${grid.rows}×${grid.columns} patches`]), which, cut);
      if (this.pane) this.update(this.pane);
    };
    cut(0);
  }

  /** A cell for each patch of the grid. */
  lay() {
    const { rows, columns, first } = this.grid;
    this.place = middle(this.grid);
    this.area.style.gridTemplate = `repeat(${rows}, 1fr) / repeat(${columns}, 1fr)`;
    this.cells = Array.from({ length: rows * columns }, (_, i) => this.cell(first + i));
    this.area.replaceChildren(...this.cells);
  }

  /** @param {number} patch */
  cell(patch) {
    const cell = /** @type {HTMLButtonElement} */ (make("button"));
    let last = "mouse";
    cell.type = "button";
    cell.tabIndex = patch === this.place ? 0 : -1;
    cell.addEventListener("pointerdown", (event) => { last = event.pointerType; });
    cell.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") tell(cell, "point", patch); });
    cell.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tell(cell, "leave"); });
    cell.addEventListener("focus", () => { if (cell.matches(":focus-visible")) tell(cell, "point", patch); });
    cell.addEventListener("blur", () => tell(cell, "leave"));
    cell.addEventListener("click", () => tell(cell, last === "touch" ? "tap" : "mask", patch));
    return cell;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { rows, columns, first } = this.grid, y = Math.floor((this.place - first) / columns), x = (this.place - first) % columns;
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -x], End: [0, columns - 1 - x] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (event.key === "Escape") tell(this.area, "leave");
    if (!step) return;
    event.preventDefault();
    this.cells[this.place - first].tabIndex = -1;
    this.place = first + Math.min(Math.max(y + step[0], 0), rows - 1) * columns + Math.min(Math.max(x + step[1], 0), columns - 1);
    const cell = this.cells[this.place - first];
    cell.tabIndex = 0;
    cell.focus();
    tell(cell, "point", this.place);
  }

  focus() {
    this.cells[this.place - this.grid.first].focus({ preventScroll: true });
  }

  /** @param {Pane} pane */
  update(pane) {
    this.pane = pane;
    paintPicture(this.canvas, pane.model, pane.pixels, pane.masked);
    mark(this.outline, this.model, pane.chosen);
    this.cells.forEach((cell, i) => {
      const patch = this.grid.first + i, gone = pane.masked.has(patch), label = `Patch in ${pane.name(patch)}`;
      cell.classList.toggle("gone", gone);
      if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
      cell.setAttribute("aria-pressed", String(gone));
    });
  }
}
