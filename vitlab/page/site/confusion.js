// @ts-check
// The confusion matrix: how often each class was taken for each other; a cell opens its pictures.
import { paintPicture } from "./maps.js";
import { make } from "./words.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Picture} Picture */

const MOST = 20; // classes of a matrix that fits a page

/**
 * @param {HTMLElement} holder @param {Model} model @param {import("./engine.js").Confusion} confusion
 * @param {(truth: number, guess: number) => Promise<Picture[]>} open @param {(picture: Picture) => void} take
 */
export function showConfusion(holder, model, { counts, fetched }, open, take) {
  const { classes } = model, section = /** @type {HTMLElement} */ (holder.parentElement);
  section.hidden = classes.length > MOST || !model.tested;
  if (section.hidden) return;
  const most = Math.max(...counts.flatMap((row, i) => row.filter((_, j) => j !== i)), 1);
  const found = make("div", "found");
  found.setAttribute("aria-live", "polite");
  const table = make("table", "matrix"), head = make("tr");
  head.append(make("td", "corner", "true ↓ said →"), ...classes.map((name) => scoped("col", name)));
  const body = counts.map((row, truth) => {
    const line = make("tr");
    line.append(scoped("row", classes[truth]), ...row.map((count, guess) => {
      const cell = make("td", truth === guess ? "right" : "wrong");
      cell.style.setProperty("--share", String(truth === guess ? 0.55 : Math.sqrt(count / most)));
      if (count) cell.append(opener(count, truth, guess));
      return cell;
    }));
    return line;
  });
  table.style.setProperty("--cell", `min(${0.55 * Math.max(...classes.map((name) => name.length)) + 1}rem, 8rem)`);
  table.append(head, ...body);
  const scroll = make("div", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `What ${model.name} takes for what`);
  scroll.append(table);
  const words = make("p", "remark", `${model.tested.toLocaleString("en")} test pictures. Choose a cell to see its pictures, and a picture to watch it go through.`);
  holder.replaceChildren(words, scroll, found);

  /** @param {number} count @param {number} truth @param {number} guess */
  function opener(count, truth, guess) {
    const button = make("button", "", count.toLocaleString("en")), pair = `${classes[truth]} ${truth === guess ? "said right" : `taken for ${classes[guess]}`}`;
    Object.assign(button, { type: "button" });
    button.setAttribute("aria-label", `${pair}: ${count}`);
    button.addEventListener("click", async () => {
      let pictures;
      try {
        pictures = await open(truth, guess);
      } catch (problem) {
        return found.replaceChildren(make("p", "remark", /** @type {Error} */ (problem).message));
      }
      const told = pictures.length === count ? "" : pictures.length ? ` Of ${count.toLocaleString("en")}, ${pictures.length} ${pictures.length === 1 ? "is" : "are"} here.` : " Its pictures are not here.";
      const rest = fetched && !pictures.length ? ` '${fetched}' fetches them.` : "";
      const row = make("div", "pictures");
      row.append(...pictures.map((picture, i) => {
        const one = make("button"), canvas = /** @type {HTMLCanvasElement} */ (make("canvas"));
        paintPicture(canvas, model, picture.pixels);
        Object.assign(one, { type: "button" });
        one.setAttribute("aria-label", `${pair}, picture ${i + 1}`);
        one.append(canvas);
        one.addEventListener("click", () => take(picture));
        return one;
      }));
      found.replaceChildren(make("h3", "", `${pair}`), make("p", "remark", `${told}${rest}`.trim()), row);
    });
    return button;
  }
}

/** @param {string} scope @param {string} name */
function scoped(scope, name) {
  const made = make("th", "", name);
  made.title = name;
  made.setAttribute("scope", scope);
  return made;
}
