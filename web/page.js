// The page of `ncpu run --html`: sorting, the plots' readings, flame graphs. shared.js comes before it.
(() => {
  "use strict";
  const $ = (q, in_ = document) => in_.querySelector(q);
  const all = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const data = JSON.parse($("#data").textContent);
  const redraw = [];

  addEventListener("beforeprint", () => all("details").forEach(d => { d.open = true; }));

  // Tables.
  for (const table of all(".grid")) {
    const body = table.tBodies[0];
    const value = (row, i) => row.cells[i].dataset.v === undefined ? row.cells[i].textContent : +row.cells[i].dataset.v;
    const heads = all("th", table);
    heads.forEach((th, i) => $("button", th).addEventListener("click", () => {
      const rows = [...body.rows];
      const number = rows.length > 0 && typeof value(rows[0], i) === "number";
      const was = th.getAttribute("aria-sort");
      const up = was ? was === "descending" : !number;
      heads.forEach(h => h.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", up ? "ascending" : "descending");
      rows.sort((a, b) => order(value(a, i), value(b, i), up ? 1 : -1));
      body.append(...rows);
    }));
  }
  for (const b of all(".all")) {
    const table = $(".grid", b.previousElementSibling);
    b.addEventListener("click", () => {
      const folded = table.classList.toggle("folded");
      b.setAttribute("aria-expanded", String(!folded));
      b.textContent = folded ? "Show all " + b.dataset.n : "Show fewer";
    });
  }

  if (data) plots();
  all(".frames").forEach(flame);
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
      const label = document.createElement("span");
      label.textContent = rows[i][0];
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

  // A flame graph as inferno drew it: a <g> for each frame, in `fg:x` and `fg:w` of the total.
  function flame(svg) {
    const part = svg.closest(".flame"), read = $(":scope > .read", part);
    const input = $("input", part), out = $(".out", part), found = $("output", $(".tools", part));
    const frames = all("g", svg).map(g => {
      const rect = $("rect", g), title = $("title", g).textContent;
      const at = title.lastIndexOf(" (");
      return {
        g, rect, text: $("text", g), name: at > 0 ? title.slice(0, at) : title, us: title.slice(at + 2).split(" ")[0],
        x: +rect.getAttribute("fg:x"), w: +rect.getAttribute("fg:w"), y: +rect.getAttribute("y"),
      };
    });
    if (!frames.length) return;
    const by = new Map(frames.map(f => [f.g, f]));
    const base = frames.reduce((a, f) => f.w > a.w || (f.w === a.w && f.y > a.y) ? f : a);
    const step = +svg.dataset.frame;
    let zoomed = base, at = null, settled = false;
    const seconds = f => (parseFloat(f.us.replace(/,/g, "")) / 1e6).toFixed(3) + " s";
    const share = (f, of) => (100 * f.w / of.w).toFixed(2) + " %";

    function show(f) {
      if (at) at.g.classList.remove("at");
      at = f;
      if (!f) return;
      f.g.classList.add("at");
      read.textContent = f.name + ": " + seconds(f) + ", " + share(f, base) +
        (zoomed === base ? "" : ", " + share(f, zoomed) + " of the zoom");
    }
    function layout() {
      const width = svg.clientWidth || 1000, z = zoomed, letter = 7.25;
      const writes = [];
      let top = base.y;
      for (const f of frames) {
        const above = f.y > z.y;
        const parent = above && f.x <= z.x && f.x + f.w >= z.x + z.w;
        const inside = !above && f.x >= z.x && f.x + f.w <= z.x + z.w;
        f.g.classList.toggle("hide", !parent && !inside);
        f.g.classList.toggle("parent", parent);
        f.shown = parent || inside;
        if (!f.shown) continue;
        const x = parent ? 0 : (f.x - z.x) / z.w, w = parent ? 1 : f.w / z.w;
        if (w * width >= 4) top = Math.min(top, f.y);
        f.rect.setAttribute("x", 100 * x + "%");
        f.rect.setAttribute("width", 100 * w + "%");
        const letters = Math.floor((w * width - 6) / letter);
        let word = letters < 3 ? "" : f.name.length <= letters ? f.name : f.name.slice(0, letters - 1) + "…";
        if (word && !f.text) {
          f.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
          f.text.setAttribute("y", f.y + 12.5);
          f.g.append(f.text);
        }
        if (f.text) writes.push([f.text, x * width + 3, word]);
      }
      for (const [text, x, word] of writes) {
        text.setAttribute("x", x);
        text.textContent = word;
      }
      // What is too narrow to read gets room once it is zoomed to; the base stays where it was.
      const height = base.y + step - top + 2, grown = height - svg.clientHeight;
      svg.setAttribute("height", height);
      $("svg", svg).setAttribute("y", 2 - top);
      if (settled && svg.getBoundingClientRect().top < innerHeight) scrollBy({ top: grown, behavior: "instant" });
    }
    function zoom(f) {
      zoomed = f;
      settled = true;
      out.hidden = f === base;
      layout();
      settled = false;
      search();
      show(f);
    }
    function search() {
      const term = input.value.trim().toLowerCase();
      let re = null;
      if (term) { try { re = new RegExp(term, "i"); } catch (e) { /* taken as plain words */ } }
      const hits = [];
      for (const f of frames) {
        const hit = term !== "" && (re ? re.test(f.name) : f.name.toLowerCase().includes(term));
        f.g.classList.toggle("hit", hit);
        if (hit && f.shown && !f.g.classList.contains("parent")) hits.push(f);
      }
      // Frames above a match are part of it already.
      hits.sort((a, b) => a.x - b.x || b.w - a.w);
      let sum = 0, until = -1;
      for (const f of hits) if (f.x >= until) { sum += f.w; until = f.x + f.w; }
      found.textContent = term ? (100 * sum / zoomed.w).toFixed(2) + " % matched" : "";
    }
    const near = (f, dx, dy) => frames.filter(o => o.shown && Math.abs(o.y - (f.y - dy * step)) < 1 &&
      (dy > 0 ? o.x >= f.x && o.x + o.w <= f.x + f.w : dy < 0 ? o.x <= f.x && o.x + o.w >= f.x + f.w :
        dx > 0 ? o.x >= f.x + f.w : o.x + o.w <= f.x))
      .sort((a, b) => dy ? b.w - a.w : dx * (a.x - b.x))[0];

    svg.addEventListener("click", e => { const f = by.get(e.target.closest("g")); if (f) zoom(f); });
    svg.addEventListener("pointerover", e => { const f = by.get(e.target.closest("g")); if (f) show(f); });
    svg.addEventListener("keydown", e => {
      const f = at || zoomed;
      const move = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[e.key];
      if (move) show(near(f, move[0], move[1]) || f);
      else if (e.key === "Enter") zoom(f);
      else if (e.key === "Escape") zoom(base);
      else return;
      e.preventDefault();
    });
    out.addEventListener("click", () => zoom(base));
    // The widest frames on the base as buttons: the narrow ones are hard to hit with a finger.
    const first = frames.filter(f => Math.abs(base.y - f.y - step) < 1).sort((a, b) => b.w - a.w).slice(0, 8);
    for (const f of first.length > 1 ? first : []) {
      const b = document.createElement("button");
      b.type = "button";
      b.textContent = f.name + " " + share(f, base);
      b.addEventListener("click", () => zoom(f));
      $(".goto", part).append(b);
    }
    input.addEventListener("input", search);
    layout();
    redraw.push(layout);
    let last = svg.clientWidth;
    addEventListener("resize", () => { if (svg.clientWidth !== last) { last = svg.clientWidth; layout(); } });
  }
})();
