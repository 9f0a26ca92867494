// The page of `ncpu serve`.

import "uplot/dist/uPlot.min.css";
import "../../page.css";
import "./serve.css";
import { chosenTheme, element, themed } from "../../shared/basics.js";
import { Flame } from "../../shared/flame.js";
import * as api from "./api";
import type { Described, Status, Time } from "./api";
import { Bands } from "./bands";
import { base } from "./changes";
import { Grid } from "./grid";
import { underWay } from "./numbers";
import * as kept from "./kept";
import type { Kept } from "./kept";
import { byId, period, setLayers, zone } from "./layers";
import { showOnion } from "./onion";
import { Listing } from "./rows";

/** Bands that are drawn at most, and that the server gives at most. */
const BANDS = 600;
const MOST_BANDS = 10_000;
/** Milliseconds between two looks, at least. */
const LOOK = 2000;
/** Milliseconds after which scrolling has ended. */
const STILL = 400;

/** What is shown; it stands in the address, so that a link shows the same. */
interface View {
  span: number;
  /** The time that was brushed. */
  brush: Time | null;
  /** The end of what is shown; null follows the newest. */
  to: number | null;
  table: string;
  sort: string;
  ascending: boolean;
  filter: string;
  bands: number;
  means: boolean;
  /** Which stacks: cpu, spin, offcpu. */
  stacks: string;
  /** Whether their colours compare them with others. */
  compare: boolean;
  /** Whether rows of the table are compared with others. */
  changes: boolean;
  /** What the colours of CPUs mean, and whether they stand where they are in the machine. */
  colour: string;
  byPlace: boolean;
}

const first: View = {
  span: 300, brush: null, to: null, table: "threads", sort: "cpu", ascending: false, filter: "", bands: 0, means: false,
  stacks: "cpu", compare: false, changes: false, colour: "busy", byPlace: true,
};

function read(): View {
  const words = new URLSearchParams(location.hash.slice(1));
  const number = (name: string) => (words.has(name) && Number.isFinite(Number(words.get(name))) ? Number(words.get(name)) : null);
  const [from, to] = [number("from"), number("until")];
  return {
    span: number("span") ?? first.span,
    brush: from !== null && to !== null && from < to ? { from, to } : null,
    to: number("to"),
    table: words.get("table") ?? first.table,
    sort: words.get("sort") ?? first.sort,
    ascending: words.has("ascending"),
    filter: words.get("filter") ?? "",
    bands: Math.max(0, number("bands") ?? 0),
    means: words.has("means"),
    stacks: kept.KINDS.find((kind) => kind === words.get("stacks")) ?? first.stacks,
    compare: words.has("compare"),
    changes: words.has("changes"),
    colour: words.get("colour") ?? first.colour,
    byPlace: words.get("order") !== "number",
  };
}

let view = read();
/** What onion and stacks are compared with; without it, the time before. A file's contents fit into no link. */
let other: Kept | null = null;
/** Why the last file was refused. */
let refused = "";
let status: Status | null = null;
let described: Described[] = [];
let timer = 0;
let looking = 0;
let scrolled = -STILL;

function write() {
  const words = new URLSearchParams();
  words.set("span", String(view.span));
  if (view.brush) {
    words.set("from", view.brush.from.toFixed(3));
    words.set("until", view.brush.to.toFixed(3));
  }
  if (view.to !== null) words.set("to", view.to.toFixed(3));
  words.set("table", view.table);
  if (view.sort) words.set("sort", view.sort);
  if (view.ascending) words.set("ascending", "");
  if (view.filter) words.set("filter", view.filter);
  if (view.bands > 0) words.set("bands", String(view.bands));
  if (view.means) words.set("means", "");
  if (view.stacks !== first.stacks) words.set("stacks", view.stacks);
  if (view.compare) words.set("compare", "");
  if (view.changes) words.set("changes", "");
  if (view.colour !== first.colour) words.set("colour", view.colour);
  if (!view.byPlace) words.set("order", "number");
  if (chosenTheme()) words.set("theme", chosenTheme());
  history.replaceState(null, "", `#${words}`);
}

