import fc from "fast-check";
import { expect, test } from "vitest";
import type { Column, Row } from "../src/api";
import { BEFORE, CHANGE, base, comparedColumn, withChanges } from "../src/changes";

const column = (key: string, kind: string): Column => ({ key, name: key, kind, unit: "", meaning: "" });
const COLUMNS = [
  column("lock", "key"), column("pid", "key"), column("mean", "mean"), column("spin", "time"), column("count", "count"),
  column("max", "peak"),
];
const [SPIN, MEAN] = [COLUMNS[3] as Column, COLUMNS[2] as Column];
const was = "spin" + BEFORE;
const change = "spin" + CHANGE;

test("the column of the order is compared, else the first sum", () => {
  expect(comparedColumn("mean", COLUMNS)?.key).toBe("mean");
  expect(comparedColumn("max" + BEFORE, COLUMNS)?.key).toBe("max");
  expect(comparedColumn("max" + CHANGE, COLUMNS)?.key).toBe("max");
  expect(comparedColumn("", COLUMNS)?.key).toBe("spin");
  expect(comparedColumn("lock", COLUMNS)?.key).toBe("spin");
  expect(comparedColumn("pid", COLUMNS.slice(0, 3))).toBeUndefined();
  expect([was, change, "spin"].map(base)).toEqual(["spin", "spin", "spin"]);
});

test("rows that came, stayed and went", () => {
  const now = [{ lock: "a", pid: 1, spin: 3, mean: 4 }, { lock: "b", pid: 1, spin: 5, mean: null }];
  const past = { rows: [{ lock: "a", pid: 1, spin: 1, mean: 1 }, { lock: "c", pid: 1, spin: 2, mean: 7 }], scale: 2, elsewhere: false };
  const rows = withChanges(now, past, COLUMNS, SPIN);
  expect(rows.map((row) => [row["lock"], row["spin"] ?? null, row[was], row[change]])).toEqual([
    ["a", 3, 2, 1], ["b", 5, null, 5], ["c", null, 4, -4],
  ]);
  expect(rows[2]).toEqual({ lock: "c", pid: 1, mean: null, spin: null, count: null, max: null, [was]: 4, [change]: -4 });
  // A mean is as of any length.
  const means = withChanges(now, past, COLUMNS, MEAN).map((row) => [row["mean" + BEFORE], row["mean" + CHANGE]]);
  expect(means).toEqual([[1, 3], [null, null], [7, -7]]);
});

test("PIDs of another machine mean nothing: rows of the same names are one", () => {
  const now = [
    { lock: "a", pid: 1, spin: 3, count: 1, max: 5, mean: 1 }, { lock: "a", pid: 2, spin: 4, count: null, max: 2, mean: 1 },
  ];
  const past = { rows: [{ lock: "a", pid: 9, spin: 2, count: 8, max: 1, mean: 1 }], scale: 1, elsewhere: true };
  expect(withChanges(now, past, COLUMNS, SPIN)).toEqual([{ lock: "a", spin: 7, count: 1, max: 5, [was]: 2, [change]: 5 }]);
  const here = withChanges(now, { ...past, elsewhere: false }, COLUMNS, SPIN);
  expect(here.map((row) => row["pid"])).toEqual([1, 2, 9]);
});

test("changes sum to the difference of the sums, and no name is lost or there twice", () => {
  // A name may hold whatever separates others.
  const name = fc.constantFrom("a", "b", "c", '["a",1]', "", "a,1", "null");
  const row = fc.record({ lock: fc.oneof(name, fc.constant(null)), pid: fc.constantFrom(1, 2), spin: fc.oneof(fc.integer({ min: 0, max: 1000 }), fc.constant(null)) });
  const rows = fc.uniqueArray(row, { selector: (row) => `${typeof row.lock} ${row.lock} ${row.pid}` });
  const sum = (rows: Row[], key: string) => rows.reduce((sum, row) => sum + (typeof row[key] === "number" ? row[key] : 0), 0);
  fc.assert(
    fc.property(rows, rows, fc.constantFrom(0.5, 1, 4), fc.boolean(), (now, before, scale, elsewhere) => {
      const all = withChanges(now, { rows: before, scale, elsewhere }, COLUMNS, SPIN);
      expect(sum(all, change)).toBe(sum(now, "spin") - scale * sum(before, "spin"));
      expect(sum(all, "spin")).toBe(sum(now, "spin"));
      expect(sum(all, was)).toBe(scale * sum(before, "spin"));
      const words = elsewhere && [...now, ...before].some((row) => row.lock !== null) ? ["lock"] : elsewhere ? [] : ["lock", "pid"];
      const named = (rows: Row[]) => rows.map((row) => JSON.stringify(words.map((key) => row[key])));
      expect(named(all).toSorted()).toEqual([...new Set(named([...now, ...before]))].toSorted());
    }),
  );
});
