// @ts-check
// The page: what is shown, who is asked, and in which order. Every view is a module of its own.
import { Bars } from "./bars.js";
import { Board } from "./board.js";
import { centred } from "./centre.js";
import { showConfusion } from "./confusion.js";
import { Drawing } from "./draw.js";
import { ServerEngine, bytes, decode } from "./engine.js";
import { readFile } from "./files.js";
import { setPalettes, tell } from "./maps.js";
import { Pane } from "./pane.js";
import { markPicture, showPictures } from "./pictures.js";
import { Story } from "./story.js";
import { showStudy } from "./studio.js";
import { themeSwitch } from "./theme.js";
import { tour } from "./tour.js";
import { choose, drawable, figure, part, percent } from "./words.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Picture} Picture */

const HERE = ["127.0.0.1", "localhost", "[::1]"];
const PAUSE = 150; // milliseconds without a stroke after which relevance is asked for
const finger = matchMedia("(hover: none)");
const still = document.documentElement.dataset.engine === "onnx";
const engine = still ? new (await import("./onnx.js")).OnnxEngine() : new ServerEngine();

/** @type {Model[]} */
let models = [];
/** @type {{pane: Pane, bars: Bars, story: Story}[]} */
export let shown = [];
/** @type {Board} */
let board;
/** @type {Picture[]} */
let pictures = [];
const drawing = new Drawing(part("drawing"), drawn);
/** @type {Promise<void> | null} */
let asking = null;
let again = false, timer = 0, turns = 0, given = 0;
/** @type {string | null} */
let calm = null; // what the note said before a complaint
let inStudy = (/** @type {string} */ _name) => {}; // tells the study which model is shown

/** Show some models, each in a pane. @param {Model[]} chosen */
function showModels(chosen) {
  const [first] = chosen, old = shown[0]?.pane;
  const same = old && fits(old.model, first);
  shown = chosen.map((model) => {
    const pane = new Pane(model);
    if (same) Object.assign(pane, { pixels: old.pixels, masked: sameGrid(old.model, model) ? old.masked : new Set() });
    return { pane, bars: new Bars(pane, chosen.length === 1), story: new Story(pane) };
  });
  board = new Board(part("board"), first);
  part("answers").replaceChildren(...shown.map(({ bars }) => bars.element));
  part("panes").replaceChildren(...shown.map(({ story }) => story.element));
  document.body.classList.toggle("two", chosen.length > 1);
  document.body.classList.toggle("given", !drawable(first));
  document.body.classList.toggle("named", first.classes.some((name) => name.length > 2));
  const digits = first.classes.every((name) => /^\d$/.test(name)), task = digits ? "Draw a digit" : "Draw or choose a picture";
  part("title").textContent = `${drawable(first) ? task : "Choose a picture"}, watch the transformer think`;
  part("input-title").textContent = drawable(first) ? "Draw here" : "Your own picture";
}

/** @param {Model} a @param {Model} b */
const fits = (a, b) => a.channels === b.channels && a.height === b.height && a.width === b.width;
/** @param {Model} a @param {Model} b */
const sameGrid = (a, b) => JSON.stringify(a.grids) === JSON.stringify(b.grids);

/** @param {Model} a @param {Model} b */
const sameData = (a, b) => a.data === b.data && a.classes.join() === b.classes.join();

function showChoices() {
  const [{ pane }] = shown, beside = shown[1]?.pane.model.name ?? "";
  const name = (/** @type {Model} */ model) => model.name + (model.accuracy === null ? "" : ` · ${(100 * model.accuracy).toFixed(2)}\u202f%`);
  choose(part("models"), models.map((model) => [model.name, name(model)]), pane.model.name, (chosen) => change(chosen, "").catch(complain));
  const others = models.filter((model) => model !== pane.model && fits(model, pane.model) && sameGrid(model, pane.model));
  choose(part("beside"), [["", "alone"], ...others.map((model) => /** @type {[string, string]} */ ([model.name, `beside ${model.name}`]))],
    beside, (chosen) => change(pane.model.name, chosen).catch(complain));
  part("models").hidden = models.length < 2;
  part("beside").hidden = !others.length;
}

