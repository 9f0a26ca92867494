"use strict";
// A fleet: groups as small multiples, a heat grid and a table of machines, and a machine with its recordings. All text is
// set as text, so nothing a recording says becomes markup.
const data = JSON.parse(document.getElementById("data").textContent);
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};
const percent = (share) => (share >= 0.00095 || share === 0 ? (100 * share).toFixed(1) : (100 * share).toFixed(2)) + " %";
const hue = data.layers.map((layer) => `var(--${layer.colour})`);
const back = (shares) => shares.reduce((sum, [layer, share]) => sum + (data.layers[layer].recoverable ? share : 0), 0);
const of = (shares, layer) => (shares.find(([at]) => at === layer) || [0, 0])[1];
const stack = (shares) => make("div", { class: "stack", role: "img", "aria-label": "layers of the capacity" },
  ...shares.map(([layer, share]) => make("i", {
    style: { width: `${100 * share}%`, background: hue[layer] }, title: `${data.layers[layer].name} ${percent(share)}`,
  })));
const bars = (shares, most) => {
  const shown = [...shares].sort((a, b) => b[1] - a[1]).slice(0, most);
  return make("div", { class: "bars" }, ...shown.flatMap(([layer, share]) => [
    make("div", { class: "name" }, make("i", { style: { background: hue[layer] } }), make("span", {}, data.layers[layer].name)),
    make("div", { class: "share" }, percent(share)),
  ]));
};

let group = null, machine = null, sort = { by: "back", down: true }, layer = -1;
data.machines.forEach((m) => { m.back = back(m.shares); m.group_name = data.groups[m.group].name; });
const chosen = () => data.machines.filter((m) => group === null || m.group === group);
const measure = (m) => (layer < 0 ? m.back : of(m.shares, layer));

function groups() {
  const place = document.getElementById("groups");
  place.replaceChildren(...data.groups.map((g, i) => make("button", {
    class: "card", type: "button", "aria-pressed": String(group === i),
    onclick: () => { group = group === i ? null : i; draw(); },
  }, make("h3", {}, g.name),
  make("small", {}, `${g.machines} machines · ${percent(back(g.shares))} could come back`), stack(g.shares),
  bars(g.shares.filter(([l]) => data.layers[l].recoverable), 4))));
}

function heat() {
  const all = chosen().map(measure), top = Math.max(...all, 1e-9);
  const colour = (share) => `color-mix(in oklab, var(--mark) ${Math.round(100 * Math.sqrt(share / top))}%, var(--panel))`;
  document.getElementById("scale").replaceChildren("0 %", make("i", {
    style: { background: `linear-gradient(90deg, ${[0, 0.25, 0.5, 0.75, 1].map((x) => colour(x * top)).join(", ")})` },
  }), percent(top));
  const names = data.groups.map((_, i) => i).filter((i) => group === null || group === i);
  document.getElementById("cells").replaceChildren(...names.flatMap((i) => [
    make("h3", {}, data.groups[i].name),
    make("div", { class: "cells" }, ...data.machines.filter((m) => m.group === i).map((m) => make("button", {
      type: "button", title: `${m.host}: ${percent(measure(m))}`, "aria-label": `${m.host} ${percent(measure(m))}`,
      "aria-pressed": String(machine === m), style: { background: colour(measure(m)) }, onclick: () => show(m),
    }))),
  ]));
}

const columns = [
  ["host", "machine"], ["group_name", "group"], ["back", "could come back", percent], ["cpus", "CPUs", String], ["kernel", "kernel"],
  ["cpu_model", "processor"], ["labels", "labels"], ["recordings", "recordings", String], ["last", "last"],
];
function table() {
  const rows = chosen().sort((a, b) => {
    const [x, y] = [a[sort.by], b[sort.by]];
    return (typeof x === "number" ? x - y : String(x).localeCompare(String(y))) * (sort.down ? -1 : 1);
  });
  document.getElementById("head").replaceChildren(...columns.map(([key, name, show]) => make("th", {
    class: show ? "n" : undefined, "aria-sort": sort.by === key ? (sort.down ? "descending" : "ascending") : "none",
  }, make("button", { type: "button", onclick: () => {
    sort = { by: key, down: sort.by === key ? !sort.down : Boolean(show) };
    draw();
  } }, name + (sort.by === key ? (sort.down ? " ▾" : " ▴") : "")))));
  document.getElementById("rows").replaceChildren(...rows.map((m) => make("tr", { "aria-selected": String(machine === m) },
    ...columns.map(([key, , show]) => make("td", { class: show ? "n" : undefined }, key === "host"
      ? make("button", { type: "button", onclick: () => show_machine(m) }, m.host) : (show || String)(m[key]))))));
}
const show_machine = (m) => show(m);

function show(m) {
  machine = m;
  draw();
  document.getElementById("machine").scrollIntoView({ behavior: "auto", block: "nearest" });
}

function detail() {
  const place = document.getElementById("machine");
  if (!machine) {
    place.replaceChildren(make("p", { class: "dim" }, "Choose a machine in the grid or in the table."));
    return;
  }
  const m = machine;
  place.replaceChildren(
    make("h3", {}, m.host), make("p", { class: "where" }, [m.group_name, `${m.cpus} CPUs`, m.kernel, m.cpu_model, m.labels].filter(Boolean).join(" · ")),
    make("div", { class: "cards" },
      make("div", { class: "card" }, make("h3", {}, "All its recordings"), make("small", {}, `${m.recordings} recordings`), stack(m.shares), bars(m.shares, 30)),
      ...m.last_recordings.map((r) => make("div", { class: "card" }, make("h3", {}, r.at), make("small", {}, make("code", {}, `ncpu report ${r.source}`)),
        stack(r.shares), bars(r.shares, 30)))));
}

function draw() { groups(); heat(); table(); detail(); }

const select = document.getElementById("layer");
select.append(make("option", { value: -1 }, "what could come back"), ...data.layers.map((l, i) => make("option", { value: i }, l.name)));
select.addEventListener("change", () => { layer = Number(select.value); heat(); });
draw();
