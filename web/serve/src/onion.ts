// The onion of a time as the server draws it, beside another.

import { element } from "../../shared/basics.js";
import type { Rows } from "./api";
import { number } from "./layers";

/** `against` says what the other one is. */
export function showOnion(place: HTMLElement, markup: string, before: Rows | null, against: string) {
  const past = new Map(before?.rows.map((row) => [row["layer"], number(row, "share")]));
  const layers = (of: ParentNode) => [...of.querySelectorAll<HTMLDetailsElement>(".layer")];
  const open = new Map(layers(place).map((layer) => [layer.dataset["layer"], layer.open]));
  const focused = document.activeElement?.closest<HTMLElement>("#layers .layer")?.dataset["layer"];
  // The server has escaped all names, and DOMParser runs no scripts.
  const { body } = new DOMParser().parseFromString(markup, "text/html");
  for (const layer of layers(body)) {
    const name = layer.dataset["layer"] ?? "";
    // What was opened or closed stays so.
    layer.open = open.get(name) ?? layer.open;
    const was = past.get(name);
    const points = was === undefined ? "" : (100 * (Number(layer.dataset["share"]) - was)).toFixed(1);
    const change = element("span", points && `${Number(points) > 0 ? "+" : ""}${points}`, "change");
    change.title = `percentage points against ${against}`;
    layer.querySelector(".bar")?.before(change);
  }
  place.replaceChildren(...body.childNodes);
  layers(place).find((layer) => layer.dataset["layer"] === focused)?.querySelector("summary")?.focus({ preventScroll: true });
}
