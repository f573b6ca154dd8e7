/** Times: relative on the page, absolute in the title, local or UTC as chosen. */
import { span } from "./format.js";
import { h } from "./h.js";
import { onSettings, settings } from "./settings.js";

/** A transaction's id is its time: milliseconds since the epoch, and five digits more. */
const ID_PER_MS = 100_000n;

/** @param {number} value @param {number} [width] */
const pad = (value, width = 2) => String(value).padStart(width, "0");

/**
 * "2026-11-16 18:27:46.120", in the zone that was chosen.
 *
 * @param {Date} date
 * @param {{ date?: boolean, ms?: boolean, zone?: boolean }} [parts]
 */
export function absolute(date, { date: withDate = true, ms = false, zone = false } = {}) {
  const moved = settings.zone === "utc" ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  const text = moved.toISOString();
  const clock = text.slice(11, ms ? 23 : 19);
  const suffix = zone ? ` ${settings.zone === "utc" ? "UTC" : offsetOf(date)}` : "";
  return `${withDate ? `${text.slice(0, 10)} ` : ""}${clock}${suffix}`;
}

/** @param {Date} date */
function offsetOf(date) {
  const minutes = -date.getTimezoneOffset();
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** "4 min ago", "in 20 s". @param {Date} date @param {number} [now] */
export function relative(date, now = Date.now()) {
  const seconds = (now - date.getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
}

/**
 * An element that says how long ago something was, and keeps saying it.
 *
 * @param {string | null | undefined} text RFC 3339, or nothing
 * @param {string} [none]
 */
export function ago(text, none = "–") {
  if (!text) return h("span", { class: "muted" }, none);
  const date = new Date(text);
  return h("time", { datetime: text, title: absolute(date, { ms: true, zone: true }), "data-ago": "" }, relative(date));
}

/**
 * An element with the absolute time; the title says how long ago.
 *
 * @param {string} text RFC 3339
 * @param {{ date?: boolean, ms?: boolean }} [parts]
 */
export function stamp(text, parts = { ms: true }) {
  const date = new Date(text);
  return h("time", { datetime: text, title: `${absolute(date, { ms: true, zone: true })}`, "data-stamp": JSON.stringify(parts) }, absolute(date, parts));
}

function tick() {
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-ago]")) {
    const text = relative(new Date(element.getAttribute("datetime") ?? ""), now);
    if (element.textContent !== text) element.textContent = text;
  }
}

/** Starts the clock behind `ago`, and follows the choice of zone. */
export function startClock() {
  setInterval(() => document.hidden || tick(), 1000);
  onSettings(() => {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const date = new Date(element.getAttribute("datetime") ?? "");
      element.setAttribute("title", absolute(date, { ms: true, zone: true }));
      const parts = element.getAttribute("data-stamp");
      if (parts) element.textContent = absolute(date, JSON.parse(parts));
    }
  });
}

/** The time in a transaction's id. @param {string} id */
export function timeOfId(id) {
  return new Date(Number(BigInt(id) / ID_PER_MS));
}

/**
 * A place in history as people write it: an id, "18:27", "2026-11-16 18:27:46", RFC 3339, "5m ago", "-1h".
 *
 * @param {string} text
 * @param {number} [now]
 * @returns {{ id: string } | { time: string } | null} null if it means nothing
 */
export function parsePoint(text, now = Date.now()) {
  const trimmed = text.trim();
  if (/^\d{9,19}$/.test(trimmed)) return { id: trimmed };
  const back = /^-?\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)(?:\s+ago)?$/i.exec(trimmed);
  if (back) {
    const factor = /** @type {Record<string, number>} */ ({ s: 1, m: 60, h: 3600, d: 86400 })[back[2][0].toLowerCase()];
    return { time: new Date(now - Number(back[1]) * factor * 1000).toISOString() };
  }
  const utc = settings.zone === "utc";
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?$/.exec(trimmed);
  if (clock) {
    const today = absolute(new Date(now)).slice(0, 10);
    return instant(`${today}T${clock[1].padStart(2, "0")}:${clock[2]}:${clock[3] ?? "00"}${clock[4] ?? ""}${utc ? "Z" : ""}`);
  }
  const full = /^(\d{4}-\d{2}-\d{2})(?:[T ]+(\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?$/i.exec(trimmed);
  if (!full) return null;
  const zone = full[3] ? full[3].toUpperCase().replace("UTC", "Z") : utc ? "Z" : "";
  return instant(`${full[1]}T${full[2] ?? "00:00:00"}${zone}`);
}

/** @param {string} text */
function instant(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? null : { time: date.toISOString() };
}
