// Layers of the onion: their colours, and how shares and times are written.

import type { Row } from "./api";

/** The colour of a layer in page.css, by its key in JSON. */
const COLOURS: Record<string, string> = {
  user_lock_waiting: "ulock",
  kernel_lock_spin: "kspin",
  kernel_lock_block: "kblock",
  page_faults_and_zeroing: "faults",
  tlb_shootdown: "tlb",
  system_calls: "calls",
  context_switches: "switches",
  interrupts_and_softirqs: "irq",
  steal: "steal",
  run_queue_waiting: "runq",
  i_o_wait: "io",
  i_per_o_wait: "io",
  serial_phases: "serial",
  other_kernel_work: "kernel",
  system_calls_faults_and_kernel_locks: "merged",
  user_locks_or_serial_phases: "waits",
  kernel_locks_or_i_o: "blocked",
  kernel_locks_or_i_per_o: "blocked",
  user_code: "user",
  other_programs: "others",
  ncpu_itself: "own",
  idle: "idle",
  not_accounted_for: "unseen",
};

/** A layer's key, from its name. */
export const key = (name: string) => name.toLowerCase().replaceAll("/", "_per_").replace(/[^a-z0-9]+/g, "_");

/** A layer's colour as it is just now: dark or light. */
export function colour(layer: string): string {
  const name = COLOURS[layer] ?? "unseen";
  // What light-dark() means shows only where it is used.
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export const percent = (share: number) => `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;

/** Seconds, as short as they can be read. */
export function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  if (size >= 1e-3) return `${(1e3 * value).toPrecision(3)} ms`;
  return `${(1e6 * value).toPrecision(3)} µs`;
}

export const clock = (time: number) =>
  new Date(1000 * time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A number of a row. */
export const number = (row: Row, name: string): number => {
  const value = row[name];
  return typeof value === "number" ? value : 0;
};

/** An element with text in it, which is never markup. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  text = "",
  kind = "",
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** The element of this id, which index.html has. */
export function byId<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found as T;
}
