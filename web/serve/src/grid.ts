// CPUs as squares, each where it is in the machine. Their colour is the share of time in a state, or how often something
// happened.

import type { Column, Row, Rows } from "./api";
import { byId, number, percent } from "./layers";
import { cssColour, element, heatScale } from "../../shared/basics.js";

/** What is no state in `cpu_time`. */
const NOT_STATES = new Set(["cpu", "time", "kernel"]);
/** What in `cpus` tells which CPU a row is of. */
const PLACES = new Set(["cpu", "time", "node", "package", "core"]);
/** Times in `cpus`, which are all of a CPU's; the other columns are counts. */
const TIMES = ["usr", "sys", "wt", "st", "idl"];

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

/** Pixels of a square, of the room between blocks, and above a block for its name. */
const LARGEST = 40;
const SMALLEST = 5;
const APART = 12;
const TITLE = 16;

interface Cpu {
  cpu: number;
  /** Its row in `cpu_time` and in `cpus`. */
  spent: Row;
  did: Row | null;
  colour: string;
  x: number;
  y: number;
  /** Width: strands of a core touch each other. */
  wide: number;
}

/** CPUs of a node and package. */
interface Block {
  cpus: Cpu[];
  /** Most strands that a core has. */
  strands: number;
  name: string;
  x: number;
  y: number;
  columns: number;
}

const place = (cpu: Cpu, level: string) => (cpu.did ? number(cpu.did, level) : 0);

/** The CPUs in blocks, in the order in which they are drawn. */
function blocks(cpus: Cpu[], byPlace: boolean): Block[] {
  const block = (some: Cpu[], strands: number, name = ""): Block => ({ cpus: some, strands, name, x: 0, y: 0, columns: 1 });
  if (!byPlace) return [block(cpus.toSorted((a, b) => a.cpu - b.cpu), 1)];
  const levels = ["node", "package", "core"];
  const sorted = cpus.toSorted((a, b) => {
    const level = levels.find((level) => place(a, level) !== place(b, level));
    return level ? place(a, level) - place(b, level) : a.cpu - b.cpu;
  });
  const groups = Map.groupBy(sorted, (cpu) => `${place(cpu, "node")} ${place(cpu, "package")}`);
  const of = (level: string) => new Set(sorted.map((cpu) => place(cpu, level))).size;
  const [nodes, packages] = [of("node"), of("package")];
  return [...groups.values()].map((group) => {
    const strands = Math.max(...[...Map.groupBy(group, (cpu) => place(cpu, "core")).values()].map((core) => core.length));
    const first = group[0];
    const one = first && `node ${place(first, "node")}`;
    const whole = packages === 1 || nodes === 1 || (nodes === packages && groups.size === nodes);
    const name = first ? (whole && nodes >= packages ? one : `${one} package ${place(first, "package")}`) : "";
    return block(group, strands, groups.size > 1 ? name : "");
  });
}

/** Places all squares of a size; how high all of them are together. */
function arrange(all: Block[], size: number, width: number): number {
  let [x, y, line] = [0, 0, 0];
  const named = all.some((block) => block.name !== "");
  for (const block of all) {
    const count = block.cpus.length;
    const most = Math.max(1, Math.floor(width / size / block.strands)) * block.strands;
    // Half as high as wide, or one block of all.
    const wanted = all.length > 1 ? Math.ceil(Math.sqrt(2 * count) / block.strands) * block.strands : count;
    block.columns = Math.max(1, Math.min(most, wanted));
    const high = Math.ceil(count / block.columns) * size + (named ? TITLE + APART : 0);
    if (x > 0 && x + block.columns * size > width) [x, y, line] = [0, y + line, 0];
    [block.x, block.y] = [x, y + (named ? TITLE : 0)];
    x += block.columns * size + APART;
    line = Math.max(line, high);
  }
  return y + line;
}