/** All that is shown of the chosen models comes at once, so that no picture meets a model of another size. @param {string} first @param {string} second */
async function change(first, second) {
  const chosen = [first, second].filter(Boolean).map((name) => /** @type {Model} */ (models.find((model) => model.name === name)));
  const turn = ++turns;
  if (chosen.length === shown.length && chosen.every((model, i) => model === shown[i].pane.model)) return;
  const same = fits(shown[0].pane.model, chosen[0]);
  const others = same && sameData(shown[0].pane.model, chosen[0]) ? null : engine.pictures(first);
  const [loaded, confusion] = await Promise.all([others, engine.confusion(first)]);
  if (turn !== turns) return; // another model was chosen since
  showModels(chosen);
  showChoices();
  inStudy(first);
  showCounts(confusion);
  if (loaded) {
    offer(loaded);
    if (!same) choosePicture(0);
  }
  await ask();
}

/** A model of the study, which joins those that can be chosen. @param {string} name */
async function openTrial(name) {
  const turn = ++turns, found = models.find((model) => model.name === name) ?? await engine.model(name);
  if (!models.some((model) => model.name === name)) models = [...models, found];
  if (turn === turns) await change(name, "");
}

/** @param {import("./engine.js").Confusion} confusion */
function showCounts(confusion) {
  const { model } = shown[0].pane;
  showConfusion(part("matrix"), model, confusion, (truth, guess) => engine.cell(model.name, truth, guess), (picture) => {
    choosePicture(picture);
    part("title").scrollIntoView();
  });
}

/** @param {Picture[]} loaded */
function offer(loaded) {
  pictures = loaded;
  showPictures(part("pictures"), shown[0].pane.model, pictures, -1, choosePicture);
}

/** @param {number | Picture} chosen one of those to choose from, or any other */
function choosePicture(chosen) {
  const picture = typeof chosen === "number" ? pictures[chosen] : chosen;
  if (!picture) return;
  const { label, pixels } = picture;
  markPicture(part("pictures"), typeof chosen === "number" ? chosen : -1);
  give(pixels, `True class: ${shown[0].pane.model.classes[label]}.`);
  showOnBoard();
}

/** What was chosen is put on the drawing board too. */
function showOnBoard() {
  board.update(shown[0].pane);
  if (drawable(shown[0].pane.model)) drawing.show(board.canvas);
}

/** A new picture for all panes. @param {Uint8Array} pixels @param {string} text */
function give(pixels, text) {
  given++;
  for (const { pane } of shown) Object.assign(pane, { pixels, masked: new Set() });
  note(text);
  ask();
}

/** @param {string} text */
function note(text) {
  part("note").textContent = text;
  calm = null;
}

function drawn() {
  markPicture(part("pictures"), -1);
  const { width } = shown[0].pane.model;
  give(centred(drawing.ink(), drawing.side, width), drawing.empty ? "Nothing drawn: it must name a class all the same." : "Centred by mass, as MNIST's digits are.");
}

/** Ask every model; while one is asked, strokes do not queue up: the last state is asked next. */
export function ask() {
  again = true;
  clearTimeout(timer);
  asking ??= answerAll();
  return asking;
}

async function answerAll() {
  part("answers").setAttribute("aria-busy", "true");
  while (again) {
    again = false;
    try {
      await Promise.all(shown.map(({ pane }) => answer(pane, false)));
      if (again) continue;
      draw(false);
      unanswered("");
      say();
      if (calm !== null) note(calm);
      timer = setTimeout(addRelevance, PAUSE);
    } catch (problem) {
      if (!again) unanswered(/** @type {Error} */ (problem).message); // what is asked next may well be answered
    }
  }
  part("answers").setAttribute("aria-busy", "false");
  asking = null;
}

/** Why there is no answer, beside which the one before fades; empty where there is one. @param {string} problem */
function unanswered(problem) {
  document.body.classList.toggle("unanswered", shown.some(({ pane }) => pane.behind));
  for (const { bars } of shown) bars.problem.textContent = problem;
  if (problem) part("said").textContent = problem;
}

/** @param {unknown} problem */
function complain(problem) {
  const before = calm ?? part("note").textContent;
  note(/** @type {Error} */ (problem).message);
  calm = before;
}

/** @param {Pane} pane @param {boolean} relevance */
async function answer(pane, relevance) {
  const { pixels, masked } = pane, found = await engine.look(pane.model, pixels, [...masked], relevance);
  if (pane.pixels !== pixels || pane.masked !== masked) return; // another picture has come since
  if (relevance) pane.relevance = found.relevance;
  else Object.assign(pane, { answer: found, answered: [pixels, masked], relevance: null });
}

/** Once the pen rests. */
async function addRelevance() {
  try {
    await Promise.all(shown.map(({ pane }) => answer(pane, true)));
  } catch { /* the next stroke asks again, and says so */ }
  draw();
}

