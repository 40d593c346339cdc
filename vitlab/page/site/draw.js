// @ts-check
// The board to draw on: mouse, finger or pen, or the arrow keys and the space bar.

const PEN = 22; // pixels of 280: as thick as MNIST's strokes
const STEP = 10;

export class Drawing {
  /** @param {HTMLCanvasElement} canvas @param {() => void} act told at once, then once a frame, however many strokes there were */
  constructor(canvas, act) {
    this.canvas = canvas;
    this.act = act;
    this.waiting = false; // for the next frame
    this.more = false; // strokes since then
    this.stale = false; // whether the next stroke begins anew
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
    this.empty = true;
    this.pen = { x: canvas.width / 2, y: canvas.height / 2, down: false };
    this.mark = /** @type {HTMLElement} */ (canvas.nextElementSibling); // where the pen is, for those who draw by keyboard
    this.wipe();
    this.markPen();
    this.listen();
  }

  get side() {
    return this.canvas.width;
  }

  changed() {
    this.more = this.waiting;
    if (this.waiting) return;
    this.waiting = true;
    this.act();
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.more) this.changed();
    });
  }

  /** How much ink lies on each pixel. */
  ink() {
    const { data } = this.context.getImageData(0, 0, this.side, this.side), found = new Uint8Array(this.side * this.side);
    for (let i = 0; i < found.length; i++) found[i] = data[4 * i];
    return found;
  }

  wipe() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.side, this.side);
    this.empty = true;
  }

  /** Wiped, and the pen lifted in the middle. */
  clear() {
    Object.assign(this.pen, { x: this.side / 2, y: this.side / 2, down: false });
    this.wipe();
    this.markPen();
  }

  /** @param {number} x @param {number} y @param {number} toX @param {number} toY */
  stroke(x, y, toX, toY) {
    Object.assign(this.context, { lineWidth: PEN, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
    this.context.beginPath();
    this.context.moveTo(x, y);
    this.context.lineTo(toX, toY);
    this.context.stroke();
    this.empty = false;
  }

  listen() {
    const place = (/** @type {PointerEvent} */ event) => {
      const box = this.canvas.getBoundingClientRect(), scale = this.side / box.width;
      return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    };
    /** @type {number[] | null} */
    let last = null;
    let drawing = 0; // the finger or pen that draws; others that come meanwhile do not
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.button || (last && event.pointerId !== drawing)) return;
      event.preventDefault();
      this.canvas.focus({ preventScroll: true });
      this.mark.hidden = true;
      if (this.stale) this.wipe();
      this.stale = false;
      drawing = event.pointerId;
      last = place(event);
      this.stroke(last[0], last[1], last[0], last[1]);
      this.changed();
    });
    window.addEventListener("pointermove", (event) => {
      if (!last || event.pointerId !== drawing) return;
      for (const one of event.getCoalescedEvents?.().length ? event.getCoalescedEvents() : [event]) {
        const next = place(one);
        this.stroke(last[0], last[1], next[0], next[1]);
        last = next;
      }
      this.changed();
    });
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, (event) => { if (/** @type {PointerEvent} */ (event).pointerId === drawing) last = null; });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.markPen());
  }

  /** The pen by keyboard. @param {KeyboardEvent} event */
  key(event) {
    const steps = { ArrowRight: [STEP, 0], ArrowLeft: [-STEP, 0], ArrowDown: [0, STEP], ArrowUp: [0, -STEP] };
    const step = steps[/** @type {keyof typeof steps} */ (event.key)], { pen } = this, clears = event.key === "Delete" || event.key === "Backspace";
    if (!clears && !step && event.key !== " ") return;
    event.preventDefault();
    if (event.key === " ") pen.down = !pen.down;
    if (clears) this.clear();
    else if (this.stale) this.wipe();
    this.stale = false;
    const within = (/** @type {number} */ at) => Math.min(Math.max(at, PEN), this.side - PEN);
    const [x, y] = step ? [within(pen.x + step[0]), within(pen.y + step[1])] : [pen.x, pen.y];
    if (pen.down) this.stroke(pen.x, pen.y, x, y);
    Object.assign(pen, { x, y });
    this.markPen();
    this.changed();
  }

  markPen() {
    const { x, y, down } = this.pen;
    Object.assign(this.mark.style, { left: `${(100 * x) / this.side}%`, top: `${(100 * y) / this.side}%` });
    this.mark.classList.toggle("down", down);
    this.mark.hidden = false;
  }

  /** Show a picture that was chosen, until the next stroke wipes it. @param {HTMLCanvasElement} picture */
  show(picture) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(picture, 0, 0, this.side, this.side);
    this.stale = true;
    this.empty = false;
  }
}
