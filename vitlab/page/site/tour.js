// @ts-check
// The tour: one step for each stage, its equation beside the numbers of the present picture.
import { gridOf, middle, size } from "./grids.js";
import { equation, over, root, row, sub, sup } from "./math.js";
import { figure, make, part, percent } from "./words.js";

/** @typedef {import("./pane.js").Pane} Pane */
/** @typedef {{at: string, title: string, left?: boolean, tell: (pane: Pane) => (Node | string)[]}} Step left: where the panel stands */

const MINUS = "\u2212";
const number = (/** @type {number} */ value, digits = 2) => value.toFixed(digits).replace("-", MINUS);
/** @param {Pane} pane */
const patchOf = (pane) => pane.chosen ?? middle(pane.model.grids[0]);
/** The stream of the patch that is spoken of. @param {Pane} pane */
const streamOf = (pane) => [...pane.sources].reverse().find((stream) => stream.grids[0].first <= patchOf(pane)) ?? pane.sources[0];
/** @param {ArrayLike<number>} values */
const largest = (values) => Array.from(values).reduce((best, value, i, all) => (value > all[best] ? i : best), 0);
/** @param {string} text */
const line = (text) => make("p", "", text);
const normed = (/** @type {boolean} */ is, /** @type {Element | string} */ inner) => (is ? row("norm", "(", inner, ")") : inner);