export class Grid {
  private cpus: Cpu[] = [];
  private all: Block[] = [];
  /** In the order in which they are drawn. */
  private drawn: Cpu[] = [];
  private states: string[] = [];
  private counts: string[] = [];
  private meanings = new Map<string, string>();
  private elapsed = 1;
  private size = LARGEST;
  private chosen = 0;
  /** What colours mean, and whether CPUs stand where they are in the machine; for the link. */
  colour = "busy";
  byPlace = true;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly choice: HTMLSelectElement,
    private readonly order: HTMLSelectElement,
    private readonly told: HTMLElement,
    private readonly changed: () => void,
  ) {
    new ResizeObserver(() => this.draw()).observe(byId("cpus"));
    choice.addEventListener("change", () => {
      this.colour = choice.value;
      this.changed();
      this.draw();
    });
    order.addEventListener("change", () => {
      this.byPlace = order.value === "place";
      this.changed();
      this.draw();
    });
    canvas.addEventListener("pointermove", (event) => this.choose(this.at(event.offsetX, event.offsetY)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows the CPUs of a time: where they were, and what they did where that is known. */
  show(spent: Rows, did: Rows | null, columns: Column[]) {
    const doing = new Map(did?.rows.map((row) => [number(row, "cpu"), row]));
    this.cpus = spent.rows.map((row) => {
      const cpu = number(row, "cpu");
      return { cpu, spent: row, did: doing.get(cpu) ?? null, colour: "", x: 0, y: 0, wide: 0 };
    });
    this.elapsed = Math.max(1e-3, spent.to - spent.from);
    this.states = Object.keys(spent.rows[0] ?? {}).filter((name) => !NOT_STATES.has(name));
    const known = (name: string) => !PLACES.has(name) && did?.rows.some((row) => row[name] !== null);
    this.counts = Object.keys(did?.rows[0] ?? {}).filter(known);
    this.meanings = new Map(columns.map((column) => [column.key, column.meaning]));
    this.choices();
    this.draw();
  }

  /** Takes what a link says. */
  set(colour: string, byPlace: boolean) {
    [this.colour, this.byPlace] = [colour, byPlace];
    this.order.value = byPlace ? "place" : "number";
    if ([...this.choice.options].some((option) => option.value === colour)) this.choice.value = colour;
  }

  private choices() {
    const names = ["busy", ...this.states, ...this.counts.map((name) => `cpus.${name}`)];
    if (names.join() === [...this.choice.options].map((option) => option.value).join()) return;
    const group = (label: string, some: string[]) => {
      const made = element("optgroup");
      made.label = label;
      for (const name of some) {
        const column = name.replace(/^cpus\./, "");
        const meaning = name === column ? NAMES[name] : this.meanings.get(column);
        const option = element("option", name === column ? (meaning ?? name) : `${column}: ${meaning ?? ""}`);
        option.value = name;
        made.append(option);
      }
      return made;
    };
    const [states, counts] = [names.filter((n) => !n.startsWith("cpus.")), names.filter((n) => n.startsWith("cpus."))];
    this.choice.replaceChildren(group("Time", states), ...(counts.length > 0 ? [group("As ncpu cpus has it", counts)] : []));
    this.set(this.colour, this.byPlace);
  }

  /** A column's value of a CPU: a share of its time, or events a second. */
  private value(cpu: Cpu, name: string): number {
    const sum = (row: Row, some: string[]) => some.reduce((all, column) => all + number(row, column), 0);
    if (name.startsWith("cpus.")) {
      if (!cpu.did) return 0;
      const column = name.slice("cpus.".length);
      if (!TIMES.includes(column)) return number(cpu.did, column) / this.elapsed;
      return number(cpu.did, column) / (sum(cpu.did, TIMES) || 1);
    }
    const all = sum(cpu.spent, this.states) || 1;
    return name === "busy" ? (all - number(cpu.spent, "idle")) / all : number(cpu.spent, name) / all;
  }

  private isShare(name: string): boolean {
    return !name.startsWith("cpus.") || TIMES.includes(name.slice("cpus.".length));
  }

  private written(name: string, value: number): string {
    return this.isShare(name) ? percent(value) : `${Math.round(value).toLocaleString("en")} a second`;
  }

  draw() {
    const width = this.canvas.parentElement?.clientWidth ?? 800;
    if (this.cpus.length === 0) return;
    const placed = this.byPlace && this.cpus.some((cpu) => cpu.did !== null);
    this.all = blocks(this.cpus, placed);
    this.drawn = this.all.flatMap((block) => block.cpus);
    // As large as they can be in a few hundred pixels of height.
    const room = Math.max(160, Math.min(460, window.innerHeight * 0.5));
    let size = LARGEST;
    while (size > SMALLEST && arrange(this.all, size, width) > room) size--;
    const height = arrange(this.all, size, width);
    this.size = size;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const paint = this.canvas.getContext("2d");
    if (!paint) return;
    paint.scale(scale, scale);

    const name = this.choice.value || "busy";
    const values = new Map(this.drawn.map((cpu) => [cpu, this.value(cpu, name)]));
    const most = this.isShare(name) ? 1 : Math.max(1, ...values.values());
    byId("most").textContent = this.written(name, most);
    const heat = heatScale();
    const gap = size > 10 ? 2 : 1;
    paint.fillStyle = getComputedStyle(this.canvas).color;
    paint.font = "11px system-ui, sans-serif";
    for (const block of this.all) {
      const wide = block.columns * size;
      const short = block.name.replace("node ", "n").replace("package ", "p");
      paint.fillText(paint.measureText(block.name).width <= wide ? block.name : short, block.x, block.y - 4, wide);
      block.cpus.forEach((cpu, i) => {
        const column = i % block.columns;
        const next = block.cpus[i + 1];
        const touches = placed && next && column + 1 < block.columns && place(next, "core") === place(cpu, "core");
        [cpu.x, cpu.y] = [block.x + column * size, block.y + Math.floor(i / block.columns) * size];
        cpu.wide = touches && size > 10 ? size - 1 : touches ? size : size - gap;
        cpu.colour = `rgb(${heat((values.get(cpu) ?? 0) / most).join()})`;
      });
    }
    for (const cpu of this.drawn) this.square(paint, cpu);
    this.choose(this.chosen);
  }

  private square(paint: CanvasRenderingContext2D, cpu: Cpu) {
    paint.fillStyle = cpu.colour;
    paint.fillRect(cpu.x, cpu.y, cpu.wide, this.size - (this.size > 10 ? 2 : 1));
  }

  /** The CPU at a place of the canvas. */
  private at(x: number, y: number): number {
    let before = 0;
    for (const block of this.all) {
      const [column, row] = [Math.floor((x - block.x) / this.size), Math.floor((y - block.y) / this.size)];
      const i = row * block.columns + column;
      if (column >= 0 && column < block.columns && row >= 0 && i < block.cpus.length) return before + i;
      before += block.cpus.length;
    }
    return -1;
  }

  private key(event: KeyboardEvent) {
    const steps: Record<string, () => number> = {
      ArrowLeft: () => this.chosen - 1,
      ArrowRight: () => this.chosen + 1,
      ArrowUp: () => this.nearest(-1),
      ArrowDown: () => this.nearest(1),
      Home: () => 0,
      End: () => this.drawn.length - 1,
    };
    const step = steps[event.key]?.();
    if (step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(step);
  }

  /** The CPU that is nearest above or below the chosen one. */
  private nearest(way: number): number {
    const from = this.drawn[this.chosen];
    let [best, least] = [this.chosen, Infinity];
    if (!from) return best;
    this.drawn.forEach((cpu, i) => {
      const far = (cpu.y - from.y) * way;
      const distance = far + 4 * Math.abs(cpu.x - from.x);
      if (far > 0 && distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  private choose(at: number) {
    const cpu = this.drawn[at];
    const paint = this.canvas.getContext("2d");
    if (!cpu || !paint) return;
    const before = this.drawn[this.chosen];
    if (before) this.square(paint, before);
    this.chosen = at;
    this.square(paint, cpu);
    paint.strokeStyle = markColour(this.canvas);
    paint.lineWidth = Math.min(2, this.size / 5);
    const inset = paint.lineWidth / 2;
    paint.strokeRect(cpu.x + inset, cpu.y + inset, cpu.wide - 2 * inset, this.size - (this.size > 10 ? 2 : 1) - 2 * inset);
    const states = this.states
      .map((state) => [state, this.value(cpu, state)] as const)
      .filter(([, share]) => share >= 0.001)
      .map(([state, share]) => `${NAMES[state] ?? state} ${percent(share)}`);
    const where = cpu.did ? ` (node ${place(cpu, "node")}, package ${place(cpu, "package")}, core ${place(cpu, "core")})` : "";
    const name = this.choice.value;
    const column = name.startsWith("cpus.") ? [`${name.slice("cpus.".length)} ${this.written(name, this.value(cpu, name))}`] : [];
    this.told.textContent = `CPU ${cpu.cpu}${where}: ${[...column, ...states].join(", ")}`;
  }
}

let marked: [string, string] | null = null;

/** The colour of what is chosen, as it is in the light or the dark. */
function markColour(at: HTMLElement): string {
  const text = getComputedStyle(at).color;
  if (marked?.[0] !== text) {
    marked = [text, cssColour("--mark")];
  }
  return marked[1];
}
