/** One consumer: how far it is, partition by partition, and its lag over time. */
import { get, getTagged, path, remove } from "../api.js";
import { createChart } from "../chart.js";
import { consequences, formDialog } from "../dialog.js";
import { atLeast, bytes, count, duration, short, whole } from "../format.js";
import { h, put } from "../h.js";
import { card, figures, pageHead } from "../head.js";
import { go, href } from "../router.js";
import { recent } from "../scale.js";
import { empty, failure, repeat, skeleton } from "../states.js";
import { createTable } from "../table.js";
import { ago } from "../time.js";
import { liveness } from "./consumers.js";
import { resetDialog } from "./reset.js";

const MINUTES = 15;
const REFRESH_S = 2;

/** @type {import("../router.js").Page} */
export function consumerPage({ root, params: [stream, name], signal, title }) {
  title(name);
  const where = path("v1", "streams", stream, "consumers", name);
  const crumbs = [h("a", { href: href(["consumers"]) }, "Consumers"), "/", h("a", { href: href(["streams", stream]) }, stream), "/"];
  const strip = figures([["state", "State"], ["seconds", "Behind"], ["transactions", "Transactions behind"], ["items", "Items behind"], ["bytes", "Bytes behind"], ["position", "Has read up to"], ["seen", "Last sign of life"]]);
  const charts = [
    createChart({ title: "Behind, in time", lines: [{ label: "behind", first: true }], format: duration, kind: "seconds", signal, tall: true }),
    createChart({ title: "Behind, in transactions", lines: [{ label: "behind", first: true }], format: short, signal, tall: true }),
  ];
  const table = positionTable(stream);
  const body = h("div", null, skeleton(5));
  const trouble = h("div");
  const says = h("span", null, " ");
  let consumer = /** @type {any} */ (null);
  let tag = /** @type {string | null} */ (null);

  async function refresh() {
    const got = await getTagged(where, signal);
    consumer = got.data;
    tag = got.tag;
    show(strip.cells, consumer);
    put(says, consumer.live ? `Held by session ${consumer.holder.session}.` : "Nobody reads under this name now.");
    body.replaceChildren(table.element);
    table.set(consumer.positions, consumer.positions.length >= consumer.partitions || consumer.positions.length < 1024);
    for (const button of [reset, forget]) button.disabled = false;
    const history = await get(`${where}/lag`, { minutes: MINUTES }, signal);
    const points = history.items.map((/** @type {any} */ item) => ({ time: Date.parse(item.time), item }));
    const span = recent(MINUTES * 60_000, points[0]?.time);
    charts[0].set(points.map((/** @type {any} */ point) => ({ time: point.time, values: [point.item.seconds] })), span);
    charts[1].set(points.map((/** @type {any} */ point) => ({ time: point.time, values: [point.item.transactions] })), span);
    trouble.replaceChildren();
  }

  /** @param {any} error */
  function failed(error) {
    put(trouble, failure(error, () => void refresh().catch(failed)));
    if (consumer === null) body.replaceChildren(empty("Nothing to show"));
  }

  const again = () => void refresh().catch(failed);
  const reset = h("button", { type: "button", class: "button primary", disabled: true, onclick: () => resetDialog(consumer, tag, again) }, "Reset offset");
  const forget = h("button", { type: "button", class: "button danger", disabled: true, onclick: () => forgetDialog(consumer, tag) }, "Forget");
  root.append(
    pageHead({ title: name, crumbs, text: says, actions: [reset, forget] }),
    trouble,
    strip.element,
    h("div", { class: "columns" }, charts.map((chart) => chart.element)),
    card({ title: "Partitions", body }),
  );
  repeat(REFRESH_S, refresh, signal, failed);
}

/** @param {Map<string, HTMLElement>} cells @param {any} consumer */
function show(cells, consumer) {
  const set = (/** @type {string} */ key, /** @type {import("../h.js").Child} */ value) => put(/** @type {HTMLElement} */ (cells.get(key)), value);
  const { lag } = consumer;
  set("state", liveness(consumer));
  set("seconds", atLeast(duration(lag.seconds), lag.exact));
  set("transactions", atLeast(whole(lag.transactions), lag.exact));
  set("items", atLeast(short(lag.items), lag.exact));
  set("bytes", atLeast(bytes(lag.bytes), lag.exact));
  set("position", ago(consumer.position_time, "nothing yet"));
  set("seen", ago(consumer.holder?.seen));
}

/** @param {string} stream */
function positionTable(stream) {
  const at = (/** @type {any} */ row) => href(["streams", stream], { partition: row.partition, at: row.position, txn: row.position });
  return createTable({
    caption: "Positions by partition",
    key: (row) => String(row.partition),
    empty: () => empty("No position is saved"),
    columns: [
      { title: "Partition", width: "100px", cell: (row) => h("a", { class: "name", href: at(row) }, String(row.partition)), sort: (row) => row.partition },
      { title: "Position", cell: (row) => h("span", { class: "mono muted" }, row.position ?? "none yet"), rank: "middle" },
      { title: "Has read up to", number: true, width: "128px", cell: (row) => ago(row.time, "nothing yet") },
      { title: "Behind", number: true, width: "104px", cell: (row) => atLeast(duration(row.lag.seconds), row.lag.exact), sort: (row) => row.lag.seconds },
      { title: "Transactions", number: true, width: "120px", cell: (row) => atLeast(whole(row.lag.transactions), row.lag.exact), sort: (row) => row.lag.transactions },
      { title: "Items", number: true, width: "104px", cell: (row) => atLeast(short(row.lag.items), row.lag.exact), sort: (row) => row.lag.items, rank: "middle" },
      { title: "Waits for", width: "200px", cell: (row) => (row.held_back_by ? h("a", { class: "mono", href: href(["open"]) }, row.held_back_by) : h("span", { class: "muted" }, "nothing")), rank: "low" },
    ],
  });
}

/** @param {any} consumer @param {string | null} tag */
function forgetDialog(consumer, tag) {
  formDialog({
    title: `Forget ${consumer.name}?`,
    body: consequences(
      `Its saved positions in ${count(consumer.partitions, "partition")} of ${consumer.stream} are dropped.`,
      "A consumer that comes back under this name starts where its own `start` says, as a new one does.",
      consumer.live && "It is live: the server will refuse this until it is stopped.",
    ),
    confirm: "Forget consumer",
    danger: true,
    async submit() {
      await remove(path("v1", "streams", consumer.stream, "consumers", consumer.name), tag);
      setTimeout(() => go(href(["consumers"])));
      return `${consumer.name} was forgotten.`;
    },
  });
}
