// @ts-check
// A study: accuracy against cost, a dot for each point of its settings; a dot opens that very model.
import { choose, make, pending } from "./words.js";

/** @typedef {import("./engine.js").Study} Study @typedef {import("./engine.js").Point} Point */
/** @typedef {"seconds" | "parameters"} Cost */

const COSTS = /** @type {[Cost, string, string][]} */ ([["seconds", "time", "seconds of training"], ["parameters", "weights", "weights"]]);
const KEYS = "arrows move between points, Enter opens one's model";

/** Round numbers on an axis of powers. @param {number} low @param {number} high */
function powers(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), digits = last - first > 2 ? [1] : [1, 2, 5], found = [];
  for (let power = first; power <= last; power++) found.push(...digits.map((digit) => digit * 10 ** power));
  const inside = found.filter((mark) => mark >= low && mark <= high);
  return inside.length > 1 ? inside : [low, high];
}

/** Round numbers on an even axis. @param {number} low @param {number} high */
function steps(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough)), step = power * ([1, 2, 5].find((one) => one * power >= rough) ?? 10);
  const found = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high + step / 1e6; mark += step) found.push(mark);
  return found;
}

/** @param {number} value */
const amount = (value) => (value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}\u202fM` : value >= 1e3 ? `${+(value / 1e3).toPrecision(3)}\u202fk` : `${+value.toPrecision(2)}`);
/** @param {number} share */
const percent = (share) => `${(100 * share).toFixed(1)}\u202f%`;

/** What a point is, in a sentence. @param {Point} point @param {Cost} cost */
const described = (point, cost) =>
  `${point.name}: ${point.figure}, ${point.time} of training, ${point.parameters.toLocaleString("en")} weights`
  + `${point.fronts.includes(cost) ? ", on the front" : ""}${point.chosen ? ", recommended" : ""}`;

/** Where values lie between the ends of an axis, in percent, with room on both sides.
 * @param {number} low @param {number} high @param {(value: number) => number} scale */
function axis(low, high, scale) {
  const [a, b] = [scale(low), scale(high)], room = 0.06 * (b - a) || 0.5;
  return (/** @type {number} */ value) => (100 * (scale(value) - a + room)) / (b - a + 2 * room);
}

/**
 * @param {HTMLElement} section @param {Study} study @param {string} opened the model that is shown already
 * @param {(name: string) => Promise<void>} open
 * @returns {(name: string) => void} to be told which model is shown
 */
export function showStudy(section, study, opened, open) {
  const { points } = study;
  /** @type {Cost} */
  let cost = study.devices.length > 1 ? "parameters" : "seconds";
  let shown = Math.max(points.findIndex((point) => point.runs.some((run) => run.model === opened)), 0), problem = "";
  const heading = make("h2", "", `The study ${study.name}: accuracy against cost`), costs = make("div", "choices"), chart = make("div", "chart");
  const details = make("div", "card details"), row = make("div", "studio-row"), figure = make("div");
  heading.id = "studio-title";
  costs.setAttribute("role", "radiogroup");
  costs.setAttribute("aria-label", "Cost");
  chart.setAttribute("role", "group");
  chart.setAttribute("aria-label", `Points of the study: ${KEYS}`);
  details.setAttribute("aria-live", "polite");
  figure.append(costs, chart, legend());
  row.append(figure, details);
  section.replaceChildren(heading, make("p", "remark", `Each dot is one choice of settings, by its accuracy on held-out pictures${points.some((point) => point.runs.length > 1) ? ", mean over seeds" : ""}. Choose a dot, and its model thinks below: ${KEYS}.`), row);
  section.hidden = false;
  /** @type {HTMLElement[]} */
  let dots = [];

  function legend() {
    const list = make("ul", "dots-legend");
    for (const [kind, text] of [["front", "on the front: no other is cheaper and as accurate"], ["", "the others"], ["front chosen", "recommended"], ["shown", "shown below"], ["absent", "without its model here"]]) {
      if (kind === "absent" && points.every((point) => point.runs.some((run) => run.model))) continue;
      const item = make("li");
      item.append(make("span", `dot ${kind}`), text);
      list.append(item);
    }
    return list;
  }

  function draw() {
    const prices = points.map((point) => point[cost]), ends = points.flatMap(({ accuracy, margin }) => [accuracy - (margin ?? 0), accuracy + (margin ?? 0)]);
    const low = Math.max(Math.min(...ends), 0), high = Math.min(Math.max(...ends), 1), [least, most] = [Math.min(...prices), Math.max(...prices)];
    const across = axis(least, most, Math.log10), up = axis(low, high, (value) => value);
    const clipped = (/** @type {number} */ share) => up(Math.min(Math.max(share, low), high));
    const marks = [...steps(low, high).map((mark) => label("level", percent(mark), "bottom", up(mark))), ...powers(least, most).map((mark) => label("mark", amount(mark), "left", across(mark)))];
    const order = points.map((_, i) => i).sort((a, b) => points[a][cost] - points[b][cost]);
    const front = order.filter((i) => points[i].fronts.includes(cost)).map((i) => points[i]);
    const whiskers = points.flatMap((point) => (point.margin === null ? [] : [whisker(across(point[cost]), clipped(point.accuracy - point.margin), clipped(point.accuracy + point.margin))]));
    dots = [];
    const buttons = order.map((i) => { dots[i] = dot(points[i], i, across(points[i][cost]), up(points[i].accuracy)); return dots[i]; });
    const name = COSTS.find(([one]) => one === cost)?.[2] ?? "";
    chart.replaceChildren(...marks, line(front.map((point) => [across(point[cost]), up(point.accuracy)])), ...whiskers, ...buttons, make("span", "axis-name", `${name}, by factors →`));
    choose(costs, COSTS.map(([value, text]) => [value, text]), cost, (value) => { cost = value; draw(); });
    mark();
  }

  /** @param {Point} point @param {number} place @param {number} x @param {number} y */
  function dot(point, place, x, y) {
    const has = point.runs.some((run) => run.model);
    const button = make("button", `dot${point.fronts.includes(cost) ? " front" : ""}${point.chosen ? " chosen" : ""}${has ? "" : " absent"}`);
    Object.assign(button, { type: "button", title: described(point, cost) });
    button.setAttribute("aria-label", described(point, cost));
    Object.assign(button.style, { left: `${x}%`, bottom: `${y}%` });
    button.addEventListener("focus", () => { if (button.matches(":focus-visible")) show(place); });
    button.addEventListener("click", () => { show(place); pending(button, take(point.runs.find((run) => run.model)?.model ?? null)); });
    return button;
  }

  chart.addEventListener("keydown", (event) => {
    const ways = { ArrowRight: [cost, 1], ArrowLeft: [cost, -1], ArrowUp: ["accuracy", 1], ArrowDown: ["accuracy", -1] };
    const way = ways[/** @type {keyof typeof ways} */ (event.key)];
    if (!way) return;
    event.preventDefault();
    const by = /** @type {Cost | "accuracy"} */ (way[0]), order = points.map((_, i) => i).sort((a, b) => points[a][by] - points[b][by]);
    const next = order[order.indexOf(shown) + Number(way[1])];
    if (next === undefined) return;
    show(next);
    dots[next].focus();
  });

  /** @param {number} place */
  function show(place) {
    if (place !== shown) problem = "";
    shown = place;
    mark();
  }

  /** @param {string | null} name */
  async function take(name) {
    if (!name) return mark();
    problem = "";
    try {
      await open(name);
    } catch (refusal) {
      if (points[shown].runs.some((run) => run.model === name)) problem = /** @type {Error} */ (refusal).message;
    }
    mark();
  }

  function mark() {
    dots.forEach((one, i) => {
      one.tabIndex = i === shown ? 0 : -1;
      one.setAttribute("aria-pressed", String(points[i].runs.some((run) => run.model === opened)));
    });
    const point = points[shown], models = point.runs.filter((run) => run.model);
    const list = make("dl", "settings");
    /** @type {[string, string][]} */
    const lines = [...Object.entries(point.settings), ["held-out accuracy", point.figure], ["training", point.time], ["weights", point.parameters.toLocaleString("en")],
      ["front", point.fronts.length ? COSTS.filter(([one]) => point.fronts.includes(one)).map(([, name]) => name).join(", ") : "none"]];
    for (const [name, value] of lines) list.append(make("dt", "", name), make("dd", "", value));
    const seeds = make("div", "choices");
    seeds.setAttribute("role", "radiogroup");
    seeds.setAttribute("aria-label", "Seed");
    if (point.runs.length > 1) choose(seeds, models.map((run) => [run.model, `seed ${run.seed} · ${percent(run.accuracy)}`]), opened, take);
    const here = models.some((run) => run.model === opened);
    const state = problem || (here ? "Its model is the one below." : models.length ? "Choose it to see its model think." : "Its model is not in this page; these are its figures.");
    const parts = [make("h3", "", point.name), list, seeds, make("p", problem ? "remark problem" : "remark", state)];
    if (here) {
      const link = /** @type {HTMLAnchorElement} */ (make("a", "", "Watch it think"));
      link.href = "#ask";
      parts.push(link);
    }
    if (point.chosen) parts.push(make("p", "remark", `Recommended: ${study.evidence} ${study.caveat}`));
    const had = details.contains(document.activeElement);
    details.replaceChildren(...parts);
    if (had) /** @type {HTMLElement | null} */ (seeds.querySelector('[tabindex="0"]'))?.focus();
  }

  draw();
  return (name) => {
    const place = points.findIndex((point) => point.runs.some((run) => run.model === name));
    opened = name;
    show(place < 0 ? shown : place);
  };
}

/** A mark of an axis with its rule. @param {string} kind @param {string} text @param {"left" | "bottom"} side @param {number} at */
function label(kind, text, side, at) {
  const made = make("span", kind);
  made.append(make("span", "", text));
  made.style[side] = `${at}%`;
  return made;
}

/** @param {number} x @param {number} low @param {number} high */
function whisker(x, low, high) {
  const made = make("span", "whisker");
  Object.assign(made.style, { left: `${x}%`, bottom: `${low}%`, height: `${high - low}%` });
  return made;
}

/** The front as a line of steps. @param {number[][]} corners */
function line(corners) {
  const name = "http://www.w3.org/2000/svg", svg = document.createElementNS(name, "svg"), path = document.createElementNS(name, "path");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const [[x, y], ...rest] = corners;
  path.setAttribute("d", `M${x} ${100 - y}${rest.map(([toX, toY]) => `H${toX}V${100 - toY}`).join("")}H100`);
  svg.append(path);
  return svg;
}