/** @type {Step[]} */
const STEPS = [
  {
    at: ".ask", title: "A picture is numbers",
    tell: ({ model, pixels }) => {
      const at = largest(pixels.subarray(0, model.height * model.width)), value = pixels[at];
      return [
        line(`The model gets ${model.height}×${model.width}${model.channels === 3 ? "×3" : ""} numbers from 0 to 255. First they are put on a common scale, by the mean μ and the deviation σ of all training pictures.`),
        equation(sub("x", "i"), "←", over(row(sub("x", "i"), "⁄", 255, MINUS, "μ"), "σ")),
        line(`The brightest ${model.channels === 3 ? "red " : ""}pixel, in row ${Math.floor(at / model.width) + 1}, column ${(at % model.width) + 1}:`),
        equation(over(row(number(value, 0), "⁄", 255, MINUS, number(model.mean[0], 4)), number(model.deviation[0], 4)), "=", number((value / 255 - model.mean[0]) / model.deviation[0])),
      ];
    },
  },
  {
    at: ".stage-patches", title: "Cut into patches",
    tell: ({ model }) => [
      line("A transformer works on a list. So the picture is cut into patches of p × p pixels; each will be one item."),
      ...model.grids.map((grid) => equation("n", "=", over("height", "p"), "·", over("width", "p"), "=", over(model.height, model.height / grid.rows), "·", over(model.width, model.width / grid.columns), "=", size(grid))),
    ],
  },
  {
    at: ".stage-tokens", title: "Each patch becomes a token",
    tell: (pane) => {
      const { model, answer } = pane, patch = patchOf(pane), d = model.features, stream = streamOf(pane), start = pane.entry(patch) * d;
      const few = answer ? Array.from(answer.tokens.subarray(start, start + 3), (one) => number(one)) : [];
      return [
        line(`A learned function E turns every patch into d = ${d} numbers: a token. Above, one row for each.`),
        equation(sub("z", "i"), "=", "E", "(", sub("patch", "i"), ")", "∈", sup("ℝ", "d")),
        line(`The patch in ${pane.name(patch)}, with its position:`),
        equation("z", "=", "[", ...few.flatMap((one) => [one, ","]), "…", "]", "∥", "z", "∥", "=", number(pane.norms(stream, 0)[stream.extra.length + patch - stream.grids[0].first], 1)),
      ];
    },
  },
  {
    at: ".stage-positions", title: "Where does it lie?",
    tell: (pane) => {
      const { model } = pane, patch = patchOf(pane), grid = gridOf(model, patch), likeness = pane.positionLikeness(grid, patch), place = patch - grid.first;
      if (model.kinds.positions === "late") return [line("This model adds positions only where its scales are joined, after all blocks.")];
      if (!pane.positions) return [line(model.kinds.positions === "none" ? `This model adds no positions. ${pane.bag ? "Shuffle its patches, and its answer stays the same." : "What it knows of places comes from neighbours that it sees beside a patch."}` : "Nothing is added to the tokens: queries and keys are turned by where they lie, so that attention depends on the distance between patches.")];
      const beside = place % grid.columns ? place - 1 : place + 1, far = place < size(grid) / 2 ? size(grid) - 1 : 0;
      return [
        line("A list has no rows and columns, so to each token a vector for its place is added."),
        equation(sub("z", "i"), "←", sub("z", "i"), "+", sub("p", "i")),
        line(`How alike is the place in ${pane.name(patch)} to the one beside it, and to a far corner?`),
        equation("cos", "(", sub("p", "i"), ",", sub("p", "beside"), ")", "=", number(likeness[beside])),
        equation("cos", "(", sub("p", "i"), ",", sub("p", "far"), ")", "=", number(likeness[far])),
        ...(model.kinds.positions === "rotary" ? [line("Each block also turns queries and keys by where they lie, so that attention feels the distance too.")] : []),
      ];
    },
  },
  {
    at: ".stage-block", title: "Attention: tokens look at each other",
    tell: (pane) => {
      const { model } = pane, stream = streamOf(pane), first = pane.row(stream, 0, 0), e = model.features / stream.heads;
      const weights = pane.onGrids(stream, first).flat(), best = largest(weights);
      const sum = first.reduce((a, b) => a + b, 0), many = stream.heads === 1 ? "one head looks" : `${stream.heads} heads look`;
      const score = (/** @type {string} */ k) => row("softmax", "(", over(row("Q", sup(k, "T")), root(model.scale === "width" ? "d" : "e")), ")");
      const kinds = {
        softmax: equation("A", "=", score("K")), linformer: equation("A", "=", score("K′"), sup("F", "T")),
        locality: equation("A", "=", score("K"), ",", sub("A", "ii"), "=", 0), uniform: equation(sub("A", "ij"), "=", over(1, "n")),
      };
      return [
        line(model.kinds.attention === "uniform" ? "Here nobody asks: every token gathers the same from all, which is as simple as attention can be." : `Each token asks (its query) and is asked (its key). How well they match, over all others, is where it looks. Here ${many}, each with its own questions of e = ${e} numbers${model.normalised ? ", and both are normalised first" : ""}.`),
        kinds[/** @type {keyof typeof kinds} */ (model.kinds.attention)] ?? equation("A", "=", "A", "(", "z", ")"),
        line(`Block 1, head 1, ${pane.looking}: ${model.kinds.attention === "uniform" ? "the same on every patch" : `most on ${pane.name(stream.grids[0].first + best)}`}, and all weights sum to`),
        equation("A", "=", figure(weights[best]), ",", "∑", "A", "=", number(sum, 3)),
        line("Point at any patch, here or above, to see where it looks."),
      ];
    },
  },
  {
    at: ".stage-block", title: "A block adds to what is there",
    tell: (pane) => {
      const { model } = pane, stream = streamOf(pane), token = stream.extra.length + patchOf(pane) - stream.grids[0].first;
      const { norm } = model, after = norm === "after", before = norm === "before", between = norm === "between";
      const lengths = Array.from({ length: stream.layers + 1 }, (_, step) => pane.norms(stream, step)[token]), strengths = lengths.map((one) => number(one, 1));
      const becomes = after ? "is brought to much the same length by every block" : lengths[stream.layers] > lengths[0] ? "grows" : "changes";
      return [
        line(`What was gathered is added to the token, not put in its place; then a small network (MLP) works on each token${model.shift ? `, here with ${model.shift} numbers of each neighbour` : " alone"}, and is added too.`),
        equation("z", "←", normed(after || between, row("z", "+", "attention", "(", normed(before || between, "z"), ")"))),
        equation("z", "←", normed(after, row("z", "+", "MLP", "(", normed(before, "z"), ")"))),
        line(`So the token in ${pane.name(patchOf(pane))} ${becomes}, from before the first block to after the last:`),
        equation("∥", "z", "∥", "=", ...strengths.flatMap((one, i) => (i ? [",", one] : [one]))),
      ];
    },
  },
  {
    at: ".lens-holder", title: "When does it know?", left: true,
    tell: (pane) => [
      line("The head can be asked after every block, though it was only trained on the last. This is the logit lens: watch the answer form."),
      list(Array.from({ length: pane.sources[0].layers + 1 }, (_, step) => {
        const shares = pane.lens(step), best = largest(shares);
        return [step ? `after block ${step}` : "before the first", pane.model.classes[best], percent(shares[best])];
      })),
    ],
  },
  {
    at: ".stage-head", title: "From numbers to an answer",
    tell: (pane) => {
      const { model, answer, guess } = pane, logits = answer?.logits ?? [];
      const token = (/** @type {string | number} */ which) => normed(model.finalNorm, sub("z", which));
      const read = { mean: row(over(1, "n"), "∑", token("i")), "class-token": token("class"), "first-token": token(1), "sequence-pool": row("∑", sub("α", "i"), token("i")) };
      const sum = logits.reduce((total, one) => total + Math.exp(one), 0);
      return [
        line("What the head reads is weighed once for each class (the logits), and softmax makes probabilities of them."),
        equation("ℓ", "=", "W", read[/** @type {keyof typeof read} */ (model.kinds.head)] ?? normed(model.finalNorm, "z"), "+", "b", ",", sub("p", "k"), "=", over(sup("e", sub("ℓ", "k")), row("∑", sup("e", sub("ℓ", "j"))))),
        line(`For ${model.classes[guess]}:`),
        equation("p", "=", over(sup("e", number(logits[guess] ?? 0)), number(sum)), "=", number(pane.probabilities[guess] ?? 0, 3)),
      ];
    },
  },
  {
    at: ".stage-head .maps", title: "Which map tells the truth?",
    tell: (pane) => [
      line("Rollout multiplies the attention of all layers, from the last to the first."),
      equation("r", "←", "r", over(row("I", "+", sub("A", "mean")), 2)),
      line("Relevance keeps only what pushes the class's logit up."),
      equation("r", "←", "r", row("(", "I", "+", sup(row("(", "∇A", "·", "A", ")"), "+"), ")")),
      line(pane.masked.size && pane.answer?.unmasked
        ? `You took ${pane.masked.size} ${pane.masked.size === 1 ? "patch" : "patches"} away: see how the bars moved.`
        : "Click the brightest patches away on any map, and see whether the bars move. If they do not, the map was no guide."),
    ],
  },
];

