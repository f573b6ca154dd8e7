/** JSON, laid out and coloured; made of text nodes. */
import { h } from "./h.js";

/** Deeper than this it is shown in one line. */
const DEPTH_MAX = 12;
/** So much stays in one line. */
const LINE_MAX = 56;

/** @param {unknown} value @returns {HTMLElement} */
export function jsonView(value) {
  return h("pre", null, parts(value, 0));
}

/** @param {any} value @param {number} depth @returns {any[]} */
function parts(value, depth) {
  if (value === null || typeof value === "boolean") return [h("span", { class: "json-word" }, String(value))];
  if (typeof value === "number") return [h("span", { class: "json-number" }, String(value))];
  if (typeof value === "string") return [h("span", { class: "json-text" }, JSON.stringify(value))];
  if (depth >= DEPTH_MAX) return [JSON.stringify(value)];
  const list = Array.isArray(value);
  const entries = list ? value.map((each) => [null, each]) : Object.entries(value);
  const [left, right] = list ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return [left + right];
  const flat = depth > 0 && JSON.stringify(value).length <= LINE_MAX;
  const gap = flat ? " " : `\n${"  ".repeat(depth + 1)}`;
  const lines = entries.map(([key, each], i) => [
    gap,
    key !== null && [h("span", { class: "json-key" }, JSON.stringify(key)), ": "],
    parts(each, depth + 1),
    i < entries.length - 1 && ",",
  ]);
  return [left, lines, flat ? ` ${right}` : `\n${"  ".repeat(depth)}${right}`];
}

/** One line of it, for a cell. @param {unknown} value */
export function jsonLine(value) {
  if (value === null || value === undefined) return h("span", { class: "json-word" }, "null");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
