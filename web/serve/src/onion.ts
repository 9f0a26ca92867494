// The onion of a time, beside another.

import type { Rows } from "./api";
import { element, key, number, percent, seconds, variable } from "./layers";

/** `against` says what the other one is. */
export function showOnion(place: HTMLElement, now: Rows, before: Rows | null, against: string) {
  const past = new Map(before?.rows.map((row) => [String(row["layer"]), number(row, "share")]));
  const list = element("div", "", "onion");
  for (const row of now.rows) {
    const name = String(row["layer"]);
    const share = number(row, "share");
    const evidence = String(row["evidence"] ?? "");
    const advice = String(row["advice"] ?? "");
    if (share < 0.0005 && !evidence) continue;
    const item = element("details", "", "one");
    item.style.setProperty("--c", `var(${variable(key(name))})`);
    const head = element("summary");
    head.append(element("span", name, "name"), element("span", percent(share), "share"));
    const bar = element("span", "", "bar");
    const fill = element("i");
    fill.style.width = `${Math.min(100, 100 * share)}%`;
    bar.append(fill);
    head.append(bar);
    const was = past.get(name);
    const change = was === undefined ? "" : (100 * (share - was)).toFixed(1);
    const moved = element("span", change && `${Number(change) > 0 ? "+" : ""}${change}`, "change");
    moved.title = `percentage points against ${against}`;
    head.append(moved, element("span", evidence.split("; ")[0], "first"));
    item.append(head);
    const more = element("ul");
    const error = number(row, "error");
    const exact = error > 0 ? `± ${seconds(error)} (95 %)` : "exact";
    more.append(element("li", `${seconds(number(row, "seconds"))} CPU-seconds, ${exact}`));
    for (const line of evidence.split("; ").filter(Boolean)) more.append(element("li", line));
    if (advice) more.append(element("li", advice, "advice"));
    item.append(more);
    list.append(item);
  }
  place.replaceChildren(list);
  if (now.notes.length > 0) {
    const notes = element("aside", "", "notes");
    const all = element("ul");
    now.notes.slice(0, 20).forEach((note) => all.append(element("li", note)));
    notes.append(element("strong", "Notes"), all);
    place.append(notes);
  }
}