/** @param {string[][]} lines */
function list(lines) {
  const table = make("table", "steps");
  for (const cells of lines) {
    const made = make("tr");
    made.append(...cells.map((text, i) => make(i ? "td" : "th", "", text)));
    table.append(made);
  }
  return table;
}

/** @param {() => Pane[]} current the first is spoken of */
export function tour(current) {
  const panel = part("tour"), opener = part("tour-start");
  let place = -1;
  const close = () => {
    panel.hidden = true;
    place = -1;
    document.querySelector(".touring")?.classList.remove("touring");
    opener.focus();
  };
  const body = make("div", "tour-body"), heading = make("h2"), count = make("p", "eyebrow");
  const button = (/** @type {string} */ name, /** @type {string} */ id, /** @type {() => void} */ act) => {
    const made = make("button", id === "tour-next" ? "strong" : "", name);
    Object.assign(made, { type: "button", id });
    made.addEventListener("click", act);
    return made;
  };
  const buttons = make("div", "row");
  const back = button("Back", "tour-back", () => go(place - 1)), next = button("Next", "tour-next", () => go(place + 1));
  buttons.append(back, next, button("Close", "tour-close", close));
  panel.append(count, heading, body, buttons);
  heading.tabIndex = -1;

  const fill = () => {
    if (place < 0) return;
    const [pane, beside] = current();
    count.textContent = `Step ${place + 1} of ${STEPS.length}${beside ? `, with the numbers of ${pane.model.name}` : ""}`;
    body.replaceChildren(...STEPS[place].tell(pane));
  };
  const go = (/** @type {number} */ to) => {
    if (to >= STEPS.length) return close();
    place = Math.max(to, 0);
    panel.hidden = false;
    heading.textContent = STEPS[place].title;
    panel.classList.toggle("left", Boolean(STEPS[place].left));
    /** @type {any} */ (back).disabled = place === 0;
    next.textContent = place === STEPS.length - 1 ? "Done" : "Next";
    document.querySelector(".touring")?.classList.remove("touring");
    const target = document.querySelector(STEPS[place].at);
    target?.classList.add("touring");
    target?.scrollIntoView({ block: "start" }); // above the panel
    fill();
    panel.scrollTop = 0;
    heading.focus({ preventScroll: true });
  };
  opener.hidden = false;
  opener.addEventListener("click", () => go(0));
  panel.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") close();
    if (event.key === "ArrowRight") go(place + 1);
    if (event.key === "ArrowLeft") go(place - 1);
  });
  document.addEventListener("drawn", fill);
}
