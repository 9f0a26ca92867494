import fc from "fast-check";
import { afterEach, expect, test, vi } from "vitest";
import type { Status } from "../src/api";
import { keep, read } from "../src/kept";

const rows = (table: string, rows: unknown[]) => ({ table, from: 10, to: 20, notes: [], rows });
const whole = () => ({
  ncpu: "kept", host: "web1", cpus: 64,
  layers: rows("layers", [{ layer: "user code", share: 0.5, wait: null }]),
  stacks: { cpu: "main;work 12", spin: "" } as Record<string, unknown>,
  tables: { locks: rows("locks", [{ lock: "a", spin: 1 }]) } as Record<string, unknown>,
});
const file = (of: unknown) => new File([typeof of === "string" ? of : JSON.stringify(of)], "then.json");
const refusal = async (of: unknown) => read(file(of)).then(() => "", (e: Error) => e.message);

afterEach(() => vi.unstubAllGlobals());

test("a file that was saved is read", async () => {
  expect(await read(file(whole()))).toEqual(whole());
  const { tables: _, ...older } = whole();
  expect((await read(file(older))).tables).toEqual({});
  expect(await read(file({ ...whole(), of: "a later version" }))).toEqual(whole());
});

test("what the server answers is saved so that it can be read", async () => {
  const asked: string[] = [];
  const layers = rows("layers", [{ layer: "user code", share: 0.5, evidence: [{ words: "a" }] }]);
  vi.stubGlobal("fetch", async (address: string) => {
    asked.push(address);
    const [path] = address.split("?");
    if (path?.startsWith("folded/")) return new Response(`${path} 7`);
    return Response.json(path?.endsWith("layers") ? layers : rows(path?.split("/").at(-1) ?? "", []));
  });
  const kept = await keep({ host: "web1", cpus: 64 } as Status, { from: 10, to: 20 });
  expect(await read(file(kept))).toEqual({
    ncpu: "kept", host: "web1", cpus: 64,
    layers: rows("layers", [{ layer: "user code", share: 0.5 }]),
    stacks: { cpu: "folded/cpu 7", spin: "folded/spin 7", offcpu: "folded/offcpu 7" },
    tables: { locks: rows("locks", []), threads: rows("threads", []) },
  });
  expect(asked.every((address) => address.endsWith("?from=10&to=20"))).toBe(true);
});

test("each part that is missing or wrong is refused", async () => {
  expect(await refusal("{")).toMatch(/^then\.json: not JSON\./);
  for (const other of [[], null, 7, '"kept"', {}, { ncpu: "other" }]) {
    expect(await refusal(other)).toMatch(/^then\.json: not an onion that ncpu serve has saved\./);
  }
  const wrong: [string, unknown][] = [
    ["host", 7], ["host", undefined], ["cpus", "64"], ["cpus", undefined], ["layers", undefined], ["layers", []], ["layers", null],
    ["layers", { ...rows("x", []), from: "10" }], ["layers", { ...rows("x", []), to: null }], ["layers", { from: 1, to: 2, rows: {} }],
    ["layers", rows("x", [[]])], ["layers", rows("x", [null])], ["layers", rows("x", [{ a: 1 }, { a: {} }])],
    ["layers", rows("x", [{ a: true }])], ["stacks", undefined], ["stacks", ["main 1"]], ["stacks", { cpu: "main 1", spin: 7 }],
    ["tables", null], ["tables", [rows("x", [])]], ["tables", { locks: rows("x", []), threads: [] }],
  ];
  for (const [part, value] of wrong) {
    expect(await refusal({ ...whole(), [part]: value }), `${part} ${JSON.stringify(value)}`).toMatch(/a part is missing/);
  }
  const large = Object.defineProperty(file(whole()), "size", { value: (64 << 20) + 1 });
  await expect(read(large)).rejects.toThrow("then.json: more than 64 MiB");
});

test("whatever a file holds, its name is in the error, or it has the parts that are compared", async () => {
  const any = fc.oneof(fc.string(), fc.jsonValue().map((value) => ({ ...whole(), tables: value })), fc.jsonValue());
  await fc.assert(
    fc.asyncProperty(any, async (of) => {
      const kept = await read(file(of)).catch((e: Error) => e);
      if (kept instanceof Error) expect(kept.message.startsWith("then.json: ")).toBe(true);
      else expect(Object.values(kept.tables).every((table) => Array.isArray(table.rows))).toBe(true);
    }),
  );
});
