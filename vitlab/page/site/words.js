// @ts-check
// Small things that every view needs: elements, figures in words, rows of choices.

/**
 * @param {string} tag @param {string} [kind] @param {string} [text]
 * @returns {HTMLElement}
 */
export function make(tag, kind = "", text = "") {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.textContent = text;
  return element;
}

/** @typedef {import("./engine.js").Model} Model */

/** Whether pictures for a model can be drawn: grey squares. @param {Model} model */
export const drawable = ({ channels, height, width }) => channels === 1 && height === width;
/** Whether these are digits or letters, which lie in the middle as MNIST's do. @param {Model} model */
export const written = (model) => drawable(model) && model.classes.every((name) => [...name].length === 1);

/** @param {string} name @returns {any} */
export const part = (name) => document.getElementById(name);

/** @param {number} share */
export const percent = (share) =>
  (share > 0.9995 && share < 1 ? "> 99.9" : (100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0).replace(/^-0\.0$/, "0.0").replace("-", "\u2212")) + "\u202f%";

/** @param {number} value */
export const figure = (value) =>
  (value === 0 ? "0" : Number(value.toPrecision(2)).toString()).replace("-", "\u2212");

/** @param {number} value */
export const large = (value) => {
  const [size, name] = value >= 1e9 ? [1e9, " billion"] : value >= 1e6 ? [1e6, " million"] : [1e3, " thousand"];
  return (value / size).toFixed(value / size < 10 ? 1 : 0) + name;
};

/** @param {ArrayLike<number>} logits @returns {number[]} */
export function softmax(logits) {
  const most = Math.max(...Array.from(logits)), raised = Array.from(logits, (one) => Math.exp(one - most));
  const sum = raised.reduce((a, b) => a + b, 0);
  return raised.map((one) => one / sum);
}

/** Show on what was clicked that its work is on its way. @param {HTMLElement} clicked @param {Promise<void> | void} work */
export async function pending(clicked, work) {
  clicked.setAttribute("aria-busy", "true");
  try {
    await work;
  } finally {
    clicked.removeAttribute("aria-busy");
  }
}

/**
 * A row of choices of which one is taken; arrows move between them.
 * @param {HTMLElement} container @param {[any, Node | string, string?][]} options value, content, label
 * @param {any} chosen @param {(value: any) => Promise<void> | void} act
 */
export function choose(container, options, chosen, act) {
  const had = container.contains(document.activeElement);
  const buttons = options.map(([value, content, label]) => {
    const button = /** @type {HTMLButtonElement} */ (make("button"));
    button.type = "button";
    button.setAttribute("role", "radio");
    button.setAttribute("aria-checked", String(value === chosen));
    if (label) button.setAttribute("aria-label", label);
    button.tabIndex = value === chosen ? 0 : -1;
    button.append(content);
    button.addEventListener("click", () => pending(button, act(value)));
    return button;
  });
  if (buttons.length && !buttons.some((button) => button.tabIndex === 0)) buttons[0].tabIndex = 0;
  container.replaceChildren(...buttons);
  container.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = Math.max(buttons.indexOf(/** @type {any} */ (document.activeElement)), 0);
    const next = (place + step + options.length) % options.length;
    buttons[next].focus();
    pending(buttons[next], act(options[next][0]));
  };
  if (had) /** @type {HTMLElement | null} */ (container.querySelector('[tabindex="0"]'))?.focus();
}
