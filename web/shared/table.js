// Tables: which rows are shown, and in which order.

/** @typedef {string | number | null | undefined} Value */

/** The order of two cells. Unknown values come last in both directions. @type {(a: Value, b: Value, ascending: boolean) => number} */
const order = (a, b, ascending) => {
  if (a == null || b == null) return Number(a == null) - Number(b == null);
  const upwards = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  return ascending ? upwards : -upwards;
};

/**
 * The rows that have all the words, in the order of one of their cells.
 * @template Row
 * @param {Row[]} rows
 * @param {string} words
 * @param {(row: Row) => string} text
 * @param {((row: Row) => Value) | null} by Without it they stay in their order.
 * @param {boolean} ascending
 */
export function selected(rows, words, text, by, ascending) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    if (wanted.length === 0) return true;
    const has = text(row).toLowerCase();
    return wanted.every((word) => has.includes(word));
  });
  return by ? found.sort((a, b) => order(by(a), by(b), ascending)) : found;
}

/**
 * Marks the head of the column that rows are sorted by. A click on a head asks for another order: first the largest number or
 * the first word, then the other way round.
 * @param {HTMLElement[]} heads Each holds a button.
 * @param {number} by
 * @param {boolean} ascending
 * @param {(column: number) => boolean} numeric
 * @param {(column: number, ascending: boolean) => void} sort
 */
export function sortable(heads, by, ascending, numeric, sort) {
  heads.forEach((head, i) => {
    if (i === by) head.ariaSort = ascending ? "ascending" : "descending";
    else head.removeAttribute("aria-sort");
    const button = head.querySelector("button");
    if (button) button.onclick = () => sort(i, i === by ? !ascending : !numeric(i));
  });
}
