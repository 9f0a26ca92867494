// An onion, its stacks, locks and threads in a file, to compare other times with: of this machine, or of another.

import * as api from "./api";
import type { Cell, Row, Rows, Status, Time } from "./api";

/** Kinds of stacks, as the server names them. */
export const KINDS = ["cpu", "spin", "offcpu"] as const;
/** Tables that are kept. */
const TABLES = ["locks", "threads"];
/** Larger files are not read. */
const MOST = 64 << 20;

export interface Kept {
  /** What the file is, so that others are refused. */
  ncpu: "kept";
  host: string;
  cpus: number;
  layers: Rows;
  /** Stacks of each kind, as lines of `outermost;...;leaf MICROSECONDS`. */
  stacks: Record<string, string>;
  /** Tables by name; files of older versions have none. */
  tables: Record<string, Rows>;
}

/** Asks for all that is kept of a time. */
export async function keep(now: Status, time: Time): Promise<Kept> {
  const [layers, stacks, tables] = await Promise.all([
    api.table("layers", time),
    Promise.all(KINDS.map((kind) => api.folded(kind, time))),
    Promise.all(TABLES.map((name) => api.table(name, time))),
  ]);
  return {
    ncpu: "kept",
    host: now.host,
    cpus: now.cpus,
    layers: cells(layers),
    stacks: Object.fromEntries(KINDS.map((kind, i) => [kind, stacks[i] ?? ""])),
    tables: Object.fromEntries(tables.map((rows) => [rows.table, rows])),
  };
}

/** Reads a file that may be anything. */
export async function read(file: File): Promise<Kept> {
  const wrong = (why: string) => new Error(`${file.name}: ${why}. Files for comparison are written by “Save” beside it.`);
  if (file.size > MOST) throw wrong("more than 64 MiB");
  let all: unknown;
  try {
    all = JSON.parse(await file.text());
  } catch {
    throw wrong("not JSON");
  }
  if (!isObject(all) || all["ncpu"] !== "kept") throw wrong("not an onion that ncpu serve has saved");
  const { host, cpus, layers, stacks, tables = {} } = all;
  const whole =
    typeof host === "string" && typeof cpus === "number" && isTable(layers) && isObject(stacks) && isObject(tables) &&
    Object.values(stacks).every((text) => typeof text === "string") && Object.values(tables).every(isTable);
  if (!whole) throw wrong("a part is missing, or is not what it should be");
  return { ncpu: "kept", host, cpus, layers, stacks: stacks as Record<string, string>, tables: tables as Record<string, Rows> };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isCell = (value: unknown): value is Cell => value === null || typeof value === "string" || typeof value === "number";
/** Rows without what is no cell: evidence and advice, which are lists of objects and are not compared. */
const cells = (of: Rows): Rows => ({
  ...of,
  rows: of.rows.map((row) => Object.fromEntries(Object.entries(row).filter(([, value]) => isCell(value)))),
});
const isRow = (value: unknown): value is Row => isObject(value) && Object.values(value).every(isCell);
const isTable = (value: unknown): value is Rows =>
  isObject(value) && typeof value["from"] === "number" && typeof value["to"] === "number" &&
  Array.isArray(value["rows"]) && value["rows"].every(isRow);