const bands = new Bands(byId("bands"), (time) => choose(time));
const [state, order] = [byId<HTMLSelectElement>("state"), byId<HTMLSelectElement>("order")];
const grid = new Grid(byId<HTMLCanvasElement>("grid"), state, order, byId("cpu"), () => {
  [view.colour, view.byPlace] = [grid.colour, grid.byPlace];
  write();
});
const flame = new Flame(byId("stacks"));
const listing = new Listing(byId("rows"), () => {
  [view.sort, view.ascending] = [listing.sort, listing.ascending];
  write();
  // Which rows a band is made of goes by the order.
  if (view.bands > 0) void look();
});

const span = byId<HTMLSelectElement>("span");
const table = byId<HTMLSelectElement>("table");
const filter = byId<HTMLInputElement>("filter");
const folds = byId<HTMLInputElement>("folds");
const means = byId<HTMLInputElement>("means");
const kind = byId<HTMLSelectElement>("kind");
const compare = byId<HTMLInputElement>("compare");
const changes = byId<HTMLInputElement>("changes");
const live = byId<HTMLButtonElement>("live");
const against = byId<HTMLSelectElement>("against");
const file = byId<HTMLInputElement>("file");

function choose(time: Time | null) {
  view.brush = time;
  // What one looks at stays where it is.
  if (time && view.to === null) view.to = status?.held?.to ?? null;
  write();
  void look();
}

function follow() {
  [view.to, view.brush] = [view.to === null && status?.held ? status.held.to : null, null];
  write();
  void look();
}

/** The time whose onion, CPUs and tables are shown. */
function chosen(shown: Time): Time {
  return view.brush ?? shown;
}

async function look() {
  const mine = ++looking;
  clearTimeout(timer);
  document.body.ariaBusy = "true";
  try {
    status = await api.status();
    if (mine !== looking) return;
    head(status);
    if (status.held) await show(status, mine);
    else tell(underWay(status.interval));
  } catch (error) {
    if (mine === looking) tell(error instanceof Error ? error.message : String(error));
  }
  if (mine !== looking) return;
  document.body.ariaBusy = "false";
  if (view.to === null) {
    timer = setTimeout(again, Math.max(LOOK, 1000 * (status?.interval ?? 1)));
  }
}

/** Looks again, but not while the page is scrolled: the hand would feel it, and what it looks for would move. */
function again() {
  if (performance.now() - scrolled < STILL) timer = setTimeout(again, STILL);
  else void look();
}
addEventListener("scroll", () => (scrolled = performance.now()), { capture: true, passive: true });

