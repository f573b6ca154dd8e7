/** The consumers of all streams. */
import { atLeast, duration, short } from "../format.js";
import { h } from "../h.js";
import { consumerLink, pageHead, streamLink } from "../head.js";
import { createListing } from "../listing.js";
import { empty } from "../states.js";
import { ago } from "../time.js";

/** @type {import("../router.js").Page} */
export function consumersPage({ root, signal, title }) {
  title("Consumers");
  const listing = createListing({
    where: "v1/consumers",
    caption: "Consumers",
    signal,
    key: (row) => `${row.stream}\n${row.name}`,
    empty: noConsumers,
    columns: consumerColumns({ withStream: true }),
  });
  root.append(pageHead({ title: "Consumers", text: "Named readers with a saved position: consumers, subscribers, and Spark queries with the option consumer." }), h("div", { class: "card" }, listing.element));
}

export function noConsumers() {
  return empty("No consumer has saved a position", "A consumer appears here after its first checkpoint: `tstreams consume clicks --name c1 --checkpoint`, or a program.");
}

/** @param {{ withStream: boolean }} options @returns {import("../table.js").Column[]} */
export function consumerColumns({ withStream }) {
  const stream = /** @type {import("../table.js").Column} */ ({ title: "Stream", cell: (row) => streamLink(row.stream), sort: (row) => row.stream, rank: "middle" });
  return [
    { title: "Consumer", cell: (row) => consumerLink(row.stream, row.name), sort: (row) => row.name },
    ...(withStream ? [stream] : []),
    { title: "State", width: "92px", cell: (row) => liveness(row), sort: (row) => (row.live ? 0 : 1) },
    { title: "Behind", number: true, width: "104px", cell: (row) => atLeast(duration(row.lag.seconds), row.lag.exact), sort: (row) => row.lag.seconds },
    { title: "Transactions", number: true, width: "120px", cell: (row) => atLeast(short(row.lag.transactions), row.lag.exact), sort: (row) => row.lag.transactions },
    { title: "Items", number: true, width: "104px", cell: (row) => atLeast(short(row.lag.items), row.lag.exact), sort: (row) => row.lag.items, rank: "middle" },
    { title: "Has read up to", number: true, width: "128px", cell: (row) => ago(row.position_time, "nothing yet"), rank: "low" },
    { title: "Last sign of life", number: true, width: "136px", cell: (row) => ago(row.holder?.seen), rank: "low" },
  ];
}

/** @param {any} consumer */
export function liveness(consumer) {
  const kind = consumer.holder?.kind === "job" ? "job" : "live";
  return h("span", { class: `state ${consumer.live ? "good" : ""}`, title: consumer.live ? "A program holds this name now" : "Nobody reads under this name now" }, consumer.live ? kind : "gone");
}
