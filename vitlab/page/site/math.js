// @ts-check
// Equations as MathML, which browsers set by themselves.

/** @typedef {Element | string | number} Piece a word in italics, a sign, or a number */

/** @param {string} tag @param {(Element | string)[]} inner @returns {Element} */
function element(tag, ...inner) {
  const made = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  made.append(...inner);
  return made;
}

const SIGNS = /^[=+\u2212\u00b7\u00d7\u2208\u2190\u2211(),[\]\u2225\u2026\u2044]$/;

/** @param {Piece} piece @returns {Element} */
function piece(piece) {
  if (piece instanceof Element) return piece;
  if (typeof piece === "number" || /^[\d.\u2212]*\d[\d.,\u202f%]*$/.test(piece)) return element("mn", String(piece).replace("-", "\u2212"));
  return element(SIGNS.test(piece) ? "mo" : "mi", piece);
}

/** @param {Piece[]} pieces */
export const row = (...pieces) => element("mrow", ...pieces.map(piece));
/** @param {Piece} a @param {Piece} b */
export const sub = (a, b) => element("msub", piece(a), piece(b));
/** @param {Piece} a @param {Piece} b */
export const sup = (a, b) => element("msup", piece(a), piece(b));
/** @param {Piece} a @param {Piece} b */
export const over = (a, b) => element("mfrac", piece(a), piece(b));
/** @param {Piece} a */
export const root = (a) => element("msqrt", piece(a));

/** An equation on a line of its own. @param {Piece[]} pieces */
export function equation(...pieces) {
  const made = element("math", row(...pieces));
  made.setAttribute("display", "block");
  return made;
}