async function show(now: Status, mine: number) {
  const held = now.held;
  if (!held) return;
  const to = Math.min(view.to ?? held.to, held.to);
  // A link may name a time that is not held any more: then the oldest that is.
  const end = to > held.bands_from ? to : Math.min(held.bands_from + view.span, held.to);
  const shown = { from: Math.max(end - view.span, held.bands_from), to: end };
  const drawn = await api.table("bands", shown, { rows: BANDS });
  if (mine !== looking) return;
  bands.show(drawn, view.brush);
  const time = chosen({ from: to - view.span, to });
  const length = time.to - time.from;
  const within = { from: Math.max(time.from, held.from), to: Math.min(time.to, held.to) };
  byId("brushed").textContent = view.brush ? period(time.from, time.to) : "";
  byId("all").hidden = !view.brush;
  if (within.from >= within.to) {
    nothing();
    tell(`Nothing is held of ${period(time.from, time.to)}. Tables are held of ${period(held.from, held.to)}, layers from ${period(held.bands_from, held.to)}. Press “Live” for the newest.`);
    return;
  }
  links(within);
  const before = { from: time.from - length, to: time.from };
  // Before what is held there is nothing to compare with.
  const known = before.from >= held.from;
  const places = described.find((d) => d.name === "cpus");
  const about = described.find((d) => d.name === view.table);
  const comparable = view.changes && view.bands === 0;
  const errors = refused ? [refused] : [];
  if ((view.compare || comparable) && !known && !other) {
    errors.push("Nothing is held of the time before: there is nothing to compare with.");
  }
  if (within.from > Math.max(time.from, held.bands_from) + 1) {
    errors.push(`Tables are held of ${period(held.from, held.to)}; the bands reach further back.`);
  }
  if (now.lost > 0) errors.push(`${now.lost} intervals were lost.`);
  const earlier = async <T>(asked: (time: Time) => Promise<T>) => (known ? asked(before).catch(() => null) : null);
  const current = () => mine === looking;

  // Each part is shown as soon as it is there.
  const rows = async () => {
    const asked = comparable ? { each: 0 } : folding();
    const was = !comparable ? null : other ? other.tables[view.table] : earlier((time) => api.table(view.table, time, asked));
    const [is, past] = await Promise.all([api.table(view.table, within, asked), was]);
    if (!current()) return;
    if (comparable && other && !past) errors.push(`Of ${other.host} no ${view.table} were saved.`);
    [listing.sort, listing.ascending] = [view.sort, view.ascending];
    listing.show(is.rows, about?.columns ?? [], past ? {
      rows: past.rows,
      scale: (is.to - is.from) / Math.max(past.to - past.from, 1e-9),
      elsewhere: other !== null && other.host !== now.host,
    } : null);
    byId("meaning").textContent = about?.meaning ?? "";
  };
  const cpus = async () => {
    const did = places ? api.table("cpus", within, { each: 0 }) : null;
    const all = await Promise.all([api.table("cpu_time", within, { each: 0 }), did]);
    if (current()) grid.show(...all, places?.columns ?? []);
  };
  const onion = async () => {
    const was = other ? other.layers : earlier((time) => api.table("layers", time));
    const [is, past] = await Promise.all([api.onion(within), was]);
    if (current()) showOnion(byId("layers"), is, past, other ? name(other) : "the time before, of the same length");
  };
  const stacks = async () => {
    const was = !view.compare ? null : other ? (other.stacks[view.stacks] ?? "") : earlier((time) => api.folded(view.stacks, time));
    const both = await Promise.all([api.folded(view.stacks, within), was]);
    if (current()) flame.show(...both);
  };
  await Promise.all([rows(), cpus(), onion(), stacks()]);
  if (current()) tell(errors.join(" "));
}

/** Shows that nothing is known of the chosen time. */
function nothing() {
  byId("layers").replaceChildren();
  listing.show([], []);
  flame.show("", null);
  grid.show({ table: "cpu_time", from: 0, to: 0, notes: [], rows: [] }, null, []);
  for (const link of ["report", "pprof", "perfetto"]) byId(link).removeAttribute("href");
}

/** The column by which rows are sorted, as a request says it; words go backwards too. */
function orderBy(sort: string): string | undefined {
  // The server knows nothing of changes.
  const key = base(sort);
  const column = described.find((d) => d.name === view.table)?.columns.find((c) => c.key === key);
  return column && `${column.name}:${view.ascending ? "asc" : "desc"}`;
}

function folding(): api.Parameters {
  const k = orderBy(view.sort);
  return view.bands > 0 && k ? { k, A: view.bands, m: view.means ? 1 : undefined } : {};
}

function head(now: Status) {
  byId("what").textContent = now.observed;
  const where = [now.host, `Linux ${now.kernel}`, now.cpu_model, `${now.cpus} CPUs`, `ncpu ${now.version}`, `times in ${zone(Date.now() / 1000)}`];
  byId("where").textContent = where.filter(Boolean).join(" · ");
  document.title = `ncpu: ${now.host}`;
  live.setAttribute("aria-pressed", String(view.to === null));
}

