// Stacks of a time as a flame graph, in colours that tell what has changed against another.

import { isDark } from "../../shared.js";
import { byId, element, percent, seconds } from "./layers";

/** Pixels of a row. */
const ROW = 18;
/** A share that changed by so much has the full colour. */
const FULL = 0.02;
/** Narrower frames are left out. */
const NARROW = 0.7;
/** There is room for rows that have a frame of this width; what is deeper and narrower gets it when it is shown alone. */
const READ = 4;

interface Frame {
  name: string;
  /** Seconds, callees included. */
  now: number;
  before: number;
  parent: Frame | null;
  callees: Map<string, Frame>;
}

/** A frame as it was drawn. */
interface Drawn {
  frame: Frame;
  x: number;
  y: number;
  width: number;
}

const frame = (name: string, parent: Frame | null): Frame => ({ name, now: 0, before: 0, parent, callees: new Map() });

/** Adds lines of `outermost;...;leaf MICROSECONDS`. */
function add(root: Frame, folded: string, which: "now" | "before") {
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
}

/** Number of rows below a frame, itself included, of those that are drawn. */
function depth(of: Frame, least: number): number {
  let most = 0;
  for (const callee of of.callees.values()) {
    if (callee.now >= least) most = Math.max(most, depth(callee, least));
  }
  return 1 + most;
}

