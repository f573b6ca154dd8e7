/** What the node does, now and in the last minutes. */
import { createChart } from "../chart.js";
import { bytes, duration, short, whole } from "../format.js";
import { h, put } from "../h.js";
import { card, consumerLink, figures, pageHead, segments, streamLink } from "../head.js";
import { on, remember, samples, statistics } from "../live.js";
import { recent } from "../scale.js";
import { onSettings } from "../settings.js";
import { empty, skeleton } from "../states.js";
import { createTable } from "../table.js";

/** @typedef {import("../live.js").Sample} Sample */

/** @type {[string, string, string[], (value: number) => string, string, (sample: Sample) => number[], import("../scale.js").Kind?][]} */
const CHARTS = [
  ["Transactions", "/s", ["written", "read"], short, "", (s) => [s.written.transactions, s.read.transactions]],
  ["Items", "/s", ["written", "read"], short, "", (s) => [s.written.items, s.read.items]],
  ["Bytes", "/s", ["written", "read"], bytes, "", (s) => [s.written.bytes, s.read.bytes], "bytes"],
  ["Commit latency", "", ["p99", "p50"], duration, "p99", (s) => [s.commit_p99, s.commit_p50], "seconds"],
  ["Sync to disk", "", ["p99"], duration, "p99", (s) => [s.sync_p99], "seconds"],
  ["Lag of the slowest consumer", "", ["lag"], duration, "", (s) => [s.lag_seconds], "seconds"],
];

const ROWS = 8;

/** One that was busy and is quiet now stays among the busiest for a while. @param {any} stream */
function isBusy({ written, read }) {
  return written.transactions + read.transactions > 0;
}

/** @type {import("../router.js").Page} */
export function overviewPage({ root, signal, title }) {
  title("Overview");
  let minutes = 5;
  const charts = CHARTS.map(([name, unit, labels, format, note, , kind]) =>
    createChart({
      title: name,
      lines: labels.map((label, i) => ({ label, first: i === 0 })),
      format,
      unit,
      kind,
      signal,
      figure: ([value]) => [format(value), h("small", null, ` ${unit}${note}`)],
    }));
  const strip = figures([
    ["streams", "Streams"],
    ["open", "Open transactions"],
    ["oldest", "Oldest open"],
    ["waiting", "Readers waiting"],
    ["subscriptions", "Subscriptions"],
    ["connections", "Connections"],
    ["ledgers", "Ledgers"],
    ["free", "Disk free"],
  ]);
  const busiest = busyTable();
  const slowest = slowTable();

  const draw = () => {
    const shown = recent(minutes * 60_000, samples[0]?.time);
    const drawn = samples.filter((sample) => sample.time >= shown.from - 2000);
    charts.forEach((chart, i) => chart.set(drawn.map((sample) => ({ time: sample.time, values: CHARTS[i][5](sample) })), shown));
  };
  const tell = (/** @type {any} */ told) => {
    put(strip.cells.get("streams"), whole(told.streams));
    put(strip.cells.get("open"), whole(told.open_transactions));
    put(strip.cells.get("oldest"), told.open_transactions ? duration(told.oldest_open_seconds) : "–");
    put(strip.cells.get("waiting"), whole(told.readers_waiting));
    put(strip.cells.get("subscriptions"), whole(told.subscriptions));
    put(strip.cells.get("connections"), whole(told.connections));
    put(strip.cells.get("ledgers"), bytes(told.ledger_bytes));
    put(strip.cells.get("free"), bytes(told.disk_free_bytes));
    busiest.set(told.busiest.filter(isBusy).slice(0, ROWS));
    slowest.set(told.slowest.slice(0, ROWS));
    put(gone, !told.available && h("div", { class: "notice bad", role: "alert" }, h("div", null, h("strong", null, "The storage server does not answer. "), "All numbers are those from before. The log of `tstreams serve` says more.")));
  };
  const gone = h("div", { hidden: false });
  on("statistics", (told) => {
    if (busyCard.firstChild !== busiest.element) {
      busyCard.replaceChildren(busiest.element);
      slowCard.replaceChildren(slowest.element);
    }
    tell(told);
    draw();
  }, signal);
  on("history", draw, signal);
  onSettings(draw, signal);
  const busyCard = h("div", null, skeleton(4));
  const slowCard = h("div", null, skeleton(4));

  root.append(
    pageHead({
      title: "Overview",
      actions: [segments({ label: "How far back", choices: [["1", "1 min"], ["5", "5 min"], ["15", "15 min"], ["60", "1 h"]], chosen: "5", choose: (value) => { minutes = Number(value); remember(minutes); draw(); } })],
    }),
    gone,
    strip.element,
    h("div", { class: "charts" }, charts.map((chart) => chart.element)),
    h("div", { class: "columns" }, card({ title: "Busiest streams", body: busyCard }), card({ title: "Slowest consumers", body: slowCard })),
  );
  if (statistics) {
    busyCard.replaceChildren(busiest.element);
    slowCard.replaceChildren(slowest.element);
    tell(statistics);
  }
  draw();
}

function busyTable() {
  return createTable({
    caption: "Busiest streams",
    key: (row) => row.name,
    empty: () => empty("Nothing is written or read right now", "Streams appear here as soon as somebody writes to them, or reads from them."),
    columns: [
      { title: "Stream", cell: (row) => streamLink(row.name) },
      { title: "Transactions/s", number: true, width: "112px", cell: (row) => short(row.written.transactions) },
      { title: "Items/s", number: true, width: "74px", cell: (row) => short(row.written.items), rank: "middle" },
      { title: "Written/s", number: true, width: "88px", cell: (row) => bytes(row.written.bytes) },
      { title: "Read/s", number: true, width: "88px", cell: (row) => bytes(row.read.bytes), rank: "middle" },
    ],
  });
}

function slowTable() {
  return createTable({
    caption: "Slowest consumers",
    key: (row) => `${row.stream}\n${row.consumer}`,
    empty: () => empty("No consumer has saved a position", "A consumer appears here after its first checkpoint."),
    columns: [
      { title: "Consumer", cell: (row) => consumerLink(row.stream, row.consumer) },
      { title: "Stream", cell: (row) => streamLink(row.stream), rank: "middle" },
      { title: "State", width: "80px", cell: (row) => h("span", { class: `state ${row.live ? "good" : ""}` }, row.live ? "live" : "gone") },
      { title: "Behind", number: true, width: "88px", cell: (row) => duration(row.seconds) },
      { title: "Transactions", number: true, width: "100px", cell: (row) => short(row.transactions) },
    ],
  });
}
