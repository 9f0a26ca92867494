// What the pages share: dark or light, colours, the order of rows. A page that is one file has this script before its own
// (page.js); that of `ncpu serve` imports it.

/** @type {string | null | undefined} */
let theme = (/[#&]theme=(dark|light)/.exec(location.hash) || [])[1];
const system = matchMedia("(prefers-color-scheme: dark)");

/** Whether the page is dark: as the system is, unless the address (`#theme=dark`) or the button said otherwise. */
export function isDark() {
  return theme ? theme === "dark" : system.matches;
}

/**
 * Has a button change it, which is kept for the next time; gives the same as a function.
 * @param {HTMLElement} button
 * @param {() => void} repaint Called now and at each change.
 */
export function themed(button, repaint) {
  try { theme = theme || localStorage.getItem("ncpu-theme"); } catch { /* a file may have no storage */ }
  const paint = () => {
    document.documentElement.style.colorScheme = theme || "";
    button.textContent = isDark() ? "Light" : "Dark";
    repaint();
  };
  const change = () => {
    theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("ncpu-theme", theme); } catch { /* as above */ }
    paint();
  };
  button.hidden = false;
  button.addEventListener("click", change);
  system.addEventListener("change", paint);
  paint();
  return change;
}

/**
 * A colour of the style sheet as CSS has it, dark or light as the page is now: light-dark() means something only in use.
 * @param {string} variable
 */
export function cssColour(variable) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${variable})`;
  const colour = getComputedStyle(probe).color;
  probe.remove();
  return colour;
}

/** The heat scale: gives red, green and blue of a share from 0 to 1. */
export function heatScale() {
  const stops = ["--heat0", "--heat1", "--heat2", "--heat3"].map((name) => numbers(cssColour(name)));
  /** @param {number} share */
  return (share) => {
    const at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.min(stops.length - 2, Math.floor(at));
    return [0, 1, 2].map((i) => Math.round(stops[low][i] + (stops[low + 1][i] - stops[low][i]) * (at - low)));
  };
}

/**
 * Red, green and blue of a colour.
 * @param {string} colour
 */
export function numbers(colour) {
  return (colour.match(/[\d.]+/g) || []).slice(0, 3).map(Number);
}

/**
 * The order of two cells, upwards (1) or downwards (-1). What is not known comes last, whichever way.
 * @param {string | number | null} a
 * @param {string | number | null} b
 * @param {number} sign
 */
export function order(a, b, sign) {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b));
}
