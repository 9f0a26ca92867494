// What the server answers: see /api/v1/openapi.json.

export type Cell = string | number | null;
export type Row = Record<string, Cell>;

export interface Rows {
  table: string;
  from: number;
  to: number;
  notes: string[];
  rows: Row[];
}

export interface Status {
  version: string;
  host: string;
  kernel: string;
  cpu_model: string;
  cpus: number;
  observed: string;
  interval: number;
  held: { from: number; to: number; bands_from: number; intervals: number; bytes: number } | null;
  lost: number;
  notes: string[];
}

export interface Column {
  name: string;
  key: string;
  /** key, count, time, gauge, share, mean or peak. */
  kind: string;
  /** As values have it: s for all times, share for fractions of 1. */
  unit: string;
  meaning: string;
}

export interface Described {
  name: string;
  meaning: string;
  columns: Column[];
}

/** A time, in seconds since 1970. */
export interface Time {
  from: number;
  to: number;
}

export type Parameters = Record<string, string | number | undefined>;

export function address(path: string, parameters: Parameters = {}): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") words.set(name, String(value));
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

async function get<T>(path: string, parameters: Parameters = {}): Promise<T> {
  const answer = await fetch(address(path, parameters), { headers: { Accept: "application/json" } });
  if (!answer.ok) throw await refusal(path, answer);
  return (await answer.json()) as T;
}

/** Characters that are shown of an answer from another program. */
const LONGEST = 200;

/** The reason in the body of an answer that is an error. A proxy's body is shown as it is, but shortened. */
export async function refusal(path: string, answer: Response): Promise<Error> {
  const body = await answer.text();
  let why = body.trim().slice(0, LONGEST);
  try {
    const told = (JSON.parse(body) as { error?: unknown }).error;
    if (typeof told === "string") why = told;
  } catch {
    // Not of this server.
  }
  return new Error(`${path}: ${why || answer.statusText || "no reason given"} (HTTP ${answer.status})`);
}

export const status = () => get<Status>("api/v1/status");
export const tables = () => get<{ tables: Described[]; layers: { name: string; colour: string }[] }>("api/v1/tables");
export const table = (name: string, time: Time, more: Parameters = {}) =>
  get<Rows>(`api/v1/tables/${encodeURIComponent(name)}`, { from: time.from, to: time.to, ...more });

async function text(path: string, time: Time): Promise<string> {
  const answer = await fetch(address(path, { from: time.from, to: time.to }));
  if (!answer.ok) throw await refusal(path, answer);
  return answer.text();
}

/** Stacks as lines of `outermost;...;leaf MICROSECONDS`. */
export const folded = (kind: string, time: Time) => text(`folded/${encodeURIComponent(kind)}`, time);
/** The onion as the single-file report has it. */
export const onion = (time: Time) => text("onion", time);
