/**
 * Tables: rows are kept by their keys, so that a live update moves neither the focus nor the page.
 *
 * @typedef {import("./h.js").Child} Child
 * @typedef {{ title: string, cell: (row: any, now: () => any) => Child, number?: boolean, width?: string,
 *   sort?: (row: any) => number | string, rank?: "middle" | "low", hidden?: boolean }} Column
 *   `rank`: which columns a narrow screen does without. `now` gives the row as it is when a button is pressed.
 *   `hidden`: the title is only read out.
 */
import { h, put } from "./h.js";

/**
 * @param {{
 *   caption: string, columns: Column[], key: (row: any) => string, empty: () => Child, width?: string,
 *   picked?: (row: any) => boolean, more?: (() => void) | null, foot?: ((rows: any[], complete: boolean) => string) | null,
 * }} options `more`: asks for the next page, if there may be one.
 */
export function createTable({ caption, columns, key, empty, width, picked, more = null, foot = null }) {
  /** @type {Map<string, { row: any, element: HTMLTableRowElement, cells: HTMLTableCellElement[] }>} */
  let kept = new Map();
  /** @type {any[]} */
  let rows = [];
  let complete = true;
  let sorted = -1;
  let down = false;

  const headings = columns.map((column) => h("th", { scope: "col", class: classOf(column), style: column.width ? { width: column.width } : null }));
  const body = h("tbody");
  const table = h("table", { class: "table", style: width ? { "min-width": width } : null }, h("caption", { class: "visually-hidden" }, caption), h("thead", null, h("tr", null, headings)), body);
  const nothing = h("div");
  const count = h("span");
  const button = h("button", { type: "button", class: "button small", onclick: () => more?.() }, "Load more");
  const bottom = h("div", { class: "table-foot" }, count, button);
  const scroll = h("div", { class: "scroll" }, table);
  const element = h("div", null, scroll, nothing, bottom);
  body.addEventListener("keydown", move);

  function head() {
    columns.forEach((column, i) => {
      const th = headings[i];
      const sort = column.sort;
      const mark = sorted === i && complete ? (down ? "descending" : "ascending") : null;
      if (mark) th.setAttribute("aria-sort", mark);
      else th.removeAttribute("aria-sort");
      if (!sort || !complete || rows.length < 2) put(th, column.hidden ? h("span", { class: "visually-hidden" }, column.title) : column.title);
      else if (th.querySelector("button") === null) th.replaceChildren(h("button", { type: "button", onclick: () => choose(i) }, column.title, h("span", { "aria-hidden": "true" }, "")));
      const arrow = th.querySelector("button span");
      if (arrow) arrow.textContent = mark ? (down ? "↓" : "↑") : "";
    });
  }

  /** @param {number} i */
  function choose(i) {
    down = sorted === i ? !down : Boolean(columns[i].number);
    sorted = i;
    show();
  }

  function ordered() {
    const sort = sorted >= 0 && complete ? columns[sorted].sort : undefined;
    if (!sort) return rows;
    const sign = down ? -1 : 1;
    return [...rows].sort((a, b) => {
      const [left, right] = [sort(a), sort(b)];
      return left < right ? -sign : left > right ? sign : 0;
    });
  }

  /** @param {any} row */
  function make(row) {
    const name = key(row);
    const cells = columns.map((column) => h("td", { class: classOf(column) }));
    const made = { row, element: h("tr", null, cells), cells };
    kept.set(name, made);
    return made;
  }

  function show() {
    const before = kept;
    kept = new Map();
    const elements = ordered().map((row) => {
      const name = key(row);
      const old = before.get(name);
      if (old) {
        old.row = row;
        kept.set(name, old);
      }
      const { element: tr, cells } = old ?? make(row);
      columns.forEach((column, i) => refill(cells[i], column.cell(row, () => kept.get(name)?.row ?? row)));
      tr.classList.toggle("selected", Boolean(picked?.(row)));
      return tr;
    });
    place(elements);
    head();
    scroll.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
    if (rows.length === 0) put(nothing, empty());
    button.hidden = complete || more === null;
    put(count, foot ? foot(rows, complete) : "");
    bottom.hidden = rows.length === 0 || (complete && !foot);
  }

  /** Moves only rows that are elsewhere. @param {HTMLElement[]} elements */
  function place(elements) {
    const wanted = new Set(elements);
    for (const child of [...body.children]) if (!wanted.has(child)) child.remove();
    elements.forEach((tr, i) => {
      if (body.children[i] !== tr) body.insertBefore(tr, body.children[i] ?? null);
    });
  }

  return {
    element,
    scroll,
    /** @param {any[]} given @param {boolean} [all] whether these are all there are */
    set(given, all = true) {
      rows = given;
      complete = all;
      show();
    },
    /** Draws the rows again, for example because another one is picked. */
    show,
    get rows() {
      return rows;
    },
    /** @param {boolean} busy */
    busy(busy) {
      button.disabled = busy;
      put(button, busy ? "Loading…" : "Load more");
    },
  };
}

/** @param {Column} column */
function classOf(column) {
  return [column.number && "number", column.rank].filter(Boolean).join(" ") || null;
}

/** @param {HTMLElement} cell @param {Child} content */
function refill(cell, content) {
  const focused = cell.contains(document.activeElement);
  put(cell, content);
  if (focused && !cell.contains(document.activeElement)) /** @type {HTMLElement | null} */ (cell.querySelector("a, button"))?.focus();
}

/** Arrow keys, Home and End go from row to row. @param {KeyboardEvent} event */
function move(event) {
  const row = /** @type {HTMLElement} */ (event.target).closest("tr");
  if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
  const rows = [...(row.parentElement?.children ?? [])];
  const here = rows.indexOf(row);
  const steps = /** @type {Record<string, number>} */ ({ ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: rows.length - 1 });
  const there = rows[steps[event.key]];
  const target = /** @type {HTMLElement | null | undefined} */ (there?.querySelector("a, button"));
  if (!target) return;
  event.preventDefault();
  target.focus();
  there.scrollIntoView({ block: "nearest" });
}
