// @ts-check
// The engine: whoever answers what a model does with a picture. This one asks the local server; another with the same
// methods may answer in the browser itself.

/**
 * @typedef {{rows: number, columns: number, first: number}} Grid first: the number of its first patch
 *
 * @typedef {object} Stream A sequence of tokens and the blocks it goes through.
 * @property {string[]} extra names of the tokens before the patches
 * @property {Grid[]} grids
 * @property {number} layers
 * @property {number} heads
 * @property {string} reading
 * @property {number[]} before the streams that feed it, by their places
 *
 * @typedef {object} Model What the page knows of a model before any picture.
 * @property {string} name
 * @property {string} weights by which it is known from another of its name
 * @property {string} data
 * @property {string[]} classes
 * @property {number} channels
 * @property {number} height
 * @property {number} width
 * @property {Grid[]} grids of patches, one for each scale
 * @property {Stream[]} streams of tokens: those that are cut from the picture, then the one that joins them, if any
 * @property {number} features
 * @property {{tokens: string, positions: string, attention: string, head: string}} kinds
 * @property {string} norm where blocks have it
 * @property {boolean} finalNorm whether what the head reads is normalised
 * @property {number} shift features that the MLP reads from each neighbour
 * @property {number} temperature by which 'vitlab predict' divides the logits
 * @property {number} smoothing of the labels it learned from
 * @property {number[]} mean of the data's colours, from 0 to 1
 * @property {number[]} deviation
 * @property {string} scale by which attention's scores are divided
 * @property {boolean} normalised whether queries and keys are
 * @property {string | null} positions
 * @property {number | null} accuracy none where there were no test pictures
 * @property {number} low
 * @property {number} high
 * @property {number} tested
 * @property {number} parameters
 * @property {number} flops
 *
 * @typedef {object} Answer What a model did with a picture; each array is row after row.
 * @property {number[]} logits
 * @property {number[] | null} unmasked
 * @property {Float32Array} lens (layers + 1, classes)
 * @property {Float32Array} attention (layers, heads, n, n) of each stream, one after another
 * @property {Float32Array} tokens (n, d)
 * @property {Float32Array} norms (layers + 1, n) of each stream
 * @property {Float32Array} shares (n,) of each stream: how much each token counts for what comes next
 * @property {Float32Array | null} relevance (n,)
 * @property {number} milliseconds
 *
 * @typedef {{pixels: Uint8Array, label: number}} Picture
 *
 * @typedef {{counts: number[][], fetched: string | null}} Confusion fetched: the command that fetches the pictures, where one does
 *
 * @typedef {object} Point Settings of a study, and what they reach on held-out pictures.
 * @property {string} name
 * @property {{[name: string]: string}} settings
 * @property {number} accuracy
 * @property {number | null} margin
 * @property {string} figure the accuracy in words
 * @property {number} seconds of training
 * @property {string} time the same in words
 * @property {number} parameters
 * @property {string[]} fronts the costs for which no other point beats it
 * @property {boolean} chosen whether it is the recommended one
 * @property {{seed: number, accuracy: number, model: string | null}[]} runs none where the model cannot be opened
 *
 * @typedef {{name: string, evidence: string, caveat: string, devices: string[], points: Point[]}} Study
 */

/** @param {string} text @returns {Uint8Array} */
export const bytes = (text) => {
  const direct = /** @type {any} */ (Uint8Array).fromBase64; // which not every browser has yet
  if (direct) return direct(text);
  const raw = atob(text), found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
};

/** @param {string} text */
export const floats = (text) => new Float32Array(bytes(text).buffer);

/** @param {Uint8Array} values */
const coded = (values) => {
  let text = "";
  for (const value of values) text += String.fromCharCode(value);
  return btoa(text);
};

/** @param {any} sent @returns {Answer} */
export const decode = (sent) => ({
  ...sent,
  lens: floats(sent.lens), attention: floats(sent.attention), tokens: floats(sent.tokens), norms: floats(sent.norms), shares: floats(sent.shares),
  relevance: sent.relevance ? floats(sent.relevance) : null,
});

/** @param {string} question what may be the matter */
export const lost = (question) => () => { throw new Error(`The engine does not answer: ${question}`); };

/** @param {string} address @param {RequestInit} [options] */
async function ask(address, options) {
  const silent = lost("is 'vitlab page' still running?"), reply = await fetch(address, options).catch(silent);
  const found = await reply.json().catch(silent);
  if (!reply.ok) throw new Error(found.problem ?? "the server gave no answer");
  return found;
}

export class ServerEngine {
  first() {
    return ask("first.json");
  }

  /** @returns {Promise<{models: Model[], palettes: string[], study: Study | null}>} */
  models() {
    return ask("api/models");
  }

  /** @param {string} name @returns {Promise<Model>} */
  model(name) {
    return ask(`api/models/${encodeURIComponent(name)}`);
  }

  /** @param {string} name @returns {Promise<Picture[]>} */
  async pictures(name) {
    const sent = await ask(`api/models/${encodeURIComponent(name)}/pictures`);
    return sent.map((/** @type {any} */ one) => ({ pixels: bytes(one.pixels), label: one.label }));
  }

  /** @param {string} name @returns {Promise<Confusion>} */
  confusion(name) {
    return ask(`api/models/${encodeURIComponent(name)}/confusion`);
  }

  /** Test pictures of one class that were taken for another. @param {string} name @param {number} truth @param {number} guess @returns {Promise<Picture[]>} */
  async cell(name, truth, guess) {
    const sent = await ask(`api/models/${encodeURIComponent(name)}/confusion/${truth}/${guess}`);
    return sent.map((/** @type {any} */ one) => ({ pixels: bytes(one.pixels), label: one.label }));
  }

  /** @param {Model} model @param {Uint8Array} pixels @param {number[]} masked @param {boolean} relevance */
  async look({ name, weights }, pixels, masked, relevance) {
    const body = JSON.stringify({ pixels: coded(pixels), masked, relevance, weights });
    const headers = { "content-type": "application/json" };
    return decode(await ask(`api/models/${encodeURIComponent(name)}/look`, { method: "POST", headers, body }));
  }
}
