/** Tabs of a stream's page: partitions, consumers, open transactions, schema. */
import { path } from "../api.js";
import { atLeast, bytes, short, whole } from "../format.js";
import { h } from "../h.js";
import { createListing } from "../listing.js";
import { href } from "../router.js";
import { empty } from "../states.js";
import { createTable } from "../table.js";
import { ago } from "../time.js";
import { consumerColumns, noConsumers } from "./consumers.js";
import { openColumns } from "./open.js";

/** @typedef {import("./stream.js").TabContext} TabContext */

/** @param {TabContext} context */
export function partitionsTab({ stream, signal }) {
  const at = (/** @type {number} */ partition) => href(["streams", stream.name], { partition });
  const listing = createListing({
    where: path("v1", "streams", stream.name, "partitions"),
    caption: "Partitions",
    signal,
    key: (row) => String(row.partition),
    empty: () => empty("No partitions"),
    foot: (rows) => `${whole(rows.length)} of ${whole(stream.partitions)} shown`,
    columns: [
      { title: "Partition", width: "100px", cell: (row) => h("a", { class: "name", href: at(row.partition) }, String(row.partition)), sort: (row) => row.partition },
      { title: "Transactions", number: true, cell: (row) => atLeast(whole(row.size.transactions), row.size.exact), sort: (row) => row.size.transactions },
      { title: "Items", number: true, cell: (row) => atLeast(short(row.size.items), row.size.exact), sort: (row) => row.size.items, rank: "middle" },
      { title: "Size", number: true, cell: (row) => atLeast(bytes(row.size.bytes), row.size.exact), sort: (row) => row.size.bytes },
      { title: "Oldest", number: true, cell: (row) => ago(row.oldest, "empty"), rank: "middle" },
      { title: "Last written", number: true, cell: (row) => ago(row.last_transaction, "never") },
      { title: "Readers wait for", width: "200px", cell: (row) => (row.held_back_by ? h("a", { class: "mono", href: href(["streams", stream.name], { tab: "open" }) }, row.held_back_by) : h("span", { class: "muted" }, "nothing")), rank: "low" },
    ],
  });
  return h("section", { class: "card", "aria-label": "Partitions" }, listing.element);
}

/** @param {TabContext} context */
export function consumersTab({ stream, signal }) {
  const listing = createListing({
    where: path("v1", "streams", stream.name, "consumers"),
    caption: "Consumers of this stream",
    signal,
    key: (row) => row.name,
    empty: noConsumers,
    columns: consumerColumns({ withStream: false }),
  });
  return h("section", { class: "card", "aria-label": "Consumers" }, listing.element);
}

/** @param {TabContext} context */
export function openTab({ stream, signal }) {
  const listing = createListing({
    where: "v1/transactions/open",
    query: { stream: stream.name },
    caption: "Open transactions of this stream",
    signal,
    seconds: 2,
    key: (row) => row.id + row.partition,
    empty: () => empty("No transaction is open", "Whoever writes here has checkpointed or cancelled what it began."),
    columns: openColumns({ withStream: false, refresh: () => void listing.refresh() }),
  });
  return h("section", { class: "card", "aria-label": "Open transactions" }, listing.element);
}

/** @param {TabContext} context */
export function schemaTab({ stream }) {
  const table = createTable({
    caption: "Columns",
    key: (row) => row.name,
    empty: () => empty("The schema has no columns"),
    columns: [
      { title: "Column", cell: (row) => h("span", { class: "name" }, row.name) },
      { title: "Type", cell: (row) => h("code", null, row.type) },
      { title: "May be null", width: "140px", cell: (row) => (row.nullable ? "yes" : "no") },
    ],
  });
  table.set(stream.columns);
  return h("section", { class: "card", "aria-label": "Schema" }, table.element);
}
