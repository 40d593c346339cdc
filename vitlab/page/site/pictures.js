// @ts-check
// Test pictures to choose from.
import { paintPicture } from "./maps.js";
import { choose, make } from "./words.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Picture} Picture */

/** @param {HTMLElement} holder @param {Model} model @param {Picture[]} pictures @param {number} chosen @param {(place: number) => void} act */
export function showPictures(holder, model, pictures, chosen, act) {
  choose(holder, pictures.map(({ pixels, label }, place) => {
    const canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
    paintPicture(canvas, model, pixels);
    return [place, canvas, `${model.classes[label]}, picture ${place + 1}`];
  }), chosen, act);
  const section = /** @type {HTMLElement} */ (holder.parentElement);
  section.hidden = !pictures.length;
}

/** @param {HTMLElement} holder @param {number} chosen */
export function markPicture(holder, chosen) {
  [...holder.children].forEach((button, place) => {
    button.setAttribute("aria-checked", String(place === chosen));
    /** @type {HTMLElement} */ (button).tabIndex = place === Math.max(chosen, 0) ? 0 : -1;
  });
}
