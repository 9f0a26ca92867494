import { beforeEach, expect, test, vi } from "vitest";
import type { Column, Row } from "../src/api";

const column = (key: string, kind: string, unit = ""): Column => ({ key, name: key, kind, unit, meaning: `what ${key} is` });
const COLUMNS = [column("pid", "key"), column("spin", "time", "s"), column("lock", "key"), column("note", "key")];
const HEIGHT = 26;

// Loaded where there is a page: it looks at the theme at once.
const { Listing } = await import("../src/rows");

let [wide, scrolled] = [1000, 0];
let sorted = vi.fn();
/** A table in a window of `wide` x 520 pixels, which is 20 rows. */
function listing() {
  const place = document.createElement("div");
  Object.defineProperty(place, "clientWidth", { get: () => wide });
  Object.defineProperty(place, "clientHeight", { get: () => 20 * HEIGHT });
  Object.defineProperty(place, "scrollTop", { get: () => scrolled });
  sorted = vi.fn();
  const made = new Listing(place, sorted);
  const scroll = (row: number) => {
    scrolled = row * HEIGHT;
    place.dispatchEvent(new Event("scroll"));
  };
  const heads = () => [...place.querySelectorAll<HTMLElement>(".head > div")];
  /** The cells of the lines by the row at which they stand. */
  const seen = () => new Map([...place.querySelectorAll<HTMLElement>(".row")].flatMap((line) => {
    const at = /translateY\((\d+)px\)/.exec(line.style.transform);
    return at ? [[Number(at[1]) / HEIGHT, [...line.children].map((cell) => cell.textContent)] as const] : [];
  }));
  return { made, place, scroll, heads, seen, names: () => heads().map((head) => head.textContent), first: () => seen().get(0) };
}
const many = (count: number): Row[] =>
  Array.from({ length: count }, (_, i) => ({ pid: i, spin: ((i * 7919) % count) / 1000, lock: `lock ${i}`, note: null }));

beforeEach(() => {
  [wide, scrolled] = [1000, 0];
});

test("of 100,000 rows only those in sight are in the page, each in its place, wherever one scrolls", () => {
  const { made, place, scroll, seen } = listing();
  made.show(many(100_000), COLUMNS);
  for (const top of [0, 3, 40, 41, 65_000, 99_980, 500, 0]) {
    scroll(top);
    expect(place.querySelectorAll(".row").length).toBeLessThanOrEqual(64);
    for (let row = top; row < top + 20; row++) expect(seen().get(row)?.at(-1), `row ${row} at ${top}`).toBe(`lock ${row}`);
  }
  expect(place.querySelector<HTMLElement>(".space")?.style.height).toBe(`${100_000 * HEIGHT}px`);
});

test("columns have a name, a unit and a meaning; columns of nothing are left out", () => {
  const { made, heads, names, first } = listing();
  made.show([{ pid: 1234, spin: 0.5, lock: "a", note: null, more: 1 }], COLUMNS);
  expect(names()).toEqual(["pid", "spin ms", "lock", "more"]);
  expect(first()).toEqual(["1234", "500.0", "a", "1"]);
  expect(heads().map((head) => head.querySelector("button")?.title)).toEqual(["what pid is", "what spin is", "what lock is", ""]);
});

test("a click on a head orders by it, another turns the order round", () => {
  const { made, heads, first } = listing();
  made.show(many(1000), COLUMNS);
  const click = (i: number) => heads()[i]?.querySelector("button")?.click();
  click(1);
  expect([first()?.[1], heads()[1]?.ariaSort, made.sort, made.ascending]).toEqual(["999.0", "descending", "spin", false]);
  click(1);
  expect([first()?.[1], heads()[1]?.ariaSort, made.ascending]).toEqual(["0", "ascending", true]);
  click(2);
  expect([first()?.[2], made.sort, made.ascending]).toEqual(["lock 0", "lock", true]);
  expect(sorted).toHaveBeenCalledTimes(3);
});

test("words choose rows, and no row is said", () => {
  const { made, place, seen } = listing();
  made.show(many(1000).map(({ lock }) => ({ lock }) as Row), COLUMNS);
  made.filter("lock 77");
  expect([...seen().values()].map((cells) => cells[0]).toSorted((a, b) => (a ?? "").length - (b ?? "").length)).toEqual(["lock 77", ...[1, 2, 3, 4, 5, 6].map((i) => `lock ${i}77`), ...Array.from({ length: 10 }, (_, i) => `lock ${770 + i}`), "lock 877", "lock 977"]);
  made.filter("other");
  expect(seen().size).toBe(0);
  expect(place.textContent).toContain("No rows.");
  made.show([], COLUMNS);
  expect(place.textContent).toContain("No rows.");
});

test("names of others are text", () => {
  const { made, place, first } = listing();
  made.show([{ lock: "<img src=x onerror=alert(1)>" }], COLUMNS);
  expect(first()).toEqual(["<img src=x onerror=alert(1)>"]);
  expect(place.querySelector("img")).toBeNull();
});

test("what was before, and the change, stand beside the column that is compared", () => {
  const { made, names, seen } = listing();
  const past = { rows: [{ pid: 1, spin: 0.25, lock: "a" }, { pid: 3, spin: 0.5, lock: "c" }], scale: 2, elsewhere: false };
  made.show([{ pid: 1, spin: 0.75, lock: "a" }, { pid: 2, spin: 0.125, lock: "b" }], COLUMNS, past);
  expect(names()).toEqual(["pid", "spin s", "before s", "change s", "lock"]);
  expect([...seen().values()]).toEqual([
    ["1", "0.750", "0.500", "+0.250", "a"], ["2", "0.125", "–", "+0.125", "b"], ["3", "–", "1.000", "-1.000", "c"],
  ]);
});

test("on a narrow screen the first name and the column of the order come first", () => {
  const { made, names } = listing();
  wide = 400;
  made.sort = "spin";
  made.show(many(10), COLUMNS);
  expect(names()).toEqual(["lock", "spin ms", "pid"]);
  wide = 1000;
  made.show(many(10), COLUMNS);
  expect(names()).toEqual(["pid", "spin ms", "lock"]);
});

test("an order by a column that is not there is none", () => {
  const { made } = listing();
  made.sort = "gone";
  made.show(many(10), COLUMNS);
  expect(made.sort).toBe("");
});
