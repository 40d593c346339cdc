// @ts-check
// The frame of a stage: a number, a name, a sentence.
import { make } from "./words.js";

/** @param {string} kind @param {string} name @param {string} text */
export function stage(kind, name, text) {
  const element = make("article", `stage stage-${kind}`);
  element.dataset.stage = kind;
  element.append(make("h3", "", name), make("p", "remark", text));
  return element;
}
