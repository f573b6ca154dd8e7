/**
 * A table over a list of the REST interface: its pages one after the other, and all of it anew now and then.
 *
 * @typedef {import("./table.js").Column} Column
 * @typedef {import("./h.js").Child} Child
 */
import { get } from "./api.js";
import { h } from "./h.js";
import { failure, repeat, skeleton } from "./states.js";
import { createTable } from "./table.js";

const PAGE = 100;
const PAGE_MAX = 1000;

/**
 * @param {{
 *   where: string, query?: import("./api.js").Query, caption: string, columns: Column[], key: (row: any) => string,
 *   empty: () => Child, signal: AbortSignal, seconds?: number, width?: string,
 *   foot?: ((rows: any[], complete: boolean) => string) | null, got?: (rows: any[], complete: boolean) => void,
 * }} options `seconds`: how often it is read anew.
 * @returns {{ element: HTMLElement, refresh: () => Promise<void> }}
 */
export function createListing({ where, query = {}, signal, seconds = 5, got, ...shape }) {
  /** @type {string | null} */
  let next = null;
  let loaded = false;
  let busy = false;
  const trouble = h("div");
  const table = createTable({ ...shape, more });
  const element = h("div", null, skeleton());

  /** @param {any} page @param {any[]} before */
  function take(page, before) {
    next = page.next;
    if (!loaded) element.replaceChildren(trouble, table.element);
    loaded = true;
    trouble.replaceChildren();
    const rows = [...before, ...page.items];
    table.set(rows, next === null);
    got?.(rows, next === null);
  }

  async function more() {
    if (busy || next === null) return;
    busy = true;
    table.busy(true);
    try {
      take(await get(where, { ...query, limit: PAGE, after: next }, signal), table.rows);
    } catch (error) {
      if (!signal.aborted) failed(error);
    } finally {
      busy = false;
      table.busy(false);
    }
  }

  async function refresh() {
    if (busy || table.rows.length > PAGE_MAX) return; // so many are read once: what was scrolled to stays
    const limit = Math.min(PAGE_MAX, Math.max(PAGE, table.rows.length));
    const page = await get(where, { ...query, limit }, signal);
    if (!busy) take(page, []);
  }

  /** @param {any} error */
  function failed(error) {
    const notice = h("div", { class: "card-body" }, failure(error, () => void refresh().catch(failed)));
    if (loaded) trouble.replaceChildren(notice);
    else element.replaceChildren(notice);
  }

  repeat(seconds, refresh, signal, failed);
  return { element, refresh: () => refresh().catch(failed) };
}
