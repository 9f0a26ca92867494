// Colours of layers for style sheets.

import { colour } from "./layers";

/** A layer's colour. */
export const cssOf = (layer: string) => colour(layer);

/** The colour of a share from 0 to 1, from the page's heat scale. */
export function heat(): (share: number) => string {
  const stops = ["--heat0", "--heat1", "--heat2", "--heat3"].map((name) => {
    const probe = element(name);
    const [r = 0, g = 0, b = 0] = (probe.match(/[\d.]+/g) ?? []).map(Number);
    return [r, g, b] as const;
  });
  return (share) => {
    const at = Math.max(0, Math.min(1, share)) * (stops.length - 1);
    const low = stops[Math.floor(at)] ?? ([0, 0, 0] as const);
    const high = stops[Math.ceil(at)] ?? low;
    const part = at - Math.floor(at);
    const mix = [0, 1, 2].map((i) => Math.round((low[i] ?? 0) * (1 - part) + (high[i] ?? 0) * part));
    return `rgb(${mix.join()})`;
  };
}

function element(variable: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
