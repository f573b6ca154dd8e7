/** From values to places: scales and their ticks. */

/** @typedef {"number" | "bytes" | "seconds"} Kind */

const SECONDS = [60, 120, 240, 360, 600, 1200, 2400, 3600, 7200, 4 * 3600, 8 * 3600, 16 * 3600];
const DAY_S = 86400;

/** The next round amount of its kind: half of it is round too. @param {number} value @param {Kind} kind @returns {number} */
export function roundUp(value, kind) {
  if (!(value > 0)) return kind === "seconds" ? 0.001 : kind === "bytes" ? 1024 : 1;
  if (kind === "bytes") return 2 ** Math.ceil(Math.log2(value));
  if (kind === "seconds" && value > 50) return SECONDS.find((step) => value <= step) ?? DAY_S * roundUp(value / DAY_S, "number");
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 4, 6, 8, 10]) if (value <= step * power * (1 + 1e-9)) return step * power;
  return 10 * power;
}

/**
 * An upper end that is calm: it grows at once, and shrinks only when far too high.
 *
 * @param {number} before
 * @param {number} largest
 * @param {Kind} kind
 */
export function calmTop(before, largest, kind) {
  const wanted = roundUp(largest * 1.05, kind);
  return wanted > before || wanted < before / 2.4 ? wanted : before;
}

/**
 * The last so many milliseconds, or less if there is less to show, but never less than `least`.
 *
 * @param {number} length
 * @param {number | undefined} first the time of the first value
 * @param {number} [least]
 */
export function recent(length, first, least = 60_000) {
  const to = Date.now();
  return { from: Math.min(to - least, Math.max(to - length, first ?? to - length)), to };
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 2 * 86400e3, 7 * 86400e3, 30 * 86400e3];

/**
 * Round times in a range, at most `most` of them.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} most
 * @param {number} offset milliseconds that the zone is ahead of UTC
 */
export function timeTicks(from, to, most, offset) {
  const step = STEPS_MS.find((each) => (to - from) / each <= most) ?? 365 * 86400e3;
  const ticks = [];
  for (let at = Math.ceil((from + offset) / step) * step - offset; at <= to; at += step) ticks.push(at);
  return { step, ticks };
}
