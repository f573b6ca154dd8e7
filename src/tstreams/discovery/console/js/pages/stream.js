/** One stream: what it is, what it does now, and the tabs with what it holds. */
import { getTagged, path } from "../api.js";
import { createChart } from "../chart.js";
import { atLeast, bytes, duration, short, ttl, whole } from "../format.js";
import { h, put } from "../h.js";
import { figures, pageHead } from "../head.js";
import { on, watch } from "../live.js";
import { href } from "../router.js";
import { recent } from "../scale.js";
import { failure, repeat, skeleton } from "../states.js";
import { ago } from "../time.js";
import { browseTab } from "./browse.js";
import { alterDialog, deleteDialog, produceDialog, purgeDialog } from "./stream-actions.js";
import { consumersTab, openTab, partitionsTab, schemaTab } from "./stream-tabs.js";

const WINDOW_MS = 180_000;
/** A page that was just opened shows less, so that what there is can be seen. */
const WINDOW_MS_MIN = 30_000;
const REFRESH_S = 5;

/** @typedef {{ stream: any, signal: AbortSignal, query: URLSearchParams, refresh: () => void }} TabContext */

/** @type {import("../router.js").Page} */
export function streamPage({ root, params: [name], query, signal: left, title }) {
  title(name);
  const gone = new AbortController();
  const signal = AbortSignal.any([left, gone.signal]);
  const crumbs = [h("a", { href: href(["streams"]) }, "Streams"), "/"];
  root.append(pageHead({ title: name, crumbs }), h("div", { class: "card" }, skeleton(8)));
  const where = path("v1", "streams", name);
  let tag = /** @type {string | null} */ (null);
  let shown = /** @type {((stream: any) => void) | null} */ (null);

  async function refresh() {
    const got = await getTagged(where, signal);
    tag = got.tag;
    if (shown) shown(got.data);
    else shown = build(got.data);
  }

  /** @param {any} error */
  function failed(error) {
    if (error.status === 404) {
      gone.abort();
      root.replaceChildren(pageHead({ title: name, crumbs }), h("div", { class: "card card-body stack" }, failure(error, null), h("p", { class: "muted small" }, "It may have been deleted. ", h("a", { href: href(["streams"], { search: name }) }, "Search for streams with such a name"), ".")));
    } else if (!shown) {
      root.replaceChildren(pageHead({ title: name, crumbs }), h("div", { class: "card card-body" }, failure(error, () => void refresh().catch(failed))));
    }
  }

  const again = () => void refresh().catch(failed);

  /** @param {any} first @returns {(stream: any) => void} */
  function build(first) {
    let stream = first;
    const text = h("p");
    const strip = figures([["transactions", "Transactions"], ["items", "Items"], ["size", "Size"], ["kept", "Kept for"], ["last", "Last written"], ["lag", "Greatest lag"], ["open", "Open transactions"]]);
    const tabs = h("nav", { class: "tabs", "aria-label": "About this stream" });
    const tab = query.get("tab") ?? "messages";
    const act = (/** @type {string} */ label, /** @type {string} */ kind, /** @type {() => void} */ run) => h("button", { type: "button", class: `button ${kind}`, onclick: run }, label);
    const body = tabBody(tab, { stream, signal, query, refresh: again });
    root.replaceChildren(
      pageHead({
        title: name,
        crumbs,
        tags: first.typed && h("span", { class: "tag" }, "Arrow"),
        text,
        actions: [
          act("Write test transaction", "primary", () => produceDialog(stream, again)),
          act("Change", "", () => alterDialog(stream, tag, again)),
          act("Purge", "danger", () => purgeDialog(stream, tag, again)),
          act("Delete", "danger", () => deleteDialog(stream, tag)),
        ],
      }),
      strip.element,
      rateCharts(name, signal),
      tabs,
      body,
    );
    const update = (/** @type {any} */ now) => {
      stream = now;
      put(text, stream.description || `${whole(stream.partitions)} ${stream.partitions === 1 ? "partition" : "partitions"}`);
      showFigures(strip.cells, stream);
      put(tabs, tabLinks(stream, tab));
    };
    on("stream", (tick) => {
      if (tick.stream !== name) return;
      stream = { ...stream, size: tick.size, last_transaction: tick.last_transaction };
      showFigures(strip.cells, stream);
    }, signal);
    update(first);
    watch(name, signal);
    return update;
  }

  repeat(REFRESH_S, refresh, signal, failed);
}

/** @param {Map<string, HTMLElement>} cells @param {any} stream */
function showFigures(cells, stream) {
  const set = (/** @type {string} */ key, /** @type {import("../h.js").Child} */ value) => put(/** @type {HTMLElement} */ (cells.get(key)), value);
  if (stream.size) {
    set("transactions", atLeast(whole(stream.size.transactions), stream.size.exact));
    set("items", atLeast(short(stream.size.items), stream.size.exact));
    set("size", atLeast(bytes(stream.size.bytes), stream.size.exact));
  }
  set("kept", ttl(stream.ttl_seconds));
  set("last", ago(stream.last_transaction, "never"));
  set("lag", stream.slowest ? h("span", { title: stream.slowest.consumer }, duration(stream.slowest.lag.seconds)) : "none");
  set("open", whole(stream.open_transactions));
}

/** @param {any} stream @param {string} tab */
function tabLinks(stream, tab) {
  const tabs = /** @type {[string, string, number | null][]} */ ([["messages", "Messages", null], ["partitions", "Partitions", stream.partitions], ["consumers", "Consumers", stream.consumers], ["open", "Open transactions", stream.open_transactions]]);
  if (stream.columns) tabs.push(["schema", "Schema", stream.columns.length]);
  return tabs.map(([key, label, many]) =>
    h("a", { href: href(["streams", stream.name], { tab: key }), "aria-current": key === tab ? "page" : null }, label, many !== null && h("span", { class: "count" }, whole(many))));
}

/** @param {string} tab @param {TabContext} context @returns {HTMLElement} */
function tabBody(tab, context) {
  if (tab === "partitions") return partitionsTab(context);
  if (tab === "consumers") return consumersTab(context);
  if (tab === "open") return openTab(context);
  if (tab === "schema" && context.stream.columns) return schemaTab(context);
  return browseTab(context);
}

/** What is written each second, since this page was opened. @param {string} name @param {AbortSignal} signal */
function rateCharts(name, signal) {
  /** @type {{ time: number, rates: any }[]} */
  const ticks = [];
  const shapes = /** @type {[string, string, (value: number) => string][]} */ ([["Transactions written", "transactions", short], ["Items written", "items", short], ["Bytes written", "bytes", bytes]]);
  const charts = shapes.map(([label, key, format]) => createChart({ title: label, lines: [{ label: "written", first: true }], format, kind: key === "bytes" ? "bytes" : "number", unit: "/s", signal, low: true }));
  const draw = () => {
    const shown = recent(WINDOW_MS, ticks[0]?.time, WINDOW_MS_MIN);
    charts.forEach((chart, i) => chart.set(ticks.map((tick) => ({ time: tick.time, values: [tick.rates[shapes[i][1]]] })), shown));
  };
  on("stream", (tick) => {
    if (tick.stream !== name) return;
    ticks.push({ time: Date.parse(tick.time), rates: tick.rates });
    while (ticks.length && ticks[0].time < Date.now() - WINDOW_MS - 5000) ticks.shift();
    draw();
  }, signal);
  draw();
  return h("div", { class: "charts" }, charts.map((chart) => chart.element));
}
