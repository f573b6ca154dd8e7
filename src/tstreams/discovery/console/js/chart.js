/**
 * A small live chart of lines over time. All charts of a page share the place of the pointer.
 *
 * @typedef {{ label: string, first?: boolean }} Line
 * @typedef {{ time: number, values: number[] }} Point
 */
import { h, put, svg } from "./h.js";
import { calmTop, timeTicks } from "./scale.js";
import { settings } from "./settings.js";
import { absolute } from "./time.js";

const LEFT = 44;
const BOTTOM = 18;
const TOP = 6;
/** The largest step in time that is still drawn as a line; over longer ones nothing is known. */
const GAP_MS = 10_000;

const pointer = new EventTarget();

/** @param {number | null} time */
function point(time) {
  pointer.dispatchEvent(new CustomEvent("move", { detail: time }));
}

/**
 * @param {{
 *   title: string, lines: Line[], format: (value: number) => string, kind?: import("./scale.js").Kind, unit?: string,
 *   signal: AbortSignal, tall?: boolean, low?: boolean,
 *   figure?: (values: number[]) => import("./h.js").Child, heading?: "h2" | "h3",
 * }} options
 */
export function createChart({ title, lines, format, kind = "number", unit = "", signal, tall = false, low = false, figure, heading = "h2" }) {
  let width = 320;
  let height = tall ? 180 : low ? 76 : 112;
  let top = 0;
  let span = { from: 0, to: 1 };
  /** @type {Point[]} */
  let points = [];
  /** @type {number | null} */
  let cursor = null;

  const now = h("div", { class: "chart-figure" }, "–");
  const legend = h("div", { class: "legend", "aria-hidden": "true" }, lines.length > 1 && lines.map((line) => h("span", { class: line.first ? "first" : null }, line.label)));
  const grid = svg("g");
  const paths = lines.map((line) => svg("path", { class: line.first ? "first" : null }));
  const area = svg("path", { class: "area" });
  const cross = svg("g", { visibility: "hidden" });
  const drawing = svg("svg", { "aria-hidden": "true" }, grid, area, svg("g", { class: "lines" }, [...paths].reverse()), cross);
  const tip = h("div", { class: "chart-tip", hidden: true });
  const plot = h("div", { class: `chart${tall ? " tall" : low ? " low" : ""}`, tabindex: "0", role: "img", "aria-label": title }, drawing, tip);
  const element = h("section", { class: "card chart-card" }, h("div", { class: "chart-head" }, h(heading, null, title), now, legend), plot);

  const x = (/** @type {number} */ time) => LEFT + ((time - span.from) / (span.to - span.from)) * (width - LEFT);
  const y = (/** @type {number} */ value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);

  const observer = new ResizeObserver(([entry]) => {
    width = Math.max(160, entry.contentRect.width);
    height = entry.contentRect.height || height;
    draw();
  });
  observer.observe(plot);
  signal.addEventListener("abort", () => observer.disconnect());

  plot.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    const place = event.clientX - plot.getBoundingClientRect().left;
    point(place < LEFT ? null : span.from + ((place - LEFT) / (width - LEFT)) * (span.to - span.from));
  });
  plot.addEventListener("pointerleave", () => point(null));
  plot.addEventListener("blur", () => point(null));
  plot.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") point(null);
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const step = (span.to - span.from) / 60;
    point(Math.min(span.to, Math.max(span.from, (cursor ?? span.to) + (event.key === "ArrowLeft" ? -step : step))));
  });
  pointer.addEventListener("move", (event) => {
    cursor = /** @type {CustomEvent} */ (event).detail;
    drawCross();
  }, { signal });

  function draw() {
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    let largest = 0;
    for (const { values } of points) for (const value of values) if (value > largest) largest = value;
    top = calmTop(top, largest, kind);
    drawGrid();
    lines.forEach((line, i) => {
      const d = trace(i);
      paths[i].setAttribute("d", d);
      if (line.first) area.setAttribute("d", underneath(i));
    });
    const last = points.at(-1);
    put(now, last ? (figure ? figure(last.values) : [format(last.values[0]), unit && h("small", null, ` ${unit}`)]) : "–");
    plot.setAttribute("aria-label", last ? `${title}: ${lines.map((line, i) => `${line.label} ${format(last.values[i])} ${unit}`).join(", ")}` : `${title}: nothing yet`);
    drawCross();
  }

  function drawGrid() {
    const parts = [0, 0.5, 1].map((part) => {
      const at = Math.round(y(top * part)) + 0.5;
      return [svg("line", { class: "grid", x1: LEFT, x2: width, y1: at, y2: at }), svg("text", { x: LEFT - 7, y: at + 3.5, "text-anchor": "end" }, format(top * part).replace(/\.0+(?= |$)/, ""))];
    });
    const offset = settings.zone === "utc" ? 0 : -new Date().getTimezoneOffset() * 60_000;
    const { step, ticks } = timeTicks(span.from, span.to, Math.max(2, Math.floor((width - LEFT) / 64)), offset);
    const labels = ticks.filter((at) => x(at) > LEFT + 14 && x(at) < width - 14).map((at) =>
      svg("text", { x: x(at), y: height - 3, "text-anchor": "middle" }, absolute(new Date(at), { date: false }).slice(0, step < 60_000 ? 8 : 5)));
    grid.replaceChildren(...parts.flat(), ...labels);
  }

  /** The runs of points between gaps. */
  function runs() {
    /** @type {Point[][]} */
    const found = [];
    /** @type {Point | null} */
    let before = null;
    for (const each of thin()) {
      if (before === null || each.time - before.time > GAP_MS) found.push([]);
      found[found.length - 1].push(each);
      before = each;
    }
    return found;
  }

  /** One point per pixel, the highest, so that no peak is lost. */
  function thin() {
    const shown = points.filter((each) => each.time >= span.from);
    if (shown.length <= width) return shown;
    /** @type {Map<number, Point>} */
    const columns = new Map();
    for (const each of shown) {
      const column = Math.round(x(each.time));
      const held = columns.get(column);
      columns.set(column, held ? { time: held.time, values: held.values.map((value, i) => Math.max(value, each.values[i])) } : each);
    }
    return [...columns.values()];
  }

  /** @param {number} i */
  function trace(i) {
    return runs().map((run) => `M${run.map((each) => `${x(each.time).toFixed(1)} ${y(each.values[i]).toFixed(1)}`).join("L")}`).join("");
  }

  /** @param {number} i */
  function underneath(i) {
    const ground = y(0).toFixed(1);
    return runs().filter((run) => run.length > 1).map((run) => {
      const line = run.map((each) => `${x(each.time).toFixed(1)} ${y(each.values[i]).toFixed(1)}`).join("L");
      return `M${x(run[0].time).toFixed(1)} ${ground}L${line}L${x(run[run.length - 1].time).toFixed(1)} ${ground}Z`;
    }).join("");
  }

  function drawCross() {
    const near = cursor === null || cursor < span.from || cursor > span.to ? null : nearest(cursor);
    cross.setAttribute("visibility", near ? "visible" : "hidden");
    tip.hidden = near === null || !(plot.matches(":hover") || plot === document.activeElement);
    if (!near) return;
    const at = x(near.time);
    cross.replaceChildren(
      svg("line", { class: "cross", x1: at, x2: at, y1: TOP, y2: height - BOTTOM }),
      ...lines.map((line, i) => svg("circle", { class: `dot${line.first ? " first" : ""}`, cx: at, cy: y(near.values[i]), r: 3.5 })),
    );
    if (tip.hidden) return;
    put(tip, h("div", null, absolute(new Date(near.time), { date: false })), lines.map((line, i) => h("div", null, `${line.label} `, h("b", null, `${format(near.values[i])} ${unit}`))));
    tip.style.left = `${Math.min(Math.max(LEFT, at + 12), Math.max(LEFT, width - tip.offsetWidth))}px`;
    if (at + 12 + tip.offsetWidth > width) tip.style.left = `${Math.max(0, at - 12 - tip.offsetWidth)}px`;
  }

  /** @param {number} time */
  function nearest(time) {
    let best = null;
    for (const each of points) if (best === null || Math.abs(each.time - time) < Math.abs(best.time - time)) best = each;
    return best && Math.abs(best.time - time) <= Math.max(GAP_MS, (span.to - span.from) / 30) ? best : null;
  }

  return {
    element,
    /** @param {Point[]} given the oldest first @param {{ from: number, to: number }} shown */
    set(given, shown) {
      points = given;
      span = shown;
      draw();
    },
  };
}
