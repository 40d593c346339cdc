// @ts-check
// The engine of a page without a server: onnxruntime-web runs the model here, from files beside the page or within it.
import { bytes, lost } from "./engine.js";
import { covered } from "./grids.js";

/** @typedef {import("./engine.js").Model} Model @typedef {import("./engine.js").Answer} Answer @typedef {import("./engine.js").Picture} Picture */

/** A file within the page, by its name. @param {string} name */
const within = (name) => document.getElementById(`within:${name}`)?.textContent;

const silent = lost("has all of the page arrived?");

/** @param {string} name @returns {Promise<any>} */
async function json(name) {
  const text = within(name);
  return text ? JSON.parse(text) : fetched(name).then((reply) => reply.json()).catch(silent);
}

/** @param {string} name @returns {Promise<Uint8Array>} */
async function binary(name) {
  const text = within(name);
  return text ? bytes(text) : fetched(name).then(async (reply) => new Uint8Array(await reply.arrayBuffer())).catch(silent);
}

/** A file beside the page, if it is there: not the words of a server that has none. @param {string} name */
async function fetched(name) {
  const reply = await fetch(encodeURIComponent(name));
  if (!reply.ok) throw new Error(`${name}: ${reply.status}`);
  return reply;
}

/** Kept for whoever asks next, unless it failed.
 * @template T @param {Map<string, Promise<T>>} kept @param {string} name @param {() => Promise<T>} make @returns {Promise<T>} */
function once(kept, name, make) {
  const found = kept.get(name) ?? make();
  kept.set(name, found);
  found.catch(() => kept.get(name) === found && kept.delete(name));
  return found;
}

/** @param {any[]} sent @returns {Picture[]} */
const pictures = (sent) => sent.map((one) => ({ pixels: bytes(one.pixels), label: one.label }));

/** As the model takes it: (x − mean) / deviation, and 0, which is the mean, in patches that are taken away.
 * @param {Model} model @param {Uint8Array} pixels @param {number[]} masked */
function normalised(model, pixels, masked) {
  const size = model.height * model.width, gone = covered(model, masked), found = new Float32Array(pixels.length);
  for (let i = 0; i < pixels.length; i++) {
    const channel = Math.floor(i / size);
    found[i] = gone[i % size] ? 0 : (pixels[i] / 255 - model.mean[channel]) / model.deviation[channel];
  }
  return found;
}

export class OnnxEngine {
  constructor() {
    /** @type {Map<string, Promise<any>>} */
    this.sessions = new Map();
    /** @type {Promise<any>} */
    this.turn = Promise.resolve(); // one question after another
    /** @type {Map<string, Promise<Model>>} */
    this.known = new Map();
    this.runtime().catch(() => {}); // whoever needs it is told
  }

  runtime() {
    return once(this.sessions, "ort.wasm", () => this.load());
  }

  async load() {
    // @ts-ignore (put beside the page when it is written)
    const ort = await import("./ort.js");
    Object.assign(ort.env.wasm, { numThreads: 1, wasmBinary: (await binary("ort.wasm")).buffer });
    return ort;
  }

  first() {
    return json("first.json");
  }

  /** @returns {Promise<{models: Model[], palettes: string[], study: import("./engine.js").Study | null}>} */
  models() {
    return json("models.json");
  }

  /** @param {string} name @returns {Promise<Model>} */
  model(name) {
    return once(this.known, name, () => json(`${name}.model.json`));
  }

  /** @param {string} name */
  async pictures(name) {
    return pictures(await json(`${name}.pictures.json`));
  }

  /** @param {string} name */
  confusion(name) {
    return json(`${name}.confusion.json`);
  }

  /** @param {string} name @param {number} truth @param {number} guess */
  async cell(name, truth, guess) {
    return pictures((await this.confusion(name)).cells[`${truth} ${guess}`] ?? []);
  }

  /** @param {string} name */
  session(name) {
    return once(this.sessions, name, async () => {
      const [ort, model] = await Promise.all([this.runtime(), binary(`${name}.onnx`)]);
      return ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
    });
  }

  /** @param {Model} model @param {Uint8Array} pixels @param {number[]} masked @param {boolean} relevance @returns {Promise<Answer>} */
  look({ name }, pixels, masked, relevance) {
    const answer = this.turn.then(() => this.answer(name, pixels, masked, relevance));
    this.turn = answer.catch(() => {});
    return answer;
  }

  /** @param {string} name @param {Uint8Array} pixels @param {number[]} masked @param {boolean} relevance @returns {Promise<Answer>} */
  async answer(name, pixels, masked, relevance) {
    const [ort, session, model] = await Promise.all([this.runtime(), this.session(name), this.model(name)]);
    const started = performance.now(), k = model.classes.length;
    const run = (/** @type {number[]} */ without, /** @type {boolean} */ wanted) => session.run({
      picture: new ort.Tensor("float32", normalised(model, pixels, without), [1, model.channels, model.height, model.width]),
      wanted: new ort.Tensor("bool", [wanted], []),
    });
    const found = await run(masked, relevance), last = (/** @type {any} */ one) => Array.from(/** @type {Float32Array} */ (one.lens.data).slice(-k));
    const unmasked = masked.length ? last(await run([], false)) : null;
    const [lens, attention, tokens, norms, shares] = ["lens", "attention", "tokens", "norms", "shares"].map((output) => found[output].data);
    const row = relevance ? found.relevance.data : null;
    return { logits: last(found), unmasked, lens, attention, tokens, norms, shares, relevance: row, milliseconds: performance.now() - started };
  }
}