function links(time: Time) {
  const { from, to } = time;
  byId<HTMLAnchorElement>("report").href = api.address("report", { from, to });
  byId<HTMLAnchorElement>("pprof").href = api.address("pprof/cpu", { from, to });
  byId<HTMLAnchorElement>("perfetto").href = api.address("perfetto", { from, to });
}

function tell(text: string) {
  const place = byId("error");
  place.hidden = text === "";
  place.textContent = text;
}

/** The chosen time, as far as its tables are held. */
function heldTime(): Time | null {
  const held = status?.held;
  if (!held) return null;
  return chosen({ from: Math.max((view.to ?? held.to) - view.span, held.from), to: view.to ?? held.to });
}

/** The chosen time, as far as its bands are held, which is longer. */
function bandsTime(): Time | null {
  const held = status?.held;
  if (!held) return null;
  return chosen({ from: Math.max((view.to ?? held.to) - view.span, held.bands_from), to: view.to ?? held.to });
}

/** What is asked for to get a table as it is shown: its rows in their order, and only those that the filter leaves. */
function asShown(): api.Parameters {
  return { k: orderBy(listing.sort), ...folding(), filter: view.filter.trim() };
}

/** A table by another form than a link can ask for. */
async function save(what: string, kind: string, ending: string) {
  const name = what === "shown" ? view.table : what;
  const time = what === "bands" ? bandsTime() : heldTime();
  if (!time) return;
  const more = what === "shown" ? asShown() : what === "bands" ? { rows: MOST_BANDS } : {};
  const answer = await fetch(api.address(`api/v1/tables/${encodeURIComponent(name)}`, { ...time, ...more }), { headers: { Accept: kind } });
  if (!answer.ok) throw await api.refusal(name, answer);
  download(await answer.blob(), `${name}.${ending}`);
}

