"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { x: "frames", band: "mean", off: new Set() };
  const colour = (label) => `var(--c${data.labels.indexOf(label)})`;

  function readState() {
    const words = new URLSearchParams(location.hash.slice(1));
    if (data.axes.includes(words.get("x"))) state.x = words.get("x");
    if (["mean", "iqm", "seeds"].includes(words.get("band"))) state.band = words.get("band");
    state.off = new Set(words.getAll("off").filter((label) => data.labels.includes(label)));
  }

  // The address keeps the choices, so that a page that reloads itself keeps them too.
  function writeState() {
    const words = new URLSearchParams({ x: state.x, band: state.band });
    for (const label of state.off) words.append("off", label);
    location.replace("#" + words);
  }

  function svg(name, attributes, parent, text) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function element(name, attributes, parent, text) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * ([1, 2, 2.5, 5].find((m) => m * power >= rough) || 10);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i++) {
      found.push(+(i * step).toPrecision(12));
    }
    return found;
  }

  function unit(axis, most) {
    if (axis === "threshold") return [1, "final success rate \u03c4", (v) => percent(v)];
    if (axis === "seconds") {
      if (most >= 7200) return [3600, "training time (hours)", (v) => number(v) + " h"];
      if (most >= 300) return [60, "training time (minutes)", (v) => number(v) + " min"];
      return [1, "training time (seconds)", (v) => number(v) + " s"];
    }
    if (most >= 1e6) return [1e6, axis + " of each seed (millions)", (v) => number(v) + " M"];
    if (most >= 1e4) return [1e3, axis + " of each seed (thousands)", (v) => number(v) + " K"];
    return [1, axis + " of each seed", (v) => number(v)];
  }

  const number = (v) => String(+v.toPrecision(3));
  const percent = (v) => +(100 * v).toFixed(1) + " %";

  const shown = (chart) => chart.lines.filter((line) => !state.off.has(line.label));
  const axisOf = (chart) => (chart.kind === "profile" ? "threshold" : state.x);
  const bandOf = (chart) =>
    chart.kind === "profile" ? "profile" : state.band === "seeds" ? "mean" : state.band;

  // Texts beside the curves, by label. A label is a method and the settings in which runs differ; of
  // a long one those parts are kept that tell it from all others, and names become initials.
  const LONGEST = 18;
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "\u2026" : text);
  const initials = (part) => part.replace(/^[\w.]+(?==)/, (name) =>
    name.split(/[_.]/).map((word) => word.slice(0, 1)).join(""));

  function distinguishing(parts, others) {
    const chosen = new Set();
    let alike = others;
    while (alike.length) {
      const same = parts.map((part) => alike.filter((other) => other.includes(part)));
      const fewest = Math.min(...same.map((found) => found.length));
      if (fewest === alike.length) break;
      const best = same.findIndex((found) => found.length === fewest);
      chosen.add(parts[best]);
      alike = same[best];
    }
    return parts.filter((part) => chosen.has(part));
  }

  function shortLabels(labels) {
    const split = labels.map((label) => label.split(/, (?=[\w.]+=)/));
    const found = new Map();
    labels.forEach((label, i) => {
      let text = label;
      if (label.length > LONGEST) {
        const kept = distinguishing(split[i], split.filter((_, j) => j !== i));
        const settings = kept.filter((part) => part !== split[i][0]).map(initials).join(" ");
        const left = LONGEST - (settings ? settings.length + 1 : 0);
        const method = left < 4 && settings ? "" : cut(split[i][0], left) + " ";
        text = cut((method + settings).trim(), LONGEST);
      }
      const taken = new Set(found.values());
      for (let n = 2, whole = text; taken.has(text); n++) {
        text = whole.slice(0, LONGEST - 2 - String(n).length) + "\u2026 " + n;
      }
      found.set(label, text);
    });
    return found;
  }
  const shortened = shortLabels(data.labels);

  // A path through the points both of whose numbers are known.
  function path(xs, ys, sx, sy) {
    let text = "", pen = "M";
    for (let i = 0; i < xs.length; i++) {
      if (ys[i] === null || xs[i] === null) { pen = "M"; continue; }
      text += `${pen}${sx(xs[i]).toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
      pen = "L";
    }
    return text;
  }

  function region(xs, low, high, sx, sy) {
    const known = xs.map((_, i) => i).filter((i) => low[i] !== null && high[i] !== null);
    const there = known.map((i) => `${sx(xs[i]).toFixed(1)} ${sy(high[i]).toFixed(1)}`);
    const back = known.reverse().map((i) => `${sx(xs[i]).toFixed(1)} ${sy(low[i]).toFixed(1)}`);
    return there.length ? "M" + there.concat(back).join("L") + "Z" : "";
  }

  function spread(places, gap, top, bottom) {
    const order = places.map((_, i) => i).sort((a, b) => places[a] - places[b]);
    let limit = top;
    for (const i of order) {
      places[i] = Math.max(places[i], limit);
      limit = places[i] + gap;
    }
    limit = bottom;
    for (const i of order.reverse()) {
      places[i] = Math.min(places[i], limit);
      limit = places[i] - gap;
    }
    return places;
  }

  function draw(box, chart) {
    const old = box.querySelector("svg");
    const root = svg("svg", { role: "img", "aria-label": chart.title });
    if (old) old.replaceWith(root); else box.appendChild(root);
    const axis = axisOf(chart), band = bandOf(chart);
    const lines = shown(chart).filter((line) => line.x[axis]);
    const widest = Math.max(0, ...lines.map((line) => shortened.get(line.label).length));
    const width = root.clientWidth || 380, height = 250;
    const left = 52, right = width - 14 - 6.8 * widest, top = 10, bottom = height - 40;
    const most = Math.max(1e-9, ...lines.flatMap((line) => line.x[axis].slice(-1)));
    const heights = lines.flatMap((line) => line.bands[band].flat().filter((v) => v !== null));
    const tall = chart.percent ? 1 : Math.max(1e-9, ...heights) * 1.05;
    const sx = (v) => left + ((right - left) * v) / most;
    const sy = (v) => bottom - ((bottom - top) * Math.max(0, Math.min(v, tall))) / tall;
    const [scale, name, say] = unit(axis, most);
    for (const tick of ticks(0, tall, 5)) {
      svg("line", { class: "grid", x1: left, x2: right, y1: sy(tick), y2: sy(tick) }, root);
      const text = chart.percent ? percent(tick) : number(tick);
      svg("text", { x: left - 7, y: sy(tick) + 4, "text-anchor": "end" }, root, text);
    }
    for (const tick of ticks(0, most / scale, Math.max(2, (right - left) / 65))) {
      const x = sx(tick * scale);
      svg("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }, root);
      const text = axis === "threshold" ? percent(tick) : String(tick);
      svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, root, text);
    }
    svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }, root);
    const middle = (left + right) / 2;
    svg("text", { x: middle, y: height - 6, "text-anchor": "middle" }, root, name);
    if (!lines.length) {
      const reason = shown(chart).length ? "not measured over " + axis : "every method is off";
      svg("text", { x: middle, y: height / 2, "text-anchor": "middle" }, root, reason);
    }
    for (const line of lines) {
      const own = svg("g", { "data-label": line.label }, root), xs = line.x[axis];
      if (chart.kind !== "profile" && state.band === "seeds") {
        for (const seed of line.seeds) {
          const d = path(xs, seed, sx, sy);
          svg("path", { class: "seed", d, style: `stroke:${colour(line.label)}` }, own);
        }
        continue;
      }
      const [mid, low, high] = line.bands[band];
      const d = region(xs, low, high, sx, sy);
      svg("path", { class: "area", d, style: `fill:${colour(line.label)}` }, own);
      const stroke = `stroke:${colour(line.label)}`;
      svg("path", { class: "middle", d: path(xs, mid, sx, sy), style: stroke }, own);
      const known = mid.map((_, i) => i).filter((i) => mid[i] !== null);
      if (known.length === 1) {
        const at = { cx: sx(xs[known[0]]), cy: sy(mid[known[0]]), r: 4 };
        svg("circle", { ...at, style: `fill:${colour(line.label)}` }, own);
      }
    }
    const ends = lines.map((line) => {
      const ys = line.bands[band][0];
      let i = ys.length - 1;
      while (i > 0 && ys[i] === null) i--;
      return [sx(line.x[axis][i]), sy(ys[i] === null ? 0 : ys[i])];
    });
    const places = spread(ends.map((end) => end[1]), 13, top + 4, bottom - 6);
    lines.forEach((line, i) => {
      const style = `fill:${colour(line.label)}`;
      const at = { class: "end", x: right + 6, y: places[i] + 4, style };
      const text = svg("text", at, root, shortened.get(line.label));
      svg("title", {}, text, line.label);
    });
    hover(box, root, chart, lines, { axis, band, sx, most, left, right, top, bottom, say, scale });
  }

  function hover(box, root, chart, lines, at) {
    const leave = () => box.querySelectorAll(".tip, .cross").forEach((node) => node.remove());
    leave();
    root.addEventListener("pointerleave", leave);
    root.addEventListener("pointermove", (event) => {
      leave();
      const frame = root.getBoundingClientRect();
      const x = Math.max(at.left, Math.min(event.clientX - frame.left, at.right));
      if (!lines.length) return;
      const value = ((x - at.left) / (at.right - at.left)) * at.most;
      svg("line", { class: "cross", x1: x, x2: x, y1: at.top, y2: at.bottom }, root);
      const tip = element("div", { class: "tip" }, box);
      element("div", {}, tip, at.say(value / at.scale));
      const show = chart.percent ? percent : number;
      for (const line of lines) {
        const xs = line.x[at.axis], [mid, low, high] = line.bands[at.band];
        let near = 0;
        xs.forEach((v, i) => { if (Math.abs(v - value) < Math.abs(xs[near] - value)) near = i; });
        if (value > xs[xs.length - 1] * 1.001 || mid[near] === null) continue;
        const row = element("div", {}, tip);
        element("span", { class: "dot", style: `background:${colour(line.label)}` }, row);
        const range = low[near] === null ? "" : ` [${show(low[near])}, ${show(high[near])}]`;
        row.appendChild(document.createTextNode(`${line.label}: ${show(mid[near])}${range}`));
      }
      // Beside the line, also over the next chart, as long as it stays inside the window.
      const fits = frame.left + x + 40 + tip.offsetWidth < document.documentElement.clientWidth;
      const before = Math.max(8 - box.getBoundingClientRect().left, x - tip.offsetWidth - 4);
      tip.style.left = (fits ? x + 26 : before) + "px";
      tip.style.top = "44px";
    });
  }

  const isOff = (node) => state.off.has(data.labels[node.dataset.method]);

  function redraw() {
    for (const box of document.querySelectorAll(".chart")) {
      draw(box, data.charts[box.dataset.chart]);
    }
    for (const button of document.querySelectorAll("button.method")) {
      button.setAttribute("aria-pressed", String(!isOff(button)));
    }
    for (const button of document.querySelectorAll("button.choice")) {
      const { group, value } = button.dataset;
      button.setAttribute("aria-pressed", String(state[group] === value));
    }
    for (const row of document.querySelectorAll("tr[data-method]")) {
      row.hidden = isOff(row);
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.method !== undefined) {
      const label = data.labels[button.dataset.method];
      if (!state.off.delete(label)) state.off.add(label);
    } else {
      state[button.dataset.group] = button.dataset.value;
    }
    writeState();
    redraw();
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; redraw(); }
  });
  readState();
  redraw();
  if (data.refresh) setTimeout(() => location.reload(), 1000 * data.refresh);
})();
