// How the numbers of a column are written: in one unit and with as many digits in all rows, so that they can be compared.

import type { Cell, Column, Row } from "./api";
import { CHANGE } from "./changes";
import { clock, number, zone } from "./layers";

export interface Form {
  unit: string;
  factor: number;
  /** Digits behind the point; null for whole numbers. */
  digits: number | null;
  kind: "number" | "name" | "clock" | "change";
}

/** What a unit of the server is shown in, the largest first. */
const UNITS: Record<string, [string, number][]> = {
  s: [["s", 1], ["ms", 1e3], ["µs", 1e6]],
  B: [["GiB", 2 ** -30], ["MiB", 2 ** -20], ["KiB", 2 ** -10], ["B", 1]],
  share: [["%", 100]],
};
/** Made once: making one takes longer than to write a line. */
const WHOLE = new Intl.NumberFormat("en");

/** How a column is written, by the numbers in it and in those that are like it. */
export function form(column: Column, rows: Row[], alike: string[]): Form {
  if (column.key === "time") return { unit: zone(number(rows[0] ?? {}, "time")), factor: 1, digits: null, kind: "clock" };
  if (column.kind === "key") return { unit: "", factor: 1, digits: null, kind: "name" };
  let [most, whole] = [0, true];
  for (const row of rows) {
    for (const key of alike) {
      const value = row[key];
      if (typeof value !== "number") continue;
      most = Math.max(most, Math.abs(value));
      whole &&= Number.isInteger(value);
    }
  }
  const units = UNITS[column.unit === "cpu-s" ? "s" : column.unit] ?? [["", 1]];
  const [unit, factor] = units.find(([, factor]) => most * factor >= 1) ?? units.at(-1) ?? ["", 1];
  const large = Math.floor(Math.log10(Math.max(most * factor, 1)));
  const digits = whole && factor === 1 ? null : Math.max(0, 3 - large);
  return { unit, factor, digits, kind: column.key.endsWith(CHANGE) ? "change" : "number" };
}

export function written(value: Cell, form: Form | undefined): string {
  if (value === null) return "–";
  if (typeof value === "string" || !form || form.kind === "name") return String(value);
  if (form.kind === "clock") return clock(value);
  const sign = form.kind === "change" && value > 0 ? "+" : "";
  if (value === 0) return "0";
  return sign + (form.digits === null ? WHOLE.format(value) : (value * form.factor).toFixed(form.digits));
}

/** What is said while nothing was measured yet; `interval` is in seconds. */
export function underWay(interval: number): string {
  const length = interval === 1 ? "1 second" : `${interval} seconds`;
  return `The first interval is being measured: it takes ${length}. This page then fills by itself.`;
}