export class Flame {
  private root = frame("all", null);
  private zoomed = this.root;
  private chosen: Frame | null = null;
  private drawn: Drawn[] = [];
  private known = false;
  private compared = false;
  private words = "";

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly told: HTMLElement,
    private readonly back: HTMLElement,
  ) {
    new ResizeObserver(() => this.draw()).observe(byId("stacks"));
    canvas.addEventListener("pointermove", (event) => this.tell(this.at(event)));
    canvas.addEventListener("click", (event) => {
      const found = this.at(event);
      if (found) this.zoom(found);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
    back.addEventListener("click", () => this.zoom(this.root));
  }

  /** Shows the stacks of a time, and how they differ from others, where those are known. */
  show(now: string, before: string | null) {
    const [zoomed, chosen] = [this.path(this.zoomed), this.chosen && this.path(this.chosen)];
    this.root = frame("all", null);
    this.known = true;
    add(this.root, now, "now");
    if (before) add(this.root, before, "before");
    this.compared = before !== null && this.root.before > 0;
    // What was looked at stays, as far as it is still there.
    this.zoomed = this.found(zoomed);
    this.chosen = chosen && this.root.now > 0 ? this.found(chosen) : null;
    this.draw();
    this.tell(this.chosen);
  }

  private found(path: string[]): Frame {
    let at = this.root;
    for (const name of path) {
      const next = at.callees.get(name);
      if (!next || next.now <= 0) break;
      at = next;
    }
    return at;
  }

  filter(words: string) {
    this.words = words.toLowerCase();
    this.draw();
  }

  /** Whether there was something to go back from. */
  reset(): boolean {
    const was = this.zoomed !== this.root;
    if (was) this.zoom(this.root);
    return was;
  }

  private zoom(to: Frame) {
    this.zoomed = to;
    this.chosen = to;
    this.draw();
    this.tell(to);
  }

  private path(of: Frame): string[] {
    const names: string[] = [];
    for (let at: Frame | null = of; at?.parent; at = at.parent) names.unshift(at.name);
    return names;
  }

  /** How much more of all time a frame has than before. */
  private change(of: Frame): number {
    return of.now / Math.max(this.root.now, 1e-9) - of.before / Math.max(this.root.before, 1e-9);
  }

  private colour(of: Frame, dark: boolean): string {
    if (this.words && of.name.toLowerCase().includes(this.words)) return dark ? "#b040d0" : "#e090ff";
    const light = dark ? 34 : 76;
    if (this.compared) {
      const change = this.change(of);
      const strong = Math.min(1, Math.abs(change) / FULL);
      return `hsl(${change > 0 ? 8 : 215} ${Math.round(85 * strong)}% ${light + (dark ? 8 : 10) * (1 - strong)}%)`;
    }
    let hash = 0;
    for (let i = 0; i < of.name.length; i++) hash = (31 * hash + of.name.charCodeAt(i)) | 0;
    const spread = Math.abs(hash) % 24;
    // The kernel's functions are told from the program's.
    return `hsl(${of.name.endsWith("_[k]") ? 18 + spread : 80 + spread} 55% ${light}%)`;
  }

  draw() {
    const width = this.canvas.parentElement?.clientWidth ?? 800;
    const callers: Frame[] = [];
    for (let at: Frame | null = this.zoomed; at; at = at.parent) callers.unshift(at);
    const least = (this.zoomed.now / Math.max(width, 1)) * READ;
    const rows = callers.length - 1 + depth(this.zoomed, least);
    const height = Math.max(rows * ROW, ROW);
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.back.hidden = this.zoomed === this.root;
    this.drawn = [];
    const paint = this.canvas.getContext("2d");
    if (!paint) return;
    paint.scale(scale, scale);
    paint.font = "12px system-ui, sans-serif";
    paint.textBaseline = "middle";
    const text = getComputedStyle(this.canvas).color;
    const dark = isDark();
    const put = (of: Frame, x: number, y: number, wide: number) => {
      this.drawn.push({ frame: of, x, y, width: wide });
      paint.fillStyle = this.colour(of, dark);
      paint.fillRect(x, y, Math.max(wide - 1, 0.5), ROW - 1);
      if (of === this.chosen) {
        paint.strokeStyle = text;
        paint.strokeRect(x + 0.5, y + 0.5, Math.max(wide - 2, 0.5), ROW - 2);
      }
      if (wide > 24) {
        paint.save();
        paint.beginPath();
        paint.rect(x, y, wide - 4, ROW);
        paint.clip();
        paint.fillStyle = text;
        paint.fillText(of.name, x + 3, y + ROW / 2);
        paint.restore();
      }
    };
    callers.slice(0, -1).forEach((caller, i) => put(caller, 0, i * ROW, width));
    const below = (of: Frame, x: number, y: number, wide: number) => {
      put(of, x, y, wide);
      let at = x;
      for (const callee of [...of.callees.values()].toSorted((a, b) => a.name.localeCompare(b.name))) {
        const part = (callee.now / Math.max(of.now, 1e-9)) * wide;
        if (part >= NARROW) below(callee, at, y + ROW, part);
        at += part;
      }
    };
    if (this.zoomed.now > 0) below(this.zoomed, 0, (callers.length - 1) * ROW, width);
    if (!this.known) this.told.textContent = "";
    else if (this.root.now <= 0) this.told.textContent = "No stacks of this kind.";
    else if (!this.chosen) this.told.textContent = `${seconds(this.root.now)} CPU-seconds`;
  }

  private at(event: PointerEvent | MouseEvent): Frame | null {
    const [x, y] = [event.offsetX, event.offsetY];
    const hit = this.drawn.findLast((d) => x >= d.x && x < d.x + d.width && y >= d.y && y < d.y + ROW);
    return hit?.frame ?? null;
  }

  private tell(of: Frame | null) {
    if (!of) return;
    const share = percent(of.now / Math.max(this.root.now, 1e-9));
    const points = (100 * this.change(of)).toFixed(2);
    const moved = this.compared ? `, ${Number(points) > 0 ? "+" : ""}${points} points` : "";
    this.told.replaceChildren(element("strong", of.name), `: ${seconds(of.now)}, ${share}${moved}`);
  }

  private key(event: KeyboardEvent) {
    const at = this.chosen ?? this.zoomed;
    const largest = (of: Frame) => [...of.callees.values()].filter((f) => f.now > 0).toSorted((a, b) => b.now - a.now)[0];
    const beside = (step: number) => {
      const all = [...(at.parent?.callees.values() ?? [])].filter((f) => f.now > 0);
      all.sort((a, b) => a.name.localeCompare(b.name));
      return all[all.indexOf(at) + step];
    };
    const moves: Record<string, () => Frame | null | undefined> = {
      ArrowUp: () => at.parent,
      ArrowDown: () => largest(at),
      ArrowLeft: () => beside(-1),
      ArrowRight: () => beside(1),
    };
    if (event.key === "Enter") {
      this.zoom(at);
    } else if (moves[event.key]) {
      const to = moves[event.key]?.();
      if (to) {
        this.chosen = to;
        this.draw();
        this.tell(to);
      }
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
