// Rows of a table beside those of another time, or of another machine.

import type { Cell, Column, Row } from "./api";

export interface Past {
  rows: Row[];
  /** How much longer the time that is shown is: sums of the other one are as of this length. */
  scale: number;
  /** Whether it is another machine's, where numbers as PIDs and CPUs mean something else. */
  elsewhere: boolean;
}

/** Of these columns something can be said to have grown. */
const SUMS = ["count", "time"];
export const BEFORE = ":before";
export const CHANGE = ":change";

/** The column whose change, or whose value before, a column tells; itself for others. */
export const base = (key: string) => key.replace(BEFORE, "").replace(CHANGE, "");

/** The column of a table that is compared: that of the order, or the first that can be. */
export function comparedColumn(sort: string, columns: Column[]): Column | undefined {
  const values = columns.filter((column) => column.kind !== "key");
  return values.find((column) => column.key === base(sort)) ?? values.find((column) => SUMS.includes(column.kind));
}

/** Rows with two more cells: what `column` was, and how much more it is. What there is no more is a row, too. */
export function withChanges(now: Row[], past: Past, columns: Column[], column: Column): Row[] {
  const keys = columns.filter((c) => c.kind === "key").map((c) => c.key);
  const both = [...now, ...past.rows];
  const words = past.elsewhere ? keys.filter((key) => both.some((row) => typeof row[key] === "string")) : keys;
  const [rows, were] = [now, past.rows].map((rows) => (past.elsewhere ? together(rows, words, columns) : rows)) as [Row[], Row[]];
  const name = (row: Row) => JSON.stringify(words.map((key) => row[key] ?? null));
  const before = new Map(were.map((row) => [name(row), row]));
  const scale = SUMS.includes(column.kind) ? past.scale : 1;
  const changed = (row: Row, is: Cell, was: Cell): Row => {
    const scaled = typeof was === "number" ? was * scale : null;
    const change = typeof is === "number" || scaled !== null ? (typeof is === "number" ? is : 0) - (scaled ?? 0) : null;
    return { ...row, [column.key + BEFORE]: scaled, [column.key + CHANGE]: change };
  };
  const all = rows.map((row) => {
    const was = before.get(name(row));
    before.delete(name(row));
    return changed(row, row[column.key] ?? null, was?.[column.key] ?? null);
  });
  for (const was of before.values()) {
    const gone = Object.fromEntries(columns.map((c) => [c.key, words.includes(c.key) ? (was[c.key] ?? null) : null]));
    all.push(changed(gone, null, was[column.key] ?? null));
  }
  return all;
}

/** Rows of the same words as one: their sums and peaks. Of levels and means there is none. */
function together(rows: Row[], words: string[], columns: Column[]): Row[] {
  const found = new Map<string, Row>();
  const values = columns.filter((c) => SUMS.includes(c.kind) || c.kind === "peak");
  for (const row of rows) {
    const name = JSON.stringify(words.map((key) => row[key] ?? null));
    const one: Row = found.get(name) ?? Object.fromEntries(words.map((key) => [key, row[key] ?? null]));
    found.set(name, one);
    for (const { key, kind } of values) {
      const [a, b] = [one[key] ?? null, row[key] ?? null];
      const both = typeof a === "number" && typeof b === "number";
      one[key] = !both ? (a ?? b) : kind === "peak" ? Math.max(a, b) : a + b;
    }
  }
  return [...found.values()];
}
