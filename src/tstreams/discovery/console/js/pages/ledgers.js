/** The files of the log, and the disk that they are on. */
import { bytes, whole } from "../format.js";
import { h, put } from "../h.js";
import { figures, pageHead } from "../head.js";
import { createListing } from "../listing.js";
import { on, statistics } from "../live.js";
import { empty } from "../states.js";
import { ago } from "../time.js";

/** @type {import("../router.js").Page} */
export function ledgersPage({ root, signal, title }) {
  title("Ledgers and disk");
  const strip = figures([["ledgers", "Ledgers"], ["bytes", "In ledgers"], ["needed", "Can be read"], ["dead", "Can be given back"], ["free", "Disk free"]]);
  const set = (/** @type {string} */ key, /** @type {string} */ value) => put(/** @type {HTMLElement} */ (strip.cells.get(key)), value);
  const tell = (/** @type {any} */ told) => {
    set("bytes", bytes(told.ledger_bytes));
    set("free", bytes(told.disk_free_bytes));
  };
  if (statistics) tell(statistics);
  on("statistics", tell, signal);
  const listing = createListing({
    where: "v1/ledgers",
    caption: "Ledgers",
    signal,
    key: (row) => `${row.shard}/${row.id}`,
    empty: () => empty("There are no ledgers"),
    got(rows, complete) {
      set("ledgers", `${whole(rows.length)}${complete ? "" : " and more"}`);
      set("needed", total(rows, "live_bytes"));
      set("dead", total(rows, "dead_bytes"));
    },
    columns: [
      { title: "Ledger", cell: (row) => h("span", { class: "name" }, row.id), sort: (row) => Number(row.id) },
      { title: "Shard", number: true, width: "72px", cell: (row) => String(row.shard), rank: "middle" },
      { title: "State", width: "104px", cell: (row) => h("span", { class: `state ${row.closed ? "" : "good"}` }, row.closed ? "closed" : "written") },
      { title: "Size", number: true, width: "108px", cell: (row) => bytes(row.bytes), sort: (row) => row.bytes },
      { title: "Can be read", number: true, width: "112px", cell: (row) => (row.live_bytes === null ? "–" : bytes(row.live_bytes)), sort: (row) => row.live_bytes ?? -1 },
      { title: "Gone", number: true, width: "112px", cell: (row) => (row.dead_bytes === null ? "–" : bytes(row.dead_bytes)), sort: (row) => row.dead_bytes ?? -1, rank: "middle" },
      { title: "Part that can be read", width: "180px", cell: (row) => share(row), rank: "low" },
      { title: "Begun", number: true, width: "128px", cell: (row) => ago(row.created), sort: (row) => row.created ?? "" },
    ],
  });
  root.append(pageHead({ title: "Ledgers and disk", text: "A ledger is a file of the log. It is deleted whole, once nothing in it is needed any more." }), strip.element, h("div", { class: "card" }, listing.element));
}

/** @param {any[]} rows @param {string} name */
function total(rows, name) {
  const known = rows.filter((row) => row[name] !== null);
  return known.length ? bytes(known.reduce((sum, row) => sum + row[name], 0)) : "–";
}

/** @param {any} row */
function share(row) {
  const payload = (row.live_bytes ?? 0) + (row.dead_bytes ?? 0);
  if (payload === 0) return h("span", { class: "muted" }, "holds no items");
  const part = ((row.live_bytes ?? 0) / payload) * 100;
  return h("div", { class: "meter small", title: `${part.toFixed(0)} %` }, h("i", { style: { width: `${part}%` } }), h("span", { class: "visually-hidden" }, `${part.toFixed(0)} %`));
}
