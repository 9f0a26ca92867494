// The onion over time: stacked bands, over which a time is brushed.

import uPlot from "uplot";
import type { Row, Rows, Time } from "./api";
import { cssColour } from "../../shared/basics.js";
import { clock, nameOf, number, percent, variable, zone } from "./layers";

/** A layer that is never more has no band. */
const LEAST = 5e-4;
const NOT_LAYERS = new Set(["time", "length", "capacity"]);

export class Bands {
  private plot: uPlot | null = null;
  private layers: string[] = [];
  private rows: Row[] = [];
  private brush: Time | null = null;

  constructor(
    private readonly place: HTMLElement,
    private readonly brushed: (time: Time) => void,
  ) {
    new ResizeObserver(() => this.resize()).observe(place);
  }

  private resize() {
    this.plot?.setSize({ width: this.place.clientWidth, height: this.height() });
  }

  private height() {
    return Math.max(220, Math.min(380, window.innerHeight * 0.42));
  }

  show(bands: Rows, brush: Time | null) {
    this.rows = bands.rows;
    this.brush = brush;
    const first = bands.rows[0];
    // Layers of nothing have no band; what runs for the user lies at the bottom, what is idle at the top.
    const present = Object.keys(first ?? {}).filter(
      (name) => !NOT_LAYERS.has(name) && bands.rows.some((row) => number(row, name) > LEAST * number(row, "capacity")),
    );
    const order = ["user_code", ...present.filter((n) => n !== "user_code" && n !== "idle"), "idle"];
    const layers = order.filter((name) => present.includes(name));
    const times = bands.rows.map((row) => number(row, "time"));
    const sums = times.map(() => 0);
    const stacked = layers.map((layer) =>
      bands.rows.map((row, i) => (sums[i] = (sums[i] ?? 0) + number(row, layer) / Math.max(number(row, "capacity"), 1e-9))),
    );
    const data: uPlot.AlignedData = [times, ...stacked];
    if (this.plot && layers.join() === this.layers.join()) {
      this.plot.setData(data);
    } else {
      this.plot?.destroy();
      this.layers = layers;
      this.plot = new uPlot(this.options(), data, this.place);
    }
  }

  /** Draws anew, in other colours. */
  repaint() {
    this.layers = [];
  }

  private options(): uPlot.Options {
    const text = getComputedStyle(document.body).color;
    const line = getComputedStyle(document.body).getPropertyValue("--line-now") || "#8884";
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    return {
      width: this.place.clientWidth,
      height: this.height(),
      cursor: { drag: { x: true, y: false, setScale: false } },
      select: { show: true, left: 0, top: 0, width: 0, height: 0 },
      scales: { y: { range: [0, 1] } },
      axes: [{ ...axis, space: 90, values: (_, splits) => splits.map(clock) }, { ...axis, size: 56, values: (_, splits) => splits.map(percent) }],
      series: [
        { label: "Time", value: (_, time) => (time == null ? "" : `${clock(time)} ${zone(time)}`) },
        ...this.layers.map((layer, i): uPlot.Series => ({
          label: nameOf(layer),
          stroke: cssColour(variable(layer)),
          width: 0,
          fill: cssColour(variable(layer)),
          points: { show: false },
          // The line is of the sum up to here: what is told is the layer's own.
          value: (_, __, ___, at) => this.told(layer, at ?? null, i),
        })),
      ],
      // Each band is filled down to the one below.
      bands: this.layers.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] })),
      hooks: {
        // Only then is it known where a time lies.
        draw: [() => this.mark()],
        setSelect: [
          (plot) => {
            const { left, width } = plot.select;
            if (width < 3) return;
            const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
            this.brushed({ from, to });
          },
        ],
      },
    };
  }

  /** Shows which time is chosen. */
  private mark() {
    const plot = this.plot;
    if (!plot) return;
    let [left, right] = [0, 0];
    if (this.brush) {
      left = Math.max(0, plot.valToPos(this.brush.from, "x"));
      right = Math.min(plot.over.clientWidth, plot.valToPos(this.brush.to, "x"));
    }
    const [width, height] = [Math.max(0, right - left), plot.over.clientHeight];
    plot.setSelect({ left, width, top: 0, height: width > 0 ? height : 0 }, false);
  }

  private told(layer: string, at: number | null, _: number): string {
    const row = at === null ? this.rows.at(-1) : this.rows[at];
    return row ? percent(number(row, layer) / Math.max(number(row, "capacity"), 1e-9)) : "";
  }
}
