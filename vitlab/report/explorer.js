
// The explorer: choose picture, layer, head and token; every map is drawn from the numbers in the page.
(() => {
  const root = document.getElementById("explorer");
  if (!root) return;
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const part = Object.fromEntries([...root.querySelectorAll("[data-part]")].map((e) => [e.dataset.part, e]));
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const floats = (text) => new Float32Array(bytes(text).buffer);
  const palettes = data.palettes.map(bytes);
  const percent = (share) => (share > 0.9995 && share < 1 ? "> 99.9" : (100 * share).toFixed(share < 0.0995 ? 1 : 0)) + "\u202f%";
  const figure = (value) => (value === 0 ? "0" : Number(value.toPrecision(2)).toString()).replace("-", "\u2212");
  const make = (tag, kind, text = "") => {
    const element = document.createElement(tag);
    if (kind) element.className = kind;
    element.textContent = text;
    return element;
  };

  const views = [];
  data.streams.forEach((stream, number) => stream.grids.forEach((grid, place) => {
    if (!stream.layers) return;
    let first = stream.extra.length;
    for (const other of stream.grids.slice(0, place)) first += other[0] * other[1];
    const several = stream.grids.length > 1 ? `${grid[0]}\u00d7${grid[1]} patches` : "";
    views.push({ stream: number, rows: grid[0], columns: grid[1], first, name: [stream.name, several].filter(Boolean).join(", ") });
  }));
  const state = { picture: 0, view: 0, show: "attention", layer: 0, head: -1, token: "read", label: 0 };
  const begin = () => {  // what is chosen when a stream comes into view
    state.layer = stream().layers - 1;
    state.head = -1;
    state.token = data.whole ? stream().start ?? "read" : "read";
  };
  const view = () => views[state.view];
  const stream = () => data.streams[view().stream];
  const decoded = new Map();
  const maps = (picture = state.picture) => {  // a picture's maps of the stream in view, decoded once
    const key = `${picture} ${view().stream}`;
    if (!decoded.has(key)) {
      const own = data.pictures[picture].streams[view().stream];
      const steps = (coded) => ({ steps: bytes(coded.steps), peaks: floats(coded.peaks) });
      decoded.set(key, {
        attention: steps(own.attention), rollout: data.whole && steps(own.rollout), likeness: data.whole && bytes(own.likeness),
        rolloutRead: floats(own.rolloutRead), likenessRead: floats(own.likenessRead), shares: data.whole && floats(own.shares),
        relevance: own.relevance.map((one) => ({ label: one.label, row: floats(one.row) })),
      });
    }
    return decoded.get(key);
  };
  const lookers = () => {  // the rows that look: those the head reads together, or one token's
    if (!data.whole) return [0];
    const [start, stop] = stream().read;
    return state.token === "read" ? Array.from({ length: stop - start }, (_, i) => start + i) : [state.token];
  };
  const sum = (rows) => rows[0].map((_, i) => rows.reduce((all, row) => all + row[i], 0));
  const quantised = (coded, row) => {
    const n = stream().tokens;
    return Array.from({ length: n }, (_, i) => ((coded.steps[row * n + i] - 127) / 127) * coded.peaks[row]);
  };
  const row = (show, layer, head, picture = state.picture) => {  // one weight per token, as chosen
    const { tokens: n, heads } = stream(), rows = data.whole ? n : 1, own = maps(picture);
    if (show === "relevance") return Array.from(own.relevance[Math.min(state.label, own.relevance.length - 1)].row);
    if (show === "rollout" && state.token === "read") return Array.from(own.rolloutRead);
    if (show === "likeness" && state.token === "read") return Array.from(own.likenessRead.subarray((layer + 1) * n, (layer + 2) * n));
    if (show === "rollout") return quantised(own.rollout, state.token);
    if (show === "likeness") return Array.from({ length: n }, (_, i) => (own.likeness[((layer + 1) * n + state.token) * n + i] - 127) / 127);
    const among = head < 0 ? Array.from({ length: heads }, (_, h) => h) : [head];
    const share = (r) => (data.whole && state.token === "read" ? own.shares[r] : 1) / among.length;
    return sum(among.flatMap((h) => lookers().map((r) => quantised(own.attention, (layer * heads + h) * rows + r).map((w) => w * share(r)))));
  };
  const patches = (weights) => weights.slice(view().first, view().first + view().rows * view().columns);
  const scaleOf = (weights, show) => {
    if (show === "likeness") return { most: 1, signed: true, root: false };
    const most = Math.max(...weights.map(Math.abs), 1e-30);
    const signed = weights.some((w) => w < -1e-6 * most) || (show === "attention" && stream().signed);
    const shared = show === "attention" && !part.own.checked;
    return { most: shared ? stream().most : most, signed, root: !signed, clipped: shared && stream().clipped };
  };
  const colour = (weight, { most, signed, root: rooted }) => {
    let share = weight / most;
    if (rooted) share = Math.sign(share) * Math.sqrt(Math.abs(share));
    const level = Math.round(Math.min(Math.max(signed ? (share + 1) / 2 : share, 0), 1) * 254);
    return palettes[signed ? 1 : 0].subarray(4 * level, 4 * level + 4);
  };
  const paint = (canvas, weights, scale) => {
    canvas.width = view().columns;
    canvas.height = view().rows;
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    weights.forEach((weight, i) => image.data.set(colour(weight, scale), 4 * i));
    context.putImageData(image, 0, 0);
  };
  const stack = (picture, grey, size) => {  // a picture, and a canvas of one pixel a patch stretched over it
    const holder = make("span", "stack"), image = make("img"), canvas = make("canvas");
    image.src = grey ? picture.backdrop : picture.uri;
    image.alt = "";
    const scale = size / Math.max(...picture.size);
    holder.style.width = `${picture.size[0] * scale}px`;
    holder.style.aspectRatio = `${picture.size[0]} / ${picture.size[1]}`;  // on a narrow screen too
    holder.append(image, canvas);
    return [holder, canvas];
  };
  const choose = (container, options, chosen, act) => {  // a row of choices, of which one is taken
    const had = container.contains(document.activeElement);
    container.replaceChildren(...options.map(([value, content]) => {
      const button = make("button");
      button.type = "button";
      button.setAttribute("role", "radio");
      button.setAttribute("aria-checked", String(value === chosen));
      button.tabIndex = value === chosen ? 0 : -1;
      button.append(content);
      button.addEventListener("click", () => { act(value); draw(); });
      return button;
    }));
    container.onkeydown = (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const place = options.findIndex(([value]) => value === chosen);
      act(options[(place + step + options.length) % options.length][0]);
      draw();
    };
    if (had) container.querySelector('[tabindex="0"]')?.focus();
    container.hidden = options.length < 2;
  };
  const place = (event, element) => {  // the patch under the pointer
    const box = element.getBoundingClientRect(), { rows, columns } = view();
    const clamp = (x, most) => Math.min(Math.max(Math.floor(x), 0), most - 1);
    return [clamp(((event.clientY - box.top) / box.height) * rows, rows), clamp(((event.clientX - box.left) / box.width) * columns, columns)];
  };
  const nameOf = (token) => {
    if (token === "read") return stream().reading.replace("from ", "");
    if (token < stream().extra.length) return `the ${stream().extra[token]}${token ? "" : " token"}`;
    const at = token - view().first;
    return at < 0 || at >= view().rows * view().columns ? "a patch of another grid"
      : `the patch in row ${Math.floor(at / view().columns) + 1}, column ${(at % view().columns) + 1}`;
  };
  const outline = (holder, at) => {
    if (at < 0 || at >= view().rows * view().columns) return;
    const box = make("span", "outline"), { rows, columns } = view();
    Object.assign(box.style, {
      left: `${(100 * (at % columns)) / columns}%`, top: `${(100 * Math.floor(at / columns)) / rows}%`,
      width: `${100 / columns}%`, height: `${100 / rows}%`,
    });
    holder.append(box);
  };

  function drawControls(picture) {
    choose(part.pictures, data.pictures.map((one, i) => {
      const [holder, canvas] = stack(one, false, 56), item = make("span", "item");
      canvas.remove();
      const wrong = one.truth !== null && one.truth !== one.guess;
      item.append(holder, make("span", wrong ? "wrong" : "", data.classes[one.guess]));
      if (wrong) item.append(make("span", "", `truly ${data.classes[one.truth]}`));
      return [i, item];
    }), state.picture, (i) => { state.picture = i; state.label = 0; });
    const shows = [["attention", "attention"], ["rollout", "rollout"], ["relevance", "relevance"], ["likeness", "likeness of tokens"]];
    choose(part.show, shows, state.show, (show) => { state.show = show; });
    choose(part.views, views.map((one, i) => [i, one.name]), state.view, (i) => {
      state.view = i;
      begin();
    });
    const [start, stop] = stream().read;
    const read = stop - start > 1 ? "all that is read" : stream().extra[start] ?? "first patch";
    const extras = data.whole ? stream().extra.map((name, i) => [i, name]).filter(([, name]) => name !== read) : [];
    const tokens = [["read", read], ...extras];
    if (typeof state.token === "number" && state.token >= stream().extra.length) tokens.push([state.token, "the marked patch"]);
    choose(part.tokens, tokens, state.token, (token) => { state.token = token; });
    part.own.parentElement.hidden = state.show !== "attention";
    part.tokens.hidden ||= state.show === "relevance";
    part.looker.textContent = state.show === "relevance" ? "Relevance is read where the head reads."
      : `Looking: ${nameOf(state.token)}.` + (data.whole ? " Click a patch to look from there." : "");
    const [holder, canvas] = stack(picture, false, Math.max(...picture.size));
    canvas.remove();
    part.who.style.cssText = holder.style.cssText;
    part.who.replaceChildren(...holder.children);
    if (typeof state.token === "number" && state.show !== "relevance") outline(part.who, state.token - view().first);
  }

  function drawMap(picture) {
    const weights = row(state.show, state.layer, state.head), shown = patches(weights), scale = scaleOf(shown, state.show);
    const [holder, canvas] = stack(picture, true, Math.max(...picture.size));
    paint(canvas, shown, scale);
    part.what.style.cssText = holder.style.cssText;
    part.what.replaceChildren(...holder.children);
    const bar = part.scale.getContext("2d"), image = bar.createImageData(255, 1);
    image.data.set(palettes[scale.signed ? 1 : 0]);
    bar.putImageData(image, 0, 0);
    part.low.textContent = scale.signed ? figure(-scale.most) : "0";
    part.high.textContent = figure(scale.most) + (scale.clipped ? " or more" : "") + (scale.root ? " (root scale)" : "");
    const heads = stream().heads > 1 ? (state.head < 0 ? ", mean of heads" : `, head ${state.head + 1}`) : "";
    const layer = state.show === "likeness" ? (state.layer < 0 ? "at the input" : `after block ${state.layer + 1}`) : `layer ${state.layer + 1}`;
    const label = maps().relevance[Math.min(state.label, maps().relevance.length - 1)].label;
    part.title.textContent = {
      attention: `Attention, ${layer}${heads}`, rollout: "Rollout through all layers",
      relevance: `What speaks for ${data.classes[label]}`, likeness: `Likeness ${layer}`,
    }[state.show];
    const total = weights.reduce((sum, w) => sum + Math.abs(w), 0) || 1, n = stream().tokens;
    const off = stream().extra.map((name, i) => `${name} ${percent(Math.abs(weights[i]) / total)}`).join(", ");
    const summary = state.show === "attention" ? `An even look gives each token ${figure(1 / n)}.${off ? ` Not on patches: ${off}.` : ""}`
      : state.show === "rollout" && off ? `Not on patches: ${off}.`
      : scale.signed && state.show !== "likeness" ? "Some weights are negative: blue is subtracted." : "";
    part.readout.textContent = summary + " Point at a patch to read its weight.";
    const best = shown.reduce((most, w, i) => (w > shown[most] ? i : most), 0);
    part.what.setAttribute("aria-label", `${part.title.textContent}: most, ${figure(shown[best])}, on ${nameOf(view().first + best)}`);
    part.what.onpointermove = (event) => {
      const [y, x] = place(event, part.what), value = shown[y * view().columns + x];
      const times = state.show === "attention" ? `, ${figure(value * n)} × an even share` : "";
      part.readout.textContent = `Row ${y + 1}, column ${x + 1}: ${figure(value)}${times}.`;
      part.what.querySelector(".outline")?.remove();
      outline(part.what, y * view().columns + x);
    };
    part.what.onpointerdown = part.what.onpointermove;  // a tap moves nothing
    part.what.onpointerleave = (event) => {
      if (event.pointerType === "touch") return;  // a finger is gone at once, what it asked stays
      part.readout.textContent = summary + " Point at a patch to read its weight.";
      part.what.querySelector(".outline")?.remove();
    };
  }

  function drawMultiples(picture) {
    const small = (show, layer, head, name) => {
      const [holder, canvas] = stack(picture, true, 84), item = make("span", "item"), shown = patches(row(show, layer, head));
      paint(canvas, shown, scaleOf(shown, show));
      item.append(holder, make("span", "", name));
      return item;
    };
    const layers = Array.from({ length: stream().layers }, (_, i) => i);
    const options = {
      attention: layers.map((i) => [i, small("attention", i, state.head, `layer ${i + 1}`)]),
      likeness: [-1, ...layers].map((i) => [i, small("likeness", i, -1, i < 0 ? "input" : `block ${i + 1}`)]),
      relevance: maps().relevance.map((one, i) => {
        const before = state.label;
        state.label = i;
        const item = small("relevance", 0, -1, `for ${data.classes[one.label]}`);
        state.label = before;
        return [i, item];
      }),
      rollout: [],
    }[state.show];
    const ofClass = state.show === "relevance";
    choose(part.layers, options, ofClass ? state.label : state.layer, (i) => { state[ofClass ? "label" : "layer"] = i; });
    const heads = state.show === "attention" && stream().heads > 1 ? [-1, ...Array.from({ length: stream().heads }, (_, i) => i)] : [];
    choose(part.heads, heads.map((h) => [h, small("attention", state.layer, h, h < 0 ? "mean" : `head ${h + 1}`)]), state.head, (h) => { state.head = h; });
  }

  function drawLens(picture) {
    part.lens.replaceChildren(...picture.lens.map((best, step) => {
      const line = make("li", step === state.layer + 1 ? "now" : ""), [label, share] = best[0];
      const bar = make("span", "bar right"), fill = make("span");
      fill.style.width = `${100 * share}%`;
      bar.append(fill);
      line.append(make("span", "muted", step ? `block ${step}` : "input"), make("bdi", "class", data.classes[label]), make("span", "muted", percent(share)), bar);
      line.title = best.map(([l, s]) => `${data.classes[l]} ${percent(s)}`).join(", ");
      return line;
    }));
  }

  function draw() {
    if (state.show !== "likeness" && state.layer < 0) state.layer = 0;
    const picture = data.pictures[state.picture];
    drawControls(picture);
    drawMap(picture);
    drawMultiples(picture);
    drawLens(picture);
  }

  part.own.addEventListener("change", draw);
  part.who.addEventListener("click", (event) => {
    if (!data.whole || state.show === "relevance") return;
    const [y, x] = place(event, part.who);
    state.token = view().first + y * view().columns + x;
    draw();
  });
  part.who.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!step || !data.whole || state.show === "relevance") return;
    event.preventDefault();
    const { rows, columns, first } = view();
    const at = typeof state.token === "number" && state.token >= first ? state.token - first : -1;
    const y = at < 0 ? 0 : Math.min(Math.max(Math.floor(at / columns) + step[0], 0), rows - 1);
    const x = at < 0 ? 0 : Math.min(Math.max((at % columns) + step[1], 0), columns - 1);
    state.token = first + y * columns + x;
    draw();
  });
  root.hidden = false;
  begin();
  draw();
})();
