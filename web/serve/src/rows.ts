// A table of any length: only the rows that are seen are in the page.

import { element } from "../../shared/basics.js";
import { selected, sortable } from "../../shared/table.js";
import type { Column, Row } from "./api";
import { BEFORE, CHANGE, base, comparedColumn, withChanges } from "./changes";
import type { Past } from "./changes";
import { form, written } from "./numbers";
import type { Form } from "./numbers";

const HEIGHT = 26;
/** Pixels between columns. */
const GAP = 12;
/** Characters of a column at most, and on a narrow screen, where the column of the order stands behind the first name. */
const LONGEST = 48;
const NARROW_LONGEST = 18;
/** Pixels of a narrow screen's table at most. */
const NARROW = 620;
/** Lines in the page: more than are seen at once. */
const LINES = 64;

/** A cell of a line. Its text node is kept: replacing it at each step of a scroll costs frames. */
interface Place {
  cell: HTMLElement;
  text: Text;
}

export class Listing {
  /** As they came, and what they are compared with. */
  private given: [Row[], Column[], Past | null] | null = null;
  private rows: Row[] = [];
  private shown: Row[] = [];
  private columns: Column[] = [];
  /** How the numbers of each column are written: the same for what it is compared with. */
  private forms: Form[] = [];
  private words = "";
  /** Lines in the page, and the row that each shows: the row of a number is always in the same. */
  private lines: { line: HTMLElement; cells: Place[]; row: number }[] = [];
  private narrow = false;
  private readonly head = element("div", "", "head");
  private readonly space = element("div", "", "space");
  sort = "";
  ascending = false;

