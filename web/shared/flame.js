// Flame graphs: width is time, callers are above, callees below. Colours can show changes.

import { element, isDark } from "./basics.js";

/** Pixels of a row. */
const ROW = 18;
/** Narrower frames are left out. */
const NARROW = 0.7;
/** There is room for rows that have a frame of this width. Deeper and narrower ones get it when they are zoomed to. */
const READ = 4;
/** A change of this share has the full colour; between recordings the largest change, if that is more. */
const FULL = 0.02;
/** First frames that get a button: narrow ones are hard to hit with a finger. */
const BUTTONS = 8;
const KERNEL = "_[k]";

/**
 * Times are seconds, callees included.
 * @typedef {{ name: string, now: number, before: number, parent: Frame | null, callees: Map<string, Frame> }} Frame
 */

/** @type {(name: string, parent: Frame | null) => Frame} */
const frame = (name, parent) => ({ name, now: 0, before: 0, parent, callees: new Map() });
/** @type {(of: Frame) => string} */
const shown = ({ name }) => (name.endsWith(KERNEL) ? name.slice(0, -KERNEL.length) : name);

/** Adds lines of `outermost;...;leaf MICROSECONDS`. @type {(root: Frame, folded: string, which: "now" | "before") => void} */
const add = (root, folded, which) => {
  for (const line of folded.split("\n")) {
    const end = line.lastIndexOf(" ");
    const time = Number(line.slice(end + 1)) / 1e6;
    if (end < 0 || !(time > 0)) continue;
    let at = root;
    at[which] += time;
    for (const name of line.slice(0, end).split(";")) {
      let next = at.callees.get(name);
      if (!next) at.callees.set(name, (next = frame(name, at)));
      next[which] += time;
      at = next;
    }
  }
};

/** Callees with time, by their names: so they stay where they are when times change. @param {Frame | null} of */
const callees = (of) => [...(of?.callees.values() ?? [])].filter((f) => f.now > 0).sort((a, b) => (a.name < b.name ? -1 : 1));
/** @param {Frame} of */
const byTime = (of) => callees(of).sort((a, b) => b.now - a.now);

/** Number of rows of a frame and the callees below it that take `least` seconds. @type {(of: Frame, least: number) => number} */
const depth = (of, least) =>
  [...of.callees.values()].reduce((most, f) => (f.now >= least ? Math.max(most, 1 + depth(f, least)) : most), 1);

/** The frames from the first to this one, without the root. @type {(of: Frame | null) => Frame[]} */
const path = (of) => (of?.parent ? [...path(of.parent), of] : []);

/** @type {(part: number, of: number) => string} */
const share = (part, of) => `${((100 * part) / Math.max(of, 1e-12)).toFixed(2)} %`;

/** Seconds in a unit that needs few digits. @type {(value: number) => string} */
const seconds = (value) => {
  const size = Math.abs(value);
  if (size >= 1 || size === 0) return `${value.toFixed(size < 100 ? 2 : 0)} s`;
  return size >= 1e-3 ? `${(1e3 * value).toPrecision(3)} ms` : `${(1e6 * value).toPrecision(3)} µs`;
};

export class Flame {
  root = frame("all", null);
  zoomed = this.root;
  /** @type {Frame | null} */
  chosen = null;
  /** Frames as they were drawn. @type {{ frame: Frame, x: number, y: number, width: number }[]} */
  drawn = [];
  known = false;
  compared = false;
  /** Between recordings seconds are compared: 1 draws the later one, -1 the earlier. 0 compares shares: lengths of times differ. */
  sign = 0;
  /** The change that has the full colour. */
  full = FULL;
  width = 0;
  /** @type {(frame: Frame) => boolean} */
  found = () => false;

  /** @param {HTMLElement} root Holds a canvas and, by their classes, the elements named here. */
  constructor(root) {
    const part = (/** @type {string} */ name) => {
      const found = root.querySelector(name);
      if (!(found instanceof HTMLElement)) throw new Error(`a flame graph has no ${name}`);
      return found;
    };
    this.canvas = /** @type {HTMLCanvasElement} */ (part("canvas"));
    this.find = /** @type {HTMLInputElement} */ (part(".find"));
    this.matched = part(".matched");
    this.back = part(".back");
    this.first = part(".first");
    this.told = part(".read");
    this.sign = Number(root.dataset["sign"] ?? 0);
    this.canvas.addEventListener("pointermove", (event) => this.tell(this.at(event)));
    this.canvas.addEventListener("click", (event) => this.zoom(this.at(event) ?? this.zoomed));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.back.addEventListener("click", () => this.zoom(this.root));
    this.find.addEventListener("input", () => this.search());
    new ResizeObserver(() => {
      if (this.canvas.clientWidth !== this.width) this.draw();
    }).observe(this.canvas);
  }

