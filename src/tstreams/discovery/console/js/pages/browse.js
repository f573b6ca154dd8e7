/** The messages of a stream: a partition at a time, from any point in time; the address says where one is. */
import { get, path } from "../api.js";
import { bytes, short, whole } from "../format.js";
import { h, put } from "../h.js";
import { segments } from "../head.js";
import { on } from "../live.js";
import { href, rename } from "../router.js";
import { empty, failure, skeleton } from "../states.js";
import { createTable } from "../table.js";
import { parsePoint, stamp, timeOfId } from "../time.js";
import { createTimeline } from "../timeline.js";
import { createViewer } from "../viewer.js";

const PAGE = 100;
const STRIP_MAX = 1000;
/** Partitions that are chosen from a list; of more the number is typed. */
const LISTED_MAX = 256;

/** @param {import("./stream.js").TabContext} context @returns {HTMLElement} */
export function browseTab({ stream, signal, query }) {
  const place = {
    partition: Math.min(Number(query.get("partition") ?? 0) || 0, stream.partitions - 1),
    at: query.get("at") ?? "",
    txn: query.get("txn") ?? "",
    view: query.get("view") ?? "auto",
  };
  const base = () => path("v1", "streams", stream.name, "partitions", place.partition, "transactions");
  const address = () => href(["streams", stream.name], { partition: place.partition || null, at: place.at, txn: place.txn, view: place.view === "auto" ? null : place.view });
  /** @type {string | null} */
  let next = null;
  let turn = 0;
  let seen = stream.last_transaction;

  const trouble = h("div");
  const fresh = h("button", { type: "button", class: "button small", hidden: true, onclick: () => jump("") }, "Show new");
  const order = h("span", { class: "muted small" });
  const table = createTable({
    caption: "Transactions",
    key: (row) => row.id,
    picked: (row) => row.id === place.txn,
    more: () => void more(),
    foot: (rows, complete) => `${whole(rows.length)} shown${complete ? ", that is all" : ""}`,
    empty: () => nothing(place.at),
    columns: [
      { title: "Opened", width: "118px", cell: (row, now) => h("button", { type: "button", class: "row-link", "aria-label": `Transaction ${row.id}`, onclick: () => pick(now()) }, stamp(row.time, { date: false, ms: true })) },
      { title: "Id", cell: (row) => h("span", { class: "mono muted id" }, row.id) },
      { title: "Items", number: true, width: "64px", cell: (row) => short(row.items) },
      { title: "Size", number: true, width: "84px", cell: (row) => bytes(row.bytes), rank: "middle" },
    ],
  });
  const rows = h("div", { class: "rows" }, skeleton(8));
  const viewer = createViewer({ signal, typed: stream.typed, view: place.view, viewed: (view) => { place.view = view; rename(address()); } });
  const strip = createTimeline({
    signal,
    pick: (mark) => pick(mark),
    failed: (error) => put(trouble, failure(error, () => void strip.refresh())),
    async fetch(from, to) {
      const page = await get(base(), { from: iso(from), to: iso(to), order: "desc", limit: STRIP_MAX }, signal);
      const oldest = page.items.at(-1);
      return { marks: page.items, knownFrom: page.next === null || !oldest ? from : Date.parse(oldest.time) };
    },
  });

  /** @param {any} transaction */
  function pick(transaction) {
    place.txn = transaction.id;
    rename(address());
    viewer.pick(transaction);
    strip.pick(transaction.id, Date.parse(transaction.time));
    table.show();
  }

  /** From where, in which order: from a point on forwards, else backwards from the newest. @param {string | null} after */
  function asked(after) {
    return place.at ? { from: place.at, order: "asc", limit: PAGE, after } : { order: "desc", limit: PAGE, after };
  }

  async function first() {
    turn += 1;
    const mine = turn;
    fresh.hidden = true;
    put(order, place.at ? "the oldest first" : "the newest first");
    try {
      const page = await get(base(), asked(null), signal);
      if (mine !== turn) return;
      next = page.next;
      trouble.replaceChildren();
      rows.replaceChildren(table.element);
      rows.scrollTop = 0;
      table.set(page.items, next === null);
      await choose(page.items);
    } catch (error) {
      if (!signal.aborted && mine === turn) put(trouble, h("div", { class: "card-body" }, failure(error, () => void first())));
    }
  }

  /** Shows the transaction of the address, or the first of the list. @param {any[]} items */
  async function choose(items) {
    const listed = items.find((item) => item.id === place.txn);
    const picked = listed ?? (place.txn ? await get(`${base()}/${place.txn}`, {}, signal).catch(() => null) : null) ?? items[0] ?? null;
    viewer.pick(picked);
    place.txn = picked?.id ?? "";
    table.show();
    frame(items, picked);
  }

  /** A range that shows the list. @param {any[]} items @param {any} picked */
  function frame(items, picked) {
    const times = items.map((item) => Date.parse(item.time));
    const middle = picked ? Date.parse(picked.time) : place.at ? pointTime(place.at) : Date.now();
    const from = times.length ? Math.min(...times) : middle - 30_000;
    const to = times.length ? Math.max(...times) : middle + 30_000;
    const margin = Math.max(500, (to - from) * 0.06);
    strip.range(from - margin, to + margin);
    if (picked) strip.pick(picked.id, Date.parse(picked.time));
  }

  async function more() {
    const mine = turn;
    table.busy(true);
    try {
      const page = await get(base(), asked(next), signal);
      if (mine !== turn) return;
      next = page.next;
      table.set([...table.rows, ...page.items], next === null);
    } catch (error) {
      if (!signal.aborted) put(trouble, h("div", { class: "card-body" }, failure(error, () => void more())));
    } finally {
      table.busy(false);
    }
  }

  /** @param {string} at */
  function jump(at) {
    place.at = at;
    place.txn = "";
    rename(address(), { push: true });
    void first();
  }

  on("stream", (tick) => {
    if (tick.stream !== stream.name || !tick.last_transaction || tick.last_transaction === seen) return;
    seen = tick.last_transaction;
    fresh.hidden = place.at !== "";
    if (table.rows.length === 0 && !place.at) void first();
  }, signal);

  void first();
  return h(
    "section",
    { class: "card", "aria-label": "Messages" },
    h("div", { class: "toolbar" }, partitionChoice(stream.partitions, place.partition, (partition) => { place.partition = partition; jump(place.at); }), jumpForm(place.at, jump), presets(jump)),
    trouble,
    strip.element,
    h("div", { class: "browse" }, h("div", { class: "list" }, h("div", { class: "toolbar" }, h("h3", null, "Transactions"), order, h("div", { class: "push" }, fresh)), rows), viewer.element),
  );
}