  constructor(
    private readonly place: HTMLElement,
    private readonly sorted: () => void,
  ) {
    place.append(this.head, this.space);
    place.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => {
      if (this.given && this.narrow !== this.isNarrow()) this.show(...this.given);
      else this.draw();
    }).observe(place);
  }

  private isNarrow() {
    return this.place.clientWidth < NARROW;
  }

  /** On a narrow screen: the first name, the column of the order and what it is compared with, then the others. */
  private arrange() {
    this.narrow = this.isNarrow();
    if (!this.narrow || !this.sort) return;
    const name = this.columns.find((c) => c.kind === "key" && this.rows.some((row) => typeof row[c.key] === "string"));
    const ordered = this.columns.filter((c) => base(c.key) === base(this.sort) && c !== name);
    const first = [...(name ? [name] : []), ...ordered];
    this.columns = [...first, ...this.columns.filter((c) => !first.includes(c))];
  }

  show(rows: Row[], columns: Column[], past: Past | null = null) {
    this.given = [rows, columns, past];
    const compared = past && comparedColumn(this.sort, columns);
    this.rows = past && compared ? withChanges(rows, past, columns, compared) : rows;
    // A column of nothing tells nothing.
    const keys = Object.keys(this.rows[0] ?? {}).filter(
      (key) => this.rows.some((row) => row[key] !== null) && !key.endsWith(BEFORE) && !key.endsWith(CHANGE),
    );
    this.columns = keys.map((key) => columns.find((c) => c.key === key) ?? { key, name: key, kind: "value", unit: "", meaning: "" });
    if (compared) {
      const { key, kind, unit } = compared;
      if (!keys.includes(key)) this.columns.push(compared);
      this.columns.splice(
        this.columns.findIndex((c) => c.key === key) + 1, 0,
        { key: key + BEFORE, name: "before", kind, unit, meaning: `${key} of what it is compared with, for as long a time` },
        { key: key + CHANGE, name: "change", kind, unit, meaning: `how much more ${key} is` },
      );
      keys.push(key, key + BEFORE, key + CHANGE);
    }
    if (!keys.includes(this.sort)) this.sort = "";
    this.arrange();
    this.forms = this.columns.map((column) => {
      const alike = this.columns.filter((c) => base(c.key) === base(column.key)).map((c) => c.key);
      return form(column, this.rows, alike);
    });
    this.apply();
  }

  filter(words: string) {
    this.words = words;
    if (this.given) this.apply();
  }

  private apply() {
    const text = (row: Row) => this.columns.map(({ key }) => row[key] ?? "").join(" ");
    const by = this.sort ? (row: Row) => row[this.sort] : null;
    this.shown = selected(this.rows, this.words, text, by, this.ascending);
    // Rows are grids of their own, so that columns have the same width in all of them.
    const names = this.columns.map((c, i) => [c.name, this.forms[i]?.unit].filter(Boolean).join(" "));
    const widths = this.columns.map((c, i) => {
      const longest = this.shown.slice(0, 200).reduce((most, row) => Math.max(most, written(row[c.key] ?? null, this.forms[i]).length), 0);
      return Math.round(8.5 * Math.max((names[i] ?? "").length + 3, Math.min(longest + 1, this.narrow ? NARROW_LONGEST : LONGEST)));
    });
    this.place.style.setProperty("--width", `${widths.reduce((sum, width) => sum + width + GAP, GAP)}px`);
    this.place.style.setProperty("--columns", widths.map((width) => `${width}px`).join(" "));
    const heads = this.columns.map((c, i) => {
      const [head, button] = [element("div", "", this.numeric(c.key) ? "n" : ""), element("button", names[i])];
      [button.type, button.title] = ["button", c.meaning];
      head.append(button);
      return head;
    });
    const keys = this.columns.map((c) => c.key);
    sortable(heads, keys.indexOf(this.sort), this.ascending, (i) => this.numeric(keys[i] ?? ""), (i, ascending) => {
      [this.sort, this.ascending] = [keys[i] ?? "", ascending];
      // The order decides which column is compared, and which is at the left of a narrow screen.
      if (this.given) this.show(...this.given);
      if (this.narrow) this.place.scrollLeft = 0;
      this.sorted();
    });
    this.head.replaceChildren(...heads);
    this.space.style.height = `${this.shown.length * HEIGHT}px`;
    this.lines = [];
    this.space.replaceChildren(...(this.shown.length === 0 ? [element("div", "No rows.", "none")] : []));
    this.draw();
  }

  private numeric(key: string): boolean {
    return this.rows.slice(0, 50).some((row) => typeof row[key] === "number");
  }

  private draw() {
    const first = Math.max(0, Math.floor(this.place.scrollTop / HEIGHT) - 5);
    const seen = Math.min(LINES, Math.ceil(this.place.clientHeight / HEIGHT) + 12);
    const last = Math.min(this.shown.length, first + seen);
    // Only lines that come into sight are written: all of them at each step of a scroll are too many for 60 a second.
    while (this.lines.length < Math.min(this.shown.length, LINES)) {
      const cells = this.columns.map(() => {
        const cell = element("span");
        const text = document.createTextNode("");
        cell.append(text);
        return { cell, text };
      });
      const line = element("div", "", "row");
      line.append(...cells.map(({ cell }) => cell));
      this.space.append(line);
      this.lines.push({ line, cells, row: -1 });
    }
    for (let row = first; row < last; row++) {
      const slot = this.lines[row % this.lines.length];
      const values = this.shown[row];
      if (!slot || !values || slot.row === row) continue;
      slot.row = row;
      slot.line.style.transform = `translateY(${row * HEIGHT}px)`;
      this.columns.forEach((column, i) => {
        const place = slot.cells[i];
        const value = values[column.key] ?? null;
        if (!place) return;
        const { cell, text } = place;
        text.data = written(value, this.forms[i]);
        // What stays as it is costs nothing if it is not set again.
        const kind = typeof value === "number" ? "n" : "";
        if (cell.className !== kind) cell.className = kind;
        const title = typeof value === "string" && value.length > 12 ? value : "";
        if (cell.title !== title) cell.title = title;
      });
    }
  }
}
