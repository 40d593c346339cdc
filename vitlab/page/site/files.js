// @ts-check
// Picture files: decoded here, cut and scaled to what a model takes. Nothing is uploaded.
import { centred } from "./centre.js";
import { written } from "./words.js";

/** @typedef {import("./engine.js").Model} Model */

const LARGEST = 20_000_000; // bytes
const MOST = 100_000_000; // pixels
const WORK = 280; // pixels at which a drawing on paper is centred

/** @param {File} file @param {Model} model @returns {Promise<{pixels: Uint8Array, note: string}>} */
export async function readFile(file, model) {
  if (file.size > LARGEST) throw new Error(`${file.name} is larger than ${LARGEST / 1e6} MB.`);
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(`${file.name || "This"} is not a picture that your browser can read.`);
  });
  if (image.width * image.height > MOST) throw new Error(`${file.name} has more than ${MOST / 1e6} million pixels.`);
  const { channels, width, height } = model, exact = image.width === width && image.height === height;
  const size = `${image.width}×${image.height}`;
  if (exact || !written(model)) return { pixels: planes(drawn(image, width, height), channels), note: exact ? "" : `Cut and scaled from ${size}.` };
  const ink = planes(drawn(image, WORK, WORK), 1), paper = isPaper(ink);
  if (paper) ink.forEach((value, i) => { ink[i] = 255 - value; });
  const floor = quantile(ink, 0.5), top = Math.max(...ink), span = Math.max(top - floor, 1);
  ink.forEach((value, i) => { ink[i] = Math.max(Math.min(((value - floor) / span - 0.25) / 0.5, 1), 0) * 255; });
  return { pixels: centred(ink, WORK, width), note: `Scaled from ${size}, centred by mass${paper ? ", dark and light swapped" : ""}.` };
}

/** The middle of a picture, as large as it fits. @param {ImageBitmap} image @param {number} width @param {number} height */
function drawn(image, width, height) {
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const scale = Math.min(image.width / width, image.height / height), w = width * scale, h = height * scale;
  Object.assign(context, { imageSmoothingEnabled: true, imageSmoothingQuality: "high" });
  context.drawImage(image, (image.width - w) / 2, (image.height - h) / 2, w, h, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

/** Red, green, blue, alpha in turn → channel after channel, over white. @param {Uint8ClampedArray} data @param {number} channels */
function planes(data, channels) {
  const size = data.length / 4, found = new Uint8Array(channels * size);
  for (let i = 0; i < size; i++) {
    const [r, g, b] = [0, 1, 2].map((c) => 255 - (data[4 * i + 3] / 255) * (255 - data[4 * i + c]));
    if (channels === 3) [r, g, b].forEach((value, c) => { found[c * size + i] = Math.round(value); });
    else found[i] = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
  }
  return found;
}

/** Whether the edge is bright: ink on paper, where MNIST is light on dark. @param {Uint8Array} ink */
function isPaper(ink) {
  let sum = 0;
  for (let i = 0; i < WORK; i++) sum += ink[i] + ink[(WORK - 1) * WORK + i] + ink[i * WORK] + ink[i * WORK + WORK - 1];
  return sum / (4 * WORK) > 127;
}

/** @param {Uint8Array} values @param {number} share */
const quantile = (values, share) => Uint8Array.from(values).sort()[Math.floor(share * (values.length - 1))];