  /** Shows stacks, and how they differ from others, where those are known. @param {string} now @param {string | null} before */
  show(now, before) {
    const [zoomed, chosen] = [path(this.zoomed), path(this.chosen)];
    this.root = frame("all", null);
    this.known = true;
    add(this.root, now, "now");
    if (before) add(this.root, before, "before");
    this.compared = before !== null && (this.sign !== 0 || this.root.before > 0);
    /** @type {(of: Frame) => number} */
    const most = (of) => Math.max(Math.abs(this.change(of)), ...callees(of).map(most));
    if (this.sign !== 0) this.full = Math.max(FULL, most(this.root));
    // The selected frame stays, if it still exists.
    this.zoomed = this.same(zoomed);
    this.chosen = chosen.length > 0 && this.root.now > 0 ? this.same(chosen) : null;
    this.buttons();
    this.search();
    this.tell(this.chosen);
  }

  /** @param {Frame[]} of */
  same(of) {
    let at = this.root;
    for (const { name } of of) {
      const next = at.callees.get(name);
      if (!next || next.now <= 0) break;
      at = next;
    }
    return at;
  }

  /** Whether there was something to go back from. */
  reset() {
    const was = this.zoomed !== this.root;
    if (was) this.zoom(this.root);
    return was;
  }

  /** @param {Frame} to */
  zoom(to) {
    this.zoomed = this.chosen = to;
    this.search();
    this.tell(to);
  }

  /** Buttons for the widest of the first frames. They are kept while the names stay: one of them may have the focus. */
  buttons() {
    const widest = byTime(this.root).slice(0, BUTTONS);
    const names = (widest.length > 1 ? widest : []).map(shown);
    const old = /** @type {HTMLElement[]} */ ([...this.first.children]);
    if (names.join(";") !== old.map((b) => b.title).join(";")) this.first.replaceChildren(...names.map(() => element("button")));
    names.forEach((name, i) => {
      const [button, to] = [/** @type {HTMLButtonElement} */ (this.first.children[i]), /** @type {Frame} */ (widest[i])];
      [button.type, button.title, button.textContent] = ["button", name, `${name} ${share(to.now, this.root.now)}`];
      button.onclick = () => this.zoom(to);
    });
  }

  /** Marks the frames that are searched for; their share counts those within others once. */
  search() {
    const words = this.find.value.trim();
    /** @type {RegExp | null} */
    let pattern = null;
    try { pattern = new RegExp(words, "i"); } catch { /* taken as plain words */ }
    this.found = (of) => words !== "" && (pattern ? pattern.test(shown(of)) : of.name.toLowerCase().includes(words.toLowerCase()));
    /** @type {(of: Frame) => number} */
    const sum = (of) => (this.found(of) ? of.now : callees(of).reduce((all, f) => all + sum(f), 0));
    this.matched.textContent = words && `${share(sum(this.zoomed), this.zoomed.now)} matched`;
    this.draw();
  }

  /** How much more of all time a frame has than before. @param {Frame} of */
  change(of) {
    const [now, before] = [Math.max(this.root.now, 1e-12), Math.max(this.root.before, 1e-12)];
    if (this.sign === 0) return of.now / now - of.before / before;
    return (this.sign * (of.now - of.before)) / Math.max(now, before);
  }

  /** @param {Frame} of @param {boolean} dark */
  colour(of, dark) {
    if (this.found(of)) return dark ? "#b040d0" : "#e090ff";
    const light = dark ? 34 : 76;
    if (this.compared) {
      const change = this.change(of);
      const strong = Math.min(1, Math.abs(change) / this.full);
      return `hsl(${change > 0 ? 8 : 215} ${Math.round(85 * strong)}% ${light + (dark ? 8 : 10) * (1 - strong)}%)`;
    }
    let hash = 0;
    for (let i = 0; i < of.name.length; i++) hash = (31 * hash + of.name.charCodeAt(i)) | 0;
    // The legend has the middle of each: .f-kernel and .f-user in page.css.
    return `hsl(${(of.name.endsWith(KERNEL) ? 18 : 80) + (Math.abs(hash) % 24)} 55% ${light}%)`;
  }

