// Code that all pages share; see the other files here too. The page of `ncpu serve` imports these modules. The
// single-file report joins them with page.js to one script, so names at their top level must differ.

/** The theme that the address names. */
const themeOfAddress = () => (/[#&]theme=(dark|light)/.exec(location.hash) || [])[1];

/** @type {string | null | undefined} */
let theme = themeOfAddress();
/** Whether the address or the button has said it, and not only the browser's memory. */
let themeIsChosen = Boolean(theme);
const system = matchMedia("(prefers-color-scheme: dark)");

/** Whether the page is dark: as the system is, unless the address (`#theme=dark`) or the button said otherwise. */
export function isDark() {
  return theme ? theme === "dark" : system.matches;
}

/** The theme that was chosen here, for the address; empty where it is the system's or that of the last time. */
export function chosenTheme() {
  return (themeIsChosen && theme) || "";
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
    themeIsChosen = true;
    try { localStorage.setItem("ncpu-theme", theme); } catch { /* as above */ }
    paint();
  };
  button.hidden = false;
  button.addEventListener("click", change);
  system.addEventListener("change", paint);
  addEventListener("hashchange", () => {
    const named = themeOfAddress();
    if (!named || named === theme) return;
    [theme, themeIsChosen] = [named, true];
    paint();
  });
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
    const [from, to] = [stops[low] ?? [], stops[low + 1] ?? []];
    return from.map((value, i) => Math.round(value + ((to[i] ?? value) - value) * (at - low)));
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
 * An element with text in it, which is never markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 */
export function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
