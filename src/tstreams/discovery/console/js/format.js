/** Numbers, sizes and durations as people read them. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** All digits: 1,204,551. @param {number} value */
export function whole(value) {
  return WHOLE.format(value);
}

/** Three digits that count: 0.42, 12.4, 1.20 M. @param {number} value */
export function short(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, factor] of /** @type {[string, number][]} */ ([["G", 1e9], ["M", 1e6], ["k", 1e3]])) {
    if (size >= factor * 0.9995) return `${digits(value / factor)} ${unit}`;
  }
  return Number.isInteger(value) ? String(value) : digits(value);
}

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 99.95) return value.toFixed(0);
  return size >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

/** 4.2 MiB. @param {number} value */
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${units[unit]}`;
}

/** 820 µs, 3.1 ms, 12 s, 4 min 5 s, 3 h, 6 d. @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds <= 0) return "0 s";
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${digits(seconds * 1e3)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds)} s`;
  if (seconds < 3600 && seconds % 60 >= 1) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return span(seconds);
}

/** In one whole unit: 45 s, 4 min, 3 h, 6 d. @param {number} seconds */
export function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400 * 2) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** How long data lives, exactly: 7 d, 36 h, 90 s. @param {number} seconds */
export function ttl(seconds) {
  for (const [unit, factor] of /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60]])) {
    if (seconds >= factor && seconds % factor === 0) return `${whole(seconds / factor)} ${unit}`;
  }
  return `${seconds} s`;
}

/** "1 item", "12 items". @param {number} count @param {string} noun @param {string} [many] */
export function count(count, noun, many) {
  return `${whole(count)} ${count === 1 ? noun : many ?? `${noun}s`}`;
}

/**
 * "at least" is for amounts that were not counted to the end.
 *
 * @param {string} text
 * @param {boolean} exact
 */
export function atLeast(text, exact) {
  return exact ? text : `≥ ${text}`;
}

/**
 * Seconds from "7d", "90 s", "36h", "15 min" or a bare number; null if it is none of these.
 *
 * @param {string} text
 * @returns {number | null}
 */
export function parseDuration(text) {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)?\s*$/i.exec(text);
  if (!match) return null;
  const factors = /** @type {Record<string, number>} */ ({ s: 1, m: 60, h: 3600, d: 86400, w: 604800 });
  return Number(match[1]) * factors[(match[2] ?? "s")[0].toLowerCase()];
}
