/** The items of a transaction: as text, JSON, hexadecimal digits or rows. */
import { get, path } from "./api.js";
import { bytes, count, whole } from "./format.js";
import { h, put } from "./h.js";
import { segments } from "./head.js";
import { hexDump } from "./hex.js";
import { jsonLine, jsonView } from "./json.js";
import { empty, failure, skeleton } from "./states.js";
import { ago, stamp } from "./time.js";
import { toast } from "./toast.js";

const PAGE = 50;
const VIEWS = /** @type {[string, string][]} */ ([["auto", "Auto"], ["text", "Text"], ["json", "JSON"], ["hex", "Hex"], ["arrow", "Arrow"]]);

/** @param {{ signal: AbortSignal, typed: boolean, view: string, viewed: (view: string) => void }} options `typed`: there are rows. */
export function createViewer({ signal, typed, view, viewed }) {
  /** @type {any} */
  let transaction = null;
  /** @type {any[]} */
  let items = [];
  let turn = 0;
  const head = h("div", { class: "toolbar" });
  const list = h("div", { class: "items", tabindex: "0", role: "region", "aria-label": "Items" });
  const choice = segments({ label: "View", choices: VIEWS.filter(([name]) => typed || name !== "arrow"), chosen: view, choose: (value) => { view = value; viewed(value); void show(); } });
  const says = h("div", { class: "line small" });
  head.append(says, h("div", { class: "push" }, choice));
  const element = h("div", { class: "viewer" }, head, list);
  nothing();

  function nothing() {
    put(says, h("h3", null, "Items"));
    list.replaceChildren(empty("No transaction is picked", "Pick one in the list or on the timeline to read its items."));
  }

  async function show() {
    turn += 1;
    if (!transaction) return nothing();
    items = [];
    put(says, h("h3", null, count(transaction.items, "item")), stamp(transaction.time), h("span", { class: "muted" }, "·"), ago(transaction.time));
    list.replaceChildren(skeleton(5));
    list.scrollTop = 0;
    await page(0, turn);
  }

  /** @param {number} first @param {number} mine */
  async function page(first, mine) {
    const where = path("v1", "streams", transaction.stream, "partitions", transaction.partition, "transactions", transaction.id, "items");
    try {
      const got = await get(where, { first, limit: PAGE, view }, signal);
      if (mine !== turn) return;
      items = [...items, ...got.items];
      draw(got, mine);
    } catch (error) {
      if (signal.aborted || mine !== turn) return;
      list.replaceChildren(h("div", { class: "card-body" }, failure(error, () => void show())));
    }
  }

  /** @param {any} got @param {number} mine */
  function draw(got, mine) {
    const rows = items.length > 0 && items.every((item) => item.view === "arrow");
    const more = got.next !== null && h("div", { class: "table-foot" }, `${whole(items.length)} of ${whole(got.total)}`, h("button", { type: "button", class: "button small", onclick: () => void page(Number(got.next), mine) }, "Load more"));
    put(list, rows ? rowsTable(items) : items.map(itemView), more);
    if (items.length === 0) list.replaceChildren(empty("This transaction has no items"));
  }

  return {
    element,
    /** @param {any} picked a transaction, or null */
    pick(picked) {
      if (picked?.id === transaction?.id && picked?.partition === transaction?.partition) return;
      transaction = picked;
      void show();
    },
  };
}

/** @param {any} item */
function itemView(item) {
  const text = typeof item.value === "string" ? item.value : JSON.stringify(item.value);
  const copy = h("button", { type: "button", class: "button quiet small copy", "aria-label": `Copy item ${item.index}`, onclick: () => void copied(text) }, "Copy");
  return h(
    "div",
    { class: "item" },
    h("div", { class: "item-head" }, `#${whole(item.index)}`, h("span", null, bytes(item.bytes)), h("span", { class: "tag" }, item.view), item.truncated && h("span", { class: "tag warn", title: "Only its beginning is shown" }, "beginning"), copy),
    valueView(item, text),
  );
}

/** @param {any} item @param {string} text */
function valueView(item, text) {
  if (item.view === "json" && !item.truncated) return jsonView(item.value);
  return h("pre", { class: item.view === "hex" ? "dump" : null }, item.view === "hex" ? hexDump(text) : text);
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied.");
  } catch {
    toast("The browser did not allow copying.");
  }
}

/** @param {any[]} items */
function rowsTable(items) {
  const names = [...new Set(items.flatMap((item) => Object.keys(item.value ?? {})))];
  return h(
    "table",
    { class: "rows-table" },
    h("caption", { class: "visually-hidden" }, "Rows"),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "#"), names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, items.map((item) => h("tr", null, h("td", { class: "muted" }, whole(item.index)), names.map((name) => h("td", { class: typeof item.value?.[name] === "number" ? "number mono" : "mono" }, jsonLine(item.value?.[name])))))),
  );
}
