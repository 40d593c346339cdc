// @ts-check
// The board of patches: point or move with the arrows to choose one; click or press Enter to take it away.
import { mark, paintPicture, tell } from "./maps.js";
import { make } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane @typedef {import("./engine.js").Model} Model */

export class Board {
  /** @param {HTMLElement} holder @param {Model} model */
  constructor(holder, model) {
    this.model = model;
    const stack = make("div", "stack board");
    stack.style.aspectRatio = `${model.width} / ${model.height}`;
    this.canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
    this.outline = make("span", "outline");
    this.grid = make("div", "cells");
    this.grid.setAttribute("role", "group");
    this.grid.setAttribute("aria-label", "Patches: arrows move, Enter takes one away or puts it back, Escape leaves");
    this.grid.style.gridTemplate = `repeat(${model.rows}, 1fr) / repeat(${model.columns}, 1fr)`;
    this.place = Math.floor(model.rows / 2) * model.columns + Math.floor(model.columns / 2);
    this.cells = Array.from({ length: model.rows * model.columns }, (_, patch) => this.cell(patch));
    this.grid.append(...this.cells);
    this.grid.addEventListener("keydown", (event) => this.key(event));
    stack.append(this.canvas, this.grid, this.outline);
    holder.replaceChildren(stack);
  }

  /** @param {number} patch */
  cell(patch) {
    const cell = /** @type {HTMLButtonElement} */ (make("button"));
    let touched = false;
    cell.type = "button";
    cell.tabIndex = patch === this.place ? 0 : -1;
    cell.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch" && this.chosen !== patch; });
    cell.addEventListener("pointerenter", (event) => { if (event.pointerType !== "touch") tell(cell, "point", patch); });
    cell.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") tell(cell, "leave"); });
    cell.addEventListener("focus", () => { if (cell.matches(":focus-visible")) tell(cell, "point", patch); });
    cell.addEventListener("blur", () => tell(cell, "leave"));
    cell.addEventListener("click", () => tell(cell, touched ? "point" : "mask", patch)); // a finger points first
    return cell;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { rows, columns } = this.model, y = Math.floor(this.place / columns), x = this.place % columns;
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -x], End: [0, columns - 1 - x] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)];
    if (event.key === "Escape") tell(this.grid, "leave");
    if (!step) return;
    event.preventDefault();
    this.cells[this.place].tabIndex = -1;
    this.place = Math.min(Math.max(y + step[0], 0), rows - 1) * columns + Math.min(Math.max(x + step[1], 0), columns - 1);
    this.cells[this.place].tabIndex = 0;
    this.cells[this.place].focus();
    tell(this.cells[this.place], "point", this.place);
  }

  /** @param {Pane} pane */
  update(pane) {
    this.chosen = pane.chosen;
    paintPicture(this.canvas, pane.model, pane.pixels, pane.masked);
    mark(this.outline, this.model, pane.chosen);
    this.cells.forEach((cell, patch) => {
      const gone = pane.masked.has(patch), label = `Patch in ${pane.name(patch)}`;
      cell.classList.toggle("gone", gone);
      if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
      cell.setAttribute("aria-pressed", String(gone));
    });
  }
}
