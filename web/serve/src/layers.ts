// Layers of the onion: their names and colours, and how shares and times are written.

import type { Row } from "./api";

/** Names of layers and of their colours in page.css, by their keys in JSON. */
const LAYERS = new Map<string, { name: string; colour: string }>();

/** Takes the layers that the server tells. */
export function setLayers(all: { name: string; colour: string }[]) {
  for (const layer of all) LAYERS.set(key(layer.name), layer);
}

/** A layer's name, from its key. */
export const nameOf = (layer: string) => LAYERS.get(layer)?.name ?? layer;

/** The name of a layer's colour, which a style sheet takes; one of another version may be unknown. */
export const variable = (layer: string) => `--${LAYERS.get(layer)?.colour ?? "unseen"}`;

/** A layer's key, from its name. */
export const key = (name: string) => name.toLowerCase().replaceAll("/", "_per_").replace(/[^a-z0-9]+/g, "_");

export const percent = (share: number) => `${(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;

export const clock = (time: number) =>
  new Date(1000 * time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** The browser's time zone, as at this time. */
export const zone = (time: number) =>
  new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(1000 * time).find((part) => part.type === "timeZoneName")?.value ?? "";

/** A time of day, with the date where it is not today's. */
const moment = (time: number) => {
  const day = new Date(1000 * time).toLocaleDateString("sv");
  return day === new Date().toLocaleDateString("sv") ? clock(time) : `${day} ${clock(time)}`;
};

/** From when to when, with the time zone. */
export const period = (from: number, to: number) => `${moment(from)} – ${moment(to)} ${zone(to)}`;

/** A number of a row. */
export const number = (row: Row, name: string): number => {
  const value = row[name];
  return typeof value === "number" ? value : 0;
};

/** The element of this id, which index.html has. */
export function byId<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`index.html has no #${id}`);
  return found as T;
}