/** @param {boolean} [whole] what nobody sees too, which can wait until the pen rests */
function draw(whole = true) {
  board.update(shown[0].pane);
  for (const { pane, bars, story } of shown) {
    bars.update(pane);
    story.update(pane, whole);
  }
  const { pane } = shown[0];
  part("unmask").hidden = !pane.masked.size;
  part("readout").textContent = pane.chosen === null
    ? finger.matches ? "Tap a patch to see where it looks, and once more to take it away." : "Point at a patch to see where it looks. Click to take it away."
    : `From ${pane.name(pane.chosen)}${pane.masked.has(pane.chosen) ? ", which is taken away" : ""}: rollout gives itself ${figure(pane.rollout()[pane.entry(pane.chosen)])}.`;
  document.dispatchEvent(new Event("drawn"));
}

/** For those who listen: what each model says. */
function say() {
  part("said").textContent = shown.map(({ pane }) => `${shown.length > 1 ? `${pane.model.name}: ` : ""}${pane.model.classes[pane.guess]}, ${percent(pane.probabilities[pane.guess])}`).join("; ");
}

document.addEventListener("patch", (event) => {
  const { what: told, patch } = /** @type {CustomEvent} */ (event).detail;
  const what = told !== "tap" ? told : shown[0].pane.chosen === patch ? "mask" : "point"; // a finger points first
  const now = what === "leave" ? null : patch;
  if (what !== "mask" && shown[0].pane.chosen === now) return;
  for (const { pane } of shown) pane.chosen = now;
  if (what !== "mask") return draw();
  const masked = new Set(shown[0].pane.masked);
  if (!masked.delete(patch)) masked.add(patch);
  for (const { pane } of shown) pane.masked = masked;
  draw();
  ask();
});
document.addEventListener("pointerup", (event) => { // a finger has no other way to leave
  const away = !(/** @type {Element} */ (event.target).closest(".stack, .tour"));
  if (event.pointerType === "touch" && away && shown.length) tell(document.body, "leave");
});
document.addEventListener("theme", () => draw());
part("unmask").addEventListener("click", () => {
  for (const { pane } of shown) pane.masked = new Set();
  board.focus(); // before the button is gone
  ask();
});
part("clear").addEventListener("click", () => { drawing.clear(); drawn(); });

/** @param {File | undefined | null} file */
async function take(file) {
  if (!file) return;
  const turn = ++given;
  try {
    const { model } = shown[0].pane, read = await readFile(file, model);
    if (!fits(model, shown[0].pane.model)) return void take(file); // another model was chosen meanwhile
    if (turn !== given) return; // another picture has come since
    markPicture(part("pictures"), -1);
    give(read.pixels, read.note);
    showOnBoard();
  } catch (problem) {
    if (turn === given) note(/** @type {Error} */ (problem).message);
  }
}
part("file").addEventListener("change", (/** @type {any} */ event) => { take(event.target.files[0]); event.target.value = ""; });
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); take(event.dataTransfer?.files[0]); });
document.addEventListener("paste", (event) => take(event.clipboardData?.files[0]));

/** The stored example first, then the engine. */
async function start() {
  themeSwitch(part("theme"));
  if (!still && !HERE.includes(location.hostname))
    part("where").textContent = `Everything here is computed on ${location.hostname}. Pictures go there and nowhere else.`;
  const first = await engine.first();
  setPalettes(first.palettes);
  models = [first.model];
  showModels(models);
  const [{ pane }] = shown, stored = decode(first.answer);
  const pixels = bytes(first.picture.pixels);
  Object.assign(pane, { pixels, answer: stored, answered: [pixels, pane.masked], relevance: stored.relevance });
  draw();
  showOnBoard();
  document.documentElement.dataset.ready = "stored";
  performance.mark("stored");
  const known = await engine.models(), [{ name }] = known.models;
  const [loaded, confusion] = await Promise.all([engine.pictures(name), engine.confusion(name)]);
  models = [pane.model, ...known.models.slice(1)]; // the stages hold on to the streams of the first
  if (known.study) inStudy = showStudy(part("studio"), known.study, pane.model.name, openTrial);
  tour(() => shown.map(({ pane }) => pane));
  if (models.length === 2 && fits(models[0], models[1]) && sameGrid(models[0], models[1])) showModels(models);
  showChoices();
  offer(loaded);
  showCounts(confusion);
  await ask();
  document.documentElement.dataset.ready = "live";
}

start().catch(complain);
