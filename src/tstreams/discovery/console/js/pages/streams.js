/** All streams: searched by the server, a page at a time; first the names, then what takes time to count. */
import { get } from "../api.js";
import { atLeast, bytes, duration, short, ttl, whole } from "../format.js";
import { h, put } from "../h.js";
import { pageHead, streamLink } from "../head.js";
import { empty, failure, skeleton } from "../states.js";
import { createTable } from "../table.js";
import { ago } from "../time.js";
import { createStreamDialog } from "./stream-actions.js";

const PAGE = 50;

/** @type {import("../router.js").Page} */
export function streamsPage({ root, query, signal, title }) {
  title("Streams");
  let search = query.get("search") ?? "";
  let turn = 0;
  /** @type {string | null} */
  let next = null;
  /** @type {number | null} */
  let total = null;

  const says = h("p", { role: "status" }, " ");
  const trouble = h("div");
  const table = streamTable(() => search, () => void more(), () => total);
  const body = h("div", null, skeleton(8));

  /** @param {AbortSignal} stop @param {string | null} after */
  async function page(stop, after) {
    return get("v1/streams", { search, limit: PAGE, after, details: false }, stop);
  }

  /** What takes time to count comes after the names, into the same rows. @param {string | null} after @param {number} mine */
  async function details(after, mine) {
    const full = await get("v1/streams", { search, limit: PAGE, after }, signal);
    if (signal.aborted || mine !== turn) return;
    const known = new Map(full.items.map((/** @type {any} */ row) => [row.number, row]));
    table.set(table.rows.map((row) => known.get(row.number) ?? row), next === null);
  }

  async function first() {
    turn += 1;
    const mine = turn;
    try {
      const found = await page(signal, null);
      if (mine !== turn) return;
      next = found.next;
      total = found.total;
      trouble.replaceChildren();
      if (body.firstChild !== table.element) body.replaceChildren(table.element);
      table.set(found.items, next === null);
      put(says, describe(search, total, found.items.length, next === null));
      await details(null, mine);
    } catch (error) {
      if (!signal.aborted && mine === turn) failed(error, first);
    }
  }

  async function more() {
    const mine = turn;
    const after = next;
    table.busy(true);
    try {
      const found = await page(signal, after);
      if (mine !== turn) return;
      next = found.next;
      table.set([...table.rows, ...found.items], next === null);
      await details(after, mine);
    } catch (error) {
      if (!signal.aborted && mine === turn) failed(error, more);
    } finally {
      table.busy(false);
    }
  }

  /** @param {any} error @param {() => Promise<void>} again */
  function failed(error, again) {
    const notice = h("div", { class: "card-body" }, failure(error, () => { trouble.replaceChildren(); void again(); }));
    if (body.firstChild === table.element) trouble.replaceChildren(notice);
    else body.replaceChildren(notice);
  }

  window.addEventListener("search", (event) => {
    search = /** @type {CustomEvent} */ (event).detail;
    void first();
  }, { signal });
  const button = h("button", { type: "button", class: "button primary", onclick: () => createStreamDialog() }, "Create stream");
  root.append(pageHead({ title: "Streams", text: says, actions: [button] }), h("div", { class: "card" }, trouble, body));
  void first();
}

/** @param {string} search @param {number | null} total @param {number} shown @param {boolean} complete */
function describe(search, total, shown, complete) {
  const many = total ?? (complete ? shown : null);
  if (search) return many === null ? `Names with “${search}”` : `${whole(many)} ${many === 1 ? "name has" : "names have"} “${search}” in ${many === 1 ? "it" : "them"}`;
  return many === null ? "In the order of their names" : `${whole(many)} in all, in the order of their names`;
}

/** @param {() => string} searched @param {() => void} more @param {() => number | null} total */
function streamTable(searched, more, total) {
  return createTable({
    caption: "Streams",
    key: (row) => row.number,
    more,
    foot: (rows) => `${whole(rows.length)}${total() === null ? "" : ` of ${whole(/** @type {number} */ (total()))}`} shown`,
    empty: () =>
      searched()
        ? empty(`No stream has “${searched()}” in its name`, "The search looks anywhere in a name, in upper and lower case alike. Press Escape in the search to see all streams.")
        : empty("There are no streams yet", "Create one here, or with `tstreams stream create clicks`, or from a program.", h("button", { type: "button", class: "button primary", onclick: () => createStreamDialog() }, "Create stream")),
    columns: [
      { title: "Name", cell: (row) => [streamLink(row.name), row.typed && [" ", h("span", { class: "tag" }, "Arrow")]] },
      { title: "Partitions", number: true, width: "92px", cell: (row) => whole(row.partitions), rank: "middle" },
      { title: "Kept for", number: true, width: "92px", cell: (row) => ttl(row.ttl_seconds), rank: "low" },
      { title: "Transactions", number: true, width: "116px", cell: (row) => (row.size ? atLeast(short(row.size.transactions), row.size.exact) : "") },
      { title: "Size", number: true, width: "100px", cell: (row) => (row.size ? atLeast(bytes(row.size.bytes), row.size.exact) : ""), rank: "middle" },
      { title: "Written/s", number: true, width: "96px", cell: (row) => (row.rates ? short(row.rates.transactions) : row.size ? "–" : ""), rank: "low" },
      { title: "Slowest consumer", number: true, width: "148px", cell: (row) => (row.slowest ? h("span", { title: row.slowest.consumer }, `${duration(row.slowest.lag.seconds)} behind`) : row.size ? h("span", { class: "muted" }, "none") : ""), rank: "low" },
      { title: "Last written", number: true, width: "112px", cell: (row) => ago(row.last_transaction, "never") },
    ],
  });
}