  draw() {
    const width = (this.width = this.canvas.clientWidth);
    if (width === 0) return;
    const callers = [...(this.zoomed === this.root ? [] : [this.root]), ...path(this.zoomed).slice(0, -1)];
    const rows = callers.length + depth(this.zoomed, (this.zoomed.now / width) * READ);
    const scale = devicePixelRatio || 1;
    this.canvas.style.height = `${rows * ROW}px`;
    [this.canvas.width, this.canvas.height] = [width * scale, rows * ROW * scale];
    this.back.hidden = this.zoomed === this.root;
    this.drawn = [];
    const paint = this.canvas.getContext("2d");
    if (!paint) return;
    paint.scale(scale, scale);
    paint.font = "12px ui-monospace, monospace";
    paint.textBaseline = "middle";
    const letter = paint.measureText("0").width;
    const text = getComputedStyle(this.canvas).color;
    const dark = isDark();
    /** @typedef {(of: Frame, x: number, row: number, wide: number) => void} Put @type {Put} */
    const put = (of, x, row, wide) => {
      const y = row * ROW;
      this.drawn.push({ frame: of, x, y, width: wide });
      paint.fillStyle = this.colour(of, dark);
      paint.fillRect(x, y, Math.max(wide - 1, 0.5), ROW - 1);
      if (of === this.chosen) {
        paint.strokeStyle = text;
        paint.strokeRect(x + 0.5, y + 0.5, Math.max(wide - 2, 0.5), ROW - 2);
      }
      const letters = Math.floor((wide - 7) / letter);
      if (letters < 3) return;
      paint.fillStyle = text;
      const name = shown(of);
      paint.fillText(name.length > letters ? `${name.slice(0, letters - 1)}…` : name, x + 3, y + ROW / 2, wide - 4);
    };
    paint.globalAlpha = 0.55;
    callers.forEach((caller, i) => put(caller, 0, i, width));
    paint.globalAlpha = 1;
    /** @type {Put} */
    const below = (of, x, row, wide) => {
      put(of, x, row, wide);
      for (const callee of callees(of)) {
        const part = (callee.now / of.now) * wide;
        if (part >= NARROW) below(callee, x, row + 1, part);
        x += part;
      }
    };
    if (this.zoomed.now > 0) below(this.zoomed, 0, callers.length, width);
    if (!this.known || this.chosen) return;
    this.told.textContent = this.root.now > 0 ? `${seconds(this.root.now)} in all` : "No stacks of this kind.";
  }

  /** @param {MouseEvent} event */
  at({ offsetX: x, offsetY: y }) {
    return this.drawn.find((d) => x >= d.x && x < d.x + d.width && y >= d.y && y < d.y + ROW)?.frame ?? null;
  }

  /** @param {Frame | null} of */
  tell(of) {
    if (!of) return;
    const plus = (/** @type {number} */ value) => (value > 0 ? "+" : "");
    const words = [seconds(of.now), share(of.now, this.root.now)];
    if (this.zoomed.parent && of !== this.zoomed) words.push(`${share(of.now, this.zoomed.now)} of the zoom`);
    const [points, more] = [Number((100 * this.change(of)).toFixed(2)), this.sign * (of.now - of.before)];
    if (this.compared) words.push(this.sign === 0 ? `${plus(points)}${points.toFixed(2)} points` : `${plus(more)}${seconds(more)}`);
    this.told.replaceChildren(element("strong", shown(of)), `: ${words.join(", ")}`);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const at = this.chosen ?? this.zoomed;
    const beside = (/** @type {number} */ step) => callees(at.parent)[callees(at.parent).indexOf(at) + step];
    /** @type {Record<string, () => unknown>} */
    const moves = {
      Enter: () => this.zoom(at),
      Escape: () => this.reset(),
      ArrowUp: () => this.choose(at.parent),
      ArrowDown: () => this.choose(byTime(at)[0]),
      ArrowLeft: () => this.choose(beside(-1)),
      ArrowRight: () => this.choose(beside(1)),
    };
    const move = moves[event.key];
    // Without a zoom Escape is for others.
    if (!move || move() === false) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {Frame | null | undefined} to */
  choose(to) {
    if (!to) return;
    this.chosen = to;
    this.draw();
    this.tell(to);
  }
}
