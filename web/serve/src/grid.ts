// CPUs as a grid of squares, whose colour is the share of time in a state.

import type { Row, Rows } from "./api";
import { byId, element, number, percent } from "./layers";
import { heat } from "./colours";

const NOT_STATES = new Set(["cpu", "time", "kernel"]);

/** What a state is called. */
const NAMES: Record<string, string> = {
  busy: "all but idle",
  idle: "idle",
  target: "programs",
  other: "other programs",
  ncpu: "ncpu itself",
  spin: "kernel lock spin",
  hardirq: "interrupts",
  softirq: "softirqs",
  tlb: "TLB shootdowns",
};

export class Grid {
  private rows: Row[] = [];
  private states: string[] = [];
  private size = 16;
  private across = 1;
  private chosen = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly choice: HTMLSelectElement,
    private readonly told: HTMLElement,
  ) {
    new ResizeObserver(() => this.draw()).observe(byId("cpus"));
    choice.addEventListener("change", () => this.draw());
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = [Math.floor(event.offsetX / this.size), Math.floor(event.offsetY / this.size)];
      this.choose(y * this.across + x);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps: Record<string, number> = {
        ArrowLeft: -1,
        ArrowRight: 1,
        ArrowUp: -this.across,
        ArrowDown: this.across,
      };
      const step = steps[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.choose(this.chosen + step);
    });
  }

  show(cpus: Rows) {
    this.rows = cpus.rows.toSorted((a, b) => number(a, "cpu") - number(b, "cpu"));
    const states = Object.keys(this.rows[0] ?? {}).filter((name) => !NOT_STATES.has(name));
    if (states.join() !== this.states.join()) {
      this.states = states;
      const before = this.choice.value;
      const options = ["busy", ...states].map((name) => {
        const option = element("option", NAMES[name] ?? name);
        option.value = name;
        return option;
      });
      this.choice.replaceChildren(...options);
      if (before) this.choice.value = before;
    }
    this.draw();
  }

  private all(row: Row): number {
    return this.states.reduce((sum, state) => sum + number(row, state), 0);
  }

  private share(row: Row, state: string): number {
    const all = this.all(row);
    if (all <= 0) return 0;
    return state === "busy" ? 1 - number(row, "idle") / all : number(row, state) / all;
  }

  draw() {
    const count = this.rows.length;
    const width = this.canvas.parentElement?.clientWidth ?? 800;
    if (count === 0) return;
    // As large as they can be in a few hundred pixels of height.
    const room = Math.max(160, Math.min(420, window.innerHeight * 0.5));
    let size = 40;
    while (size > 6 && Math.ceil(count / Math.max(1, Math.floor(width / size))) * size > room) size--;
    const across = Math.max(1, Math.min(count, Math.floor(width / size)));
    const height = Math.ceil(count / across) * size;
    [this.size, this.across] = [size, across];
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = across * size * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${across * size}px`;
    this.canvas.style.height = `${height}px`;
    const paint = this.canvas.getContext("2d");
    if (!paint) return;
    paint.scale(scale, scale);
    const colour = heat();
    const state = this.choice.value || "busy";
    const gap = size > 10 ? 2 : 1;
    this.rows.forEach((row, i) => {
      const [x, y] = [(i % across) * size, Math.floor(i / across) * size];
      paint.fillStyle = colour(this.share(row, state));
      paint.fillRect(x, y, size - gap, size - gap);
    });
    this.choose(this.chosen);
  }

  private choose(at: number) {
    const row = this.rows[at];
    if (!row) return;
    this.chosen = at;
    const parts = this.states
      .map((state) => [state, this.share(row, state)] as const)
      .filter(([, share]) => share >= 0.001)
      .map(([state, share]) => `${NAMES[state] ?? state} ${percent(share)}`);
    this.told.textContent = `CPU ${number(row, "cpu")}: ${parts.join(", ")}`;
  }
}