/** @param {string} at */
function nothing(at) {
  return at
    ? empty("Nothing was opened there or later", "Jump to an earlier time, or to the newest.")
    : empty("This partition is empty", "Write a test transaction above, or `tstreams produce` some. Data older than the stream's ttl is gone.");
}

/** @param {number} time */
function iso(time) {
  return new Date(Math.min(Math.max(time, 0), 8e14)).toISOString();
}

/** @param {string} at */
function pointTime(at) {
  return /^\d+$/.test(at) ? timeOfId(at).getTime() : Date.parse(at);
}

/** @param {number} many @param {number} chosen @param {(partition: number) => void} choose */
function partitionChoice(many, chosen, choose) {
  const control = many <= LISTED_MAX
    ? h("select", { id: "partition", onchange: () => choose(Number(control.value)) }, Array.from({ length: many }, (_, i) => h("option", { value: i, selected: i === chosen }, String(i))))
    : h("input", { id: "partition", type: "number", min: 0, max: many - 1, value: chosen, onchange: () => choose(Math.min(many - 1, Math.max(0, Math.trunc(Number(control.value)) || 0))) });
  return [h("label", { for: "partition" }, "Partition"), control];
}

/** @param {string} at @param {(at: string) => void} jump */
function jumpForm(at, jump) {
  const input = h("input", { type: "text", "aria-label": "Jump to a time or an id", placeholder: "Jump to 18:30, 5m ago, an id …", autocomplete: "off", spellcheck: "false", value: at });
  const form = h("form", { class: "jump" }, input, h("button", { type: "submit", class: "button" }, "Jump"));
  form.addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    const where = parsePoint(input.value);
    input.setCustomValidity(where ? "" : "Write a time (18:30, 2026-01-31 08:00:00, 5m ago) or the id of a transaction.");
    if (!where) return input.reportValidity();
    jump("id" in where ? where.id : where.time);
  });
  input.addEventListener("input", () => input.setCustomValidity(""));
  return form;
}

/** @param {(at: string) => void} jump */
function presets(jump) {
  const ends = segments({ label: "Jump", choices: [["oldest", "Oldest"], ["3600", "−1 h"], ["300", "−5 min"], ["60", "−1 min"], ["newest", "Newest"]], chosen: "", choose: (value) => {
    for (const button of ends.children) button.setAttribute("aria-pressed", "false");
    if (value === "newest") jump("");
    else if (value === "oldest") jump("0");
    else jump(new Date(Date.now() - Number(value) * 1000).toISOString());
  } });
  return ends;
}