function download(what: Blob, as: string) {
  const link = element("a");
  link.href = URL.createObjectURL(what);
  link.download = as;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Saves the onion and stacks of the chosen time. */
async function keep() {
  const time = heldTime();
  if (!time || !status) return;
  const all = await kept.keep(status, time);
  const when = new Date(1000 * time.from).toISOString().replace(/[-:]|\.\d+/g, "");
  download(new Blob([JSON.stringify(all)], { type: "application/json" }), `ncpu-${all.host.replace(/[^\w.-]/g, "_")}-${when}.json`);
}

/** How what is compared with is called. */
function name(of: Kept): string {
  return `${of.host}, ${of.cpus} CPUs, ${period(of.layers.from, of.layers.to)}`;
}

/** Compares with what a file holds, or again with the time before. */
function compareWith(what: Kept | null) {
  [other, refused] = [what, ""];
  against.querySelector("option[value=kept]")?.remove();
  if (what) {
    const option = element("option", name(what));
    option.value = "kept";
    against.prepend(option);
  }
  against.value = what ? "kept" : "before";
  for (const place of document.querySelectorAll(".other")) place.textContent = what ? what.host : "the time before";
  void look();
}

for (const place of document.querySelectorAll<HTMLElement>("[data-export]")) {
  for (const [name, kind, ending] of [
    ["CSV", "text/csv", "csv"],
    ["JSON", "application/x-ndjson", "jsonl"],
    ["Arrow", "application/vnd.apache.arrow.stream", "arrows"],
  ] as const) {
    const link = element("a", name);
    link.href = "#";
    link.addEventListener("click", (event) => {
      event.preventDefault();
      save(place.dataset["export"] ?? "", kind, ending).catch((error: unknown) => tell(String(error)));
    });
    place.append(" ", link);
  }
}

const darkOrLight = themed(byId("theme"), () => {
  bands.repaint();
  flame.draw();
  grid.draw();
  // At the first time nothing is described yet.
  if (described.length > 0) void look();
});

byId("theme").addEventListener("click", write);
live.addEventListener("click", follow);
byId("keep").addEventListener("click", () => keep().catch((error: unknown) => tell(String(error))));
against.addEventListener("change", () => {
  if (against.value !== "file") {
    compareWith(against.value === "kept" ? other : null);
    return;
  }
  // Until a file was chosen nothing changes.
  against.value = other ? "kept" : "before";
  file.value = "";
  file.click();
});
file.addEventListener("change", () => {
  const chosenFile = file.files?.[0];
  if (!chosenFile) return;
  kept.read(chosenFile).then(compareWith, (error: unknown) => {
    refused = error instanceof Error ? error.message : String(error);
    tell(refused);
  });
});
byId("all").addEventListener("click", () => choose(null));
span.addEventListener("change", () => {
  view.span = Number(span.value);
  write();
  void look();
});
table.addEventListener("change", () => {
  [view.table, view.sort] = [table.value, ""];
  write();
  void look();
});
filter.addEventListener("input", () => {
  view.filter = filter.value;
  listing.filter(filter.value);
  write();
});
folds.addEventListener("change", () => {
  view.bands = Math.max(0, Math.floor(Number(folds.value) || 0));
  write();
  void look();
});
kind.addEventListener("change", () => {
  view.stacks = kind.value;
  write();
  void look();
});
compare.addEventListener("change", () => {
  view.compare = compare.checked;
  write();
  void look();
});
changes.addEventListener("change", () => {
  view.changes = changes.checked;
  write();
  void look();
});
means.addEventListener("change", () => {
  view.means = means.checked;
  write();
  void look();
});

const help = byId<HTMLDialogElement>("keys");
const showKeys = () => (help.open ? help.close() : help.showModal());
byId("help").addEventListener("click", showKeys);

addEventListener("keydown", (event) => {
  if (help.open) {
    // Escape closes it, without further effect.
    if (event.key === "?") showKeys();
    return;
  }
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape") {
    (document.activeElement as HTMLElement | null)?.blur();
    if (!typing && !flame.reset() && view.brush) choose(null);
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const move = (step: number) => {
    const length = view.brush ? view.brush.to - view.brush.from : view.span;
    if (view.brush) choose({ from: view.brush.from + step * length, to: view.brush.to + step * length });
    else if (status?.held) {
      view.to = Math.min(status.held.to, (view.to ?? status.held.to) + (step * length) / 2);
      write();
      void look();
    }
  };
  const keys: Record<string, () => void> = {
    l: follow,
    d: () => {
      darkOrLight();
      write();
    },
    "/": () => filter.focus(),
    "?": showKeys,
    ArrowLeft: () => move(-1),
    ArrowRight: () => move(1),
  };
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// A link to a section is no other view.
addEventListener("hashchange", () => {
  if (!location.hash.includes("=")) {
    write();
    return;
  }
  view = read();
  fill();
  void look();
});
for (const link of document.querySelectorAll<HTMLAnchorElement>("nav a[href^='#']")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    byId(link.hash.slice(1)).scrollIntoView();
  });
}

function fill() {
  span.value = String(view.span);
  table.value = view.table;
  filter.value = view.filter;
  folds.value = view.bands > 0 ? String(view.bands) : "";
  means.checked = view.means;
  kind.value = view.stacks;
  compare.checked = view.compare;
  changes.checked = view.changes;
  listing.filter(view.filter);
  grid.set(view.colour, view.byPlace);
  grid.draw();
}

async function begin() {
  const all = await api.tables();
  described = all.tables.filter((d) => d.name !== "bands" && d.name !== "layers" && d.name !== "causes");
  if (described.length === 0) {
    tell(underWay((await api.status()).interval));
    setTimeout(() => void begin(), 500);
    return;
  }
  setLayers(all.layers);
  table.replaceChildren(...described.map((d) => element("option", d.name)));
  fill();
  await look();
}

begin().catch((error: unknown) => tell(String(error)));
