// The page of `ncpu run --html`: tables, the plots' readings, flame graphs.

import { cssColour, element, heatScale, numbers, themed } from "./shared/basics.js";
import { Flame } from "./shared/flame.js";
import { selected, sortable } from "./shared/table.js";

const $ = (q, in_ = document) => in_.querySelector(q);
const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
const data = JSON.parse($("#data").textContent);
const redraw = [];

addEventListener("beforeprint", () => all("details:not(.text)").forEach(d => { d.open = true; }));

for (const table of all(".grid")) {
  const part = table.closest(".table"), filter = $(".filter", part), more = $(".all", part);
  const heads = all("th", table), body = table.tBodies[0], rows = [...body.rows];
  const value = (row, i) => row.cells[i].dataset.v === undefined ? row.cells[i].textContent : +row.cells[i].dataset.v;
  const text = row => [...row.cells].map(cell => cell.textContent).join(" ");
  let by = heads.findIndex(h => h.ariaSort), ascending = false;
  const show = () => {
    const shown = selected(rows, filter?.value ?? "", text, by < 0 ? null : row => value(row, by), ascending);
    body.replaceChildren(...shown);
    sortable(heads, by, ascending, i => rows.length > 0 && typeof value(rows[0], i) === "number", (i, up) => {
      [by, ascending] = [i, up];
      show();
    });
    if (!more) return;
    const folded = table.classList.contains("folded");
    more.hidden = shown.length <= 10;
    more.ariaExpanded = String(!folded);
    more.textContent = folded ? `Show all ${shown.length}` : "Show fewer";
  };
  filter?.addEventListener("input", show);
  more?.addEventListener("click", () => {
    table.classList.toggle("folded");
    show();
  });
  show();
}

if (data) plots();
for (const root of all(".flame[data-now]")) {
  const flame = new Flame(root), { now, before } = root.dataset;
  flame.show($("#" + now).textContent, before ? $("#" + before).textContent : null);
  redraw.push(() => flame.draw());
}
themed($("#theme"), () => redraw.forEach(f => f()));

function plots() {
  const ends = data.ends, end = ends[ends.length - 1], rows = data.rows;
  const column = t => { const i = ends.findIndex(e => t <= e); return i < 0 ? ends.length - 1 : i; };
  const from = i => i ? ends[i - 1] : 0;
  const when = i => from(i).toFixed(2) + "–" + ends[i].toFixed(2) + " s";

  const box = $("#area .box"), cursor = $(".cursor", box), areaRead = $("#area-read");
  // A finger moves nothing: it only comes down.
  const hover = (e, f) => ["pointermove", "pointerdown"].forEach(type => e.addEventListener(type, f));
  hover(box, e => {
    const r = box.getBoundingClientRect(), t = (e.clientX - r.left) / r.width * end, i = column(t);
    cursor.hidden = false;
    cursor.style.left = (from(i) + ends[i]) / 2 / end * 100 + "%";
    const parts = data.series.map(([word, shares]) => [word, shares[i] / 10]).filter(p => p[1] >= 0.1);
    parts.sort((a, b) => b[1] - a[1]);
    areaRead.textContent = when(i) + ": " + parts.map(([w, p]) => w + " " + p.toFixed(1) + " %").join(", ");
  });
  box.addEventListener("pointerleave", () => { cursor.hidden = true; });

  const canvas = $("#heat canvas"), kind = $("#heat-kind"), heatRead = $("#heat-read"), y = $("#heat .y");
  const level = {};
  [...data.levels].forEach((c, i) => { level[c] = i / (data.levels.length - 1); });
  const height = Math.max(48, Math.min(512, rows.length * 26));
  canvas.style.height = height + "px";
  const name = ([a, b]) => a === b ? "CPU " + a : "CPUs " + a + "–" + b;
  const step = Math.max(1, Math.ceil(rows.length / (height / 24)));
  for (let i = 0; i < rows.length; i += step) {
    const label = element("span", String(rows[i][0]));
    label.style.top = (i + 0.5) / rows.length * 100 + "%";
    y.append(label);
  }
  let at = null;
  function draw() {
    const width = Math.max(1, Math.round(canvas.clientWidth * (devicePixelRatio || 1)));
    const cells = data.heat[kind.value][1], n = ends.length;
    const heat = heatScale(), none = numbers(cssColour("--bg"));
    const image = new ImageData(width, rows.length);
    const columns = Array.from({ length: width }, (_, x) => column((x + 0.5) / width * end));
    for (let r = 0; r < rows.length; r++) {
      for (let x = 0; x < width; x++) {
        const v = level[cells[r * n + columns[x]]], p = (r * width + x) * 4;
        const c = v === undefined ? none : heat(v);
        image.data.set([c[0], c[1], c[2], 255], p);
      }
    }
    const small = document.createElement("canvas");
    small.width = width;
    small.height = rows.length;
    small.getContext("2d").putImageData(image, 0, 0);
    canvas.width = width;
    canvas.height = Math.round(height * (devicePixelRatio || 1));
    const g = canvas.getContext("2d");
    g.imageSmoothingEnabled = false;
    g.drawImage(small, 0, 0, canvas.width, canvas.height);
    const gap = canvas.height / rows.length;
    g.fillStyle = "rgb(" + none.join() + ")";
    if (gap > 8) for (let r = 1; r < rows.length; r++) g.fillRect(0, Math.round(r * gap), width, 1);
  }
  function tell(r, i) {
    at = [r, i];
    const v = level[data.heat[kind.value][1][r * ends.length + i]];
    heatRead.textContent = name(rows[r]) + ", " + when(i) + ": " +
      (v === undefined ? "not seen" : data.heat[kind.value][0] + " " + (v * 100).toFixed(0) + " %");
  }
  hover(canvas, e => {
    const b = canvas.getBoundingClientRect();
    const r = Math.floor((e.clientY - b.top) / b.height * rows.length);
    tell(Math.max(0, Math.min(rows.length - 1, r)), column((e.clientX - b.left) / b.width * end));
  });
  canvas.addEventListener("keydown", e => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (!move) return;
    e.preventDefault();
    const [r, i] = at ? [at[0] + move[0], at[1] + move[1]] : [0, 0];
    tell(Math.max(0, Math.min(rows.length - 1, r)), Math.max(0, Math.min(ends.length - 1, i)));
  });
  kind.addEventListener("change", () => { draw(); if (at) tell(at[0], at[1]); });
  redraw.push(draw);
  addEventListener("resize", draw);
}
