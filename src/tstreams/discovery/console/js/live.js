/**
 * What the server tells of itself each second: one connection for the whole console, and the past of the last
 * hour, so that charts are full wherever one comes from.
 *
 * @typedef {{ time: number, written: Rates, read: Rates, requests: number, commit_p50: number, commit_p99: number, sync_p99: number,
 *   open_transactions: number, oldest_open_seconds: number, lag_transactions: number, lag_seconds: number }} Sample
 * @typedef {{ transactions: number, items: number, bytes: number }} Rates
 * @typedef {"connecting" | "live" | "lost"} Link
 */
import { address, get } from "./api.js";

const SAMPLES_MAX = 3600;
const HIDDEN_MS_MAX = 60_000;
const FIRST_MINUTES = 15;

/** @type {Sample[]} The oldest first. */
export const samples = [];
/** @type {any} The last statistics, or null before the first. */
export let statistics = null;
/** @type {Link} */
export let link = "connecting";

/** @type {EventSource | null} */
let source = null;
let watched = "";
let hiddenTimer = 0;
const events = new EventTarget();

/**
 * Calls back on `statistics`, `stream`, `link` and `history`, until the signal.
 *
 * @param {"statistics" | "stream" | "link" | "history"} name
 * @param {(detail: any) => void} listener
 * @param {AbortSignal} [signal]
 */
export function on(name, listener, signal) {
  events.addEventListener(name, (event) => listener(/** @type {CustomEvent} */ (event).detail), { signal });
}

/** @param {string} name @param {unknown} [detail] */
function tell(name, detail) {
  events.dispatchEvent(new CustomEvent(name, { detail }));
}

/** Opens the connection; it closes while nobody looks at the page. */
export function startLive() {
  connect();
  void refill();
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) {
      hiddenTimer = window.setTimeout(disconnect, HIDDEN_MS_MAX);
    } else if (source === null) {
      connect();
      void refill();
    }
  });
}

/** Watches one stream closely, until the signal: the event `stream`. @param {string} name @param {AbortSignal} signal */
export function watch(name, signal) {
  watched = name;
  connect();
  signal.addEventListener("abort", () => {
    if (watched !== name) return;
    watched = "";
    connect();
  });
}

function disconnect() {
  source?.close();
  source = null;
}

let pending = 0;

/** Soon: whoever leaves one stream for another causes one new connection, not two. */
function connect() {
  clearTimeout(pending);
  pending = window.setTimeout(open, 0);
}

function open() {
  disconnect();
  const opened = new EventSource(address("v1/events", { stream: watched }));
  source = opened;
  opened.addEventListener("open", () => setLink("live"));
  opened.addEventListener("statistics", (event) => {
    setLink("live");
    receive(JSON.parse(event.data));
  });
  opened.addEventListener("stream", (event) => tell("stream", JSON.parse(event.data)));
  opened.addEventListener("error", () => {
    setLink("lost");
    if (opened.readyState === EventSource.CLOSED && source === opened) pending = window.setTimeout(open, 3000);
  });
}

/** @param {Link} state */
function setLink(state) {
  if (link === state) return;
  const wasLost = link === "lost";
  link = state;
  tell("link", state);
  if (wasLost && state === "live") void refill();
}

/** @param {any} told */
function receive(told) {
  statistics = told;
  const slowest = told.slowest[0];
  const sample = {
    time: Date.parse(told.time),
    written: told.written,
    read: told.read,
    requests: told.requests,
    commit_p50: told.commit.p50,
    commit_p99: told.commit.p99,
    sync_p99: told.sync.p99,
    open_transactions: told.open_transactions,
    oldest_open_seconds: told.oldest_open_seconds,
    lag_transactions: slowest ? slowest.transactions : 0,
    lag_seconds: slowest ? slowest.seconds : 0,
  };
  const last = samples.at(-1);
  if (last && last.time >= sample.time) return;
  samples.push(sample);
  if (samples.length > SAMPLES_MAX) samples.splice(0, samples.length - SAMPLES_MAX);
  tell("statistics", told);
}

let remembered = FIRST_MINUTES;

/** Asks for more of the past, if less was asked for until now. @param {number} minutes */
export function remember(minutes) {
  if (minutes <= remembered) return;
  remembered = minutes;
  void refill();
}

async function refill() {
  let history;
  try {
    history = await get("v1/statistics/history", { minutes: remembered });
  } catch {
    return; // the state of the link says that nothing comes
  }
  const past = history.items.map((/** @type {any} */ item) => ({ ...item, time: Date.parse(item.time) }));
  const end = past.length ? past.at(-1).time : 0;
  samples.splice(0, samples.length, ...past, ...samples.filter((sample) => sample.time > end));
  tell("history");
}
