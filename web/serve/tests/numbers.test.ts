import fc from "fast-check";
import { expect, test } from "vitest";
import type { Cell, Column } from "../src/api";
import { CHANGE } from "../src/changes";
import { form, underWay, written } from "../src/numbers";

const column = (unit: string, kind = "time", key = "spin"): Column => ({ key, name: key, kind, unit, meaning: "" });
/** The cells of a column as the page has them, below its unit. */
const shown = (of: Column, values: Cell[]) => {
  const found = form(of, values.map((value) => ({ [of.key]: value })), [of.key]);
  return [found.unit, ...values.map((value) => written(value, found))];
};

test("a unit suits the largest value of a column", () => {
  expect(shown(column("s"), [0.0123, 0.004, 0])).toEqual(["ms", "12.30", "4.00", "0"]);
  expect(shown(column("s"), [12.5, 0.004])).toEqual(["s", "12.50", "0.00"]);
  expect(shown(column("cpu-s"), [0.00025])).toEqual(["µs", "250.0"]);
  expect(shown(column("s"), [4e-9])).toEqual(["µs", "0.004"]);
  expect(shown(column("B", "gauge"), [3 * 1024 ** 3, 1024 ** 2])).toEqual(["GiB", "3.000", "0.001"]);
  expect(shown(column("B", "gauge"), [1023, 7])).toEqual(["B", "1,023", "7"]);
  expect(shown(column("share", "share"), [0.5, 0.001])).toEqual(["%", "50.00", "0.10"]);
  expect(shown(column("", "count"), [1234567, 3])).toEqual(["", "1,234,567", "3"]);
  expect(shown(column("", "mean"), [1234.25, 3])).toEqual(["", "1234", "3"]);
});

test("names, times of day and unknown values", () => {
  expect(shown(column("", "key", "pid"), [1234567, null, "web"])).toEqual(["", "1234567", "–", "web"]);
  // 2023-11-14 22:13:20 UTC.
  const time = shown(column("s", "key", "time"), [1700000000]);
  expect(time[1]).toBe("03:58:20");
  expect(time[0]).toMatch(/5:45/);
  expect(written("x", undefined)).toBe("x");
  expect(written(5, undefined)).toBe("5");
});

test("a change has a sign", () => {
  expect(shown(column("s", "time", "spin" + CHANGE), [0.5, -0.25, 0, null])).toEqual(["ms", "+500.0", "-250.0", "0", "–"]);
});

test("every cell of a column has the same number of digits, and the value to a thousandth of the largest", () => {
  const factors: Record<string, number> = { s: 1, ms: 1e-3, "µs": 1e-6, GiB: 1024 ** 3, MiB: 1024 ** 2, KiB: 1024, B: 1, "%": 0.01, "": 1 };
  const values = fc.array(fc.double({ min: -1e12, max: 1e12, noNaN: true }).filter((x) => Math.abs(x) > 1e-3), { minLength: 1 });
  fc.assert(
    fc.property(fc.constantFrom("s", "B", "share", "", "cpu-s"), values, (unit, values) => {
      // A unit below which there is none has three digits behind the point.
      const [symbol, ...texts] = shown(column(unit), values) as [string, ...string[]];
      const most = Math.max(...values.map(Math.abs), factors[symbol] ?? NaN);
      const decimals = new Set(texts.map((text) => (text.split(".")[1] ?? "").length));
      expect(decimals.size).toBe(1);
      texts.forEach((text, i) => {
        const back = Number(text.replaceAll(",", "")) * (factors[symbol] ?? NaN);
        expect(Math.abs(back - (values[i] ?? NaN))).toBeLessThanOrEqual(most * 1e-3);
      });
    }),
  );
});

test("how long the first interval takes is said", () => {
  expect(underWay(1)).toContain("takes 1 second.");
  expect(underWay(10)).toContain("takes 10 seconds.");
});
