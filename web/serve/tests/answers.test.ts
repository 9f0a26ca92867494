// Addresses, refusals, names of layers, and the rows that a search finds.

import fc from "fast-check";
import { afterEach, expect, test, vi } from "vitest";
import { selected } from "../../shared/table.js";
import { address, refusal, status } from "../src/api";
import { clock, key, nameOf, number, percent, period, setLayers, variable, zone } from "../src/layers";

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("an address says what was given", () => {
  expect(address("api/v1/status")).toBe("api/v1/status");
  expect(address("x", { from: 0, to: undefined, words: "" })).toBe("x?from=0");
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.oneof(fc.string({ minLength: 1 }), fc.integer())), (given) => {
      const read = new URL(address("x", given), "http://host/").searchParams;
      expect(Object.fromEntries(read)).toEqual(Object.fromEntries(Object.entries(given).map(([k, v]) => [k, String(v).toWellFormed()])));
    }),
  );
});

test("an answer that is an error says why", async () => {
  const why = async (body: string, statusText = "") => (await refusal("x", new Response(body, { status: 503, statusText }))).message;
  expect(await why('{"error": "no interval yet"}')).toBe("x: no interval yet (HTTP 503)");
  expect(await why(" Bad Gateway\n")).toBe("x: Bad Gateway (HTTP 503)");
  expect(await why('{"error": 7}')).toBe('x: {"error": 7} (HTTP 503)');
  expect(await why("null", "gone")).toBe("x: null (HTTP 503)");
  expect(await why("", "Service Unavailable")).toBe("x: Service Unavailable (HTTP 503)");
  expect(await why("")).toBe("x: no reason given (HTTP 503)");
  expect(await why("y".repeat(9000))).toBe(`x: ${"y".repeat(200)} (HTTP 503)`);
  vi.stubGlobal("fetch", async () => new Response('{"error":"stopping"}', { status: 500 }));
  await expect(status()).rejects.toThrow("api/v1/status: stopping (HTTP 500)");
});

test("layers have names and colours by their keys, and unknown ones their key", () => {
  setLayers([{ name: "I/O wait (disk)", colour: "disk" }]);
  expect(key("I/O wait (disk)")).toBe("i_per_o_wait_disk_");
  expect(nameOf("i_per_o_wait_disk_")).toBe("I/O wait (disk)");
  expect(variable("i_per_o_wait_disk_")).toBe("--disk");
  expect([nameOf("new_layer"), variable("new_layer")]).toEqual(["new_layer", "--unseen"]);
});

test("shares and times", () => {
  expect([0, 0.0349, 0.0994, 0.0996, 1, -0.05, -0.5].map(percent)).toEqual(["0.0 %", "3.5 %", "9.9 %", "10 %", "100 %", "-5.0 %", "-50 %"]);
  expect(clock(1700000000)).toBe("03:58:20");
  expect(clock(1699985700)).toBe("00:00:00");
  vi.useFakeTimers({ now: 1700000100e3 });
  expect(period(1700000000, 1700000060)).toBe(`03:58:20 – 03:59:20 ${zone(0)}`);
  // Ten seconds before midnight.
  expect(period(1699985690, 1700000060)).toBe(`2023-11-14 23:59:50 – 03:59:20 ${zone(0)}`);
  expect([number({ a: 5 }, "a"), number({ a: "5" }, "a"), number({}, "a"), number({ a: null }, "a")]).toEqual([5, 0, 0, 0]);
});

test("rows are found by all words and ordered by a cell, unknown cells last", () => {
  const rows = [{ n: 2, s: "Beta one" }, { n: null, s: "alpha" }, { n: 10, s: "beta two" }, { n: -1, s: "gamma" }];
  const found = (words: string, by: "n" | "s" | null, ascending = false) =>
    selected(rows, words, (row) => row.s, by && ((row) => row[by]), ascending).map((row) => row.s);
  expect(found("", null)).toEqual(rows.map((row) => row.s));
  expect(found("  BETA ", null)).toEqual(["Beta one", "beta two"]);
  expect(found("two beta", null)).toEqual(["beta two"]);
  expect(found("beta none", null)).toEqual([]);
  expect(found("", "n")).toEqual(["beta two", "Beta one", "gamma", "alpha"]);
  expect(found("", "n", true)).toEqual(["gamma", "Beta one", "beta two", "alpha"]);
  expect(found("", "s", true)).toEqual(["alpha", "Beta one", "beta two", "gamma"]);
  expect(rows.map((row) => row.n)).toEqual([2, null, 10, -1]);
});
