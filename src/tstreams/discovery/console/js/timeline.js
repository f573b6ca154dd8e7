/**
 * A strip of time with a bar for each transaction: as high as it has items. Zoomed by the wheel, the keys + and -
 * or the buttons, moved by dragging or the arrow keys.
 *
 * @typedef {{ id: string, time: string, items: number, bytes: number }} Mark
 */
import { count, span as spanText } from "./format.js";
import { h, put, svg } from "./h.js";
import { timeTicks } from "./scale.js";
import { settings } from "./settings.js";
import { absolute } from "./time.js";

const BOTTOM = 18;
const TOP = 8;
const SPAN_MS_MIN = 20;
const SPAN_MS_MAX = 400 * 86400e3;
const SETTLE_MS = 250;

/**
 * @param {{
 *   signal: AbortSignal, pick: (mark: Mark) => void,
 *   fetch: (from: number, to: number) => Promise<{ marks: Mark[], knownFrom: number }>,
 *   failed: (error: any) => void,
 * }} options `fetch` gives the newest transactions of a range; before `knownFrom` there are more.
 */
export function createTimeline({ signal, pick, fetch, failed }) {
  let width = 800;
  let height = 84;
  let from = Date.now() - 60_000;
  let to = Date.now();
  let knownFrom = from;
  let picked = "";
  /** @type {Mark[]} */
  let marks = [];
  let timer = 0;
  let turn = 0;

  const drawing = svg("svg", { "aria-hidden": "true" });
  const strip = h("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline of transactions. Plus and minus zoom, arrow keys move." }, drawing);
  const says = h("span", { class: "muted small" });
  const tool = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ act) =>
    h("button", { type: "button", class: "button small", "aria-label": label, title: label, onclick: act }, text);
  const tools = h("div", { class: "line push" }, tool("−", "Zoom out", () => zoom(2)), tool("+", "Zoom in", () => zoom(0.5)), tool("‹", "Earlier", () => shift(-0.5)), tool("›", "Later", () => shift(0.5)));
  const element = h("div", null, h("div", { class: "timeline-head" }, h("h3", null, "Timeline"), says, tools), strip);

  const x = (/** @type {number} */ time) => ((time - from) / (to - from)) * width;
  const timeAt = (/** @type {number} */ place) => from + (place / width) * (to - from);

  const observer = new ResizeObserver(([entry]) => {
    width = Math.max(200, entry.contentRect.width);
    height = entry.contentRect.height || height;
    draw();
  });
  observer.observe(strip);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    clearTimeout(timer);
  });

  function draw() {
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const offset = settings.zone === "utc" ? 0 : -new Date().getTimezoneOffset() * 60_000;
    const { step, ticks } = timeTicks(from, to, Math.max(2, Math.floor(width / 110)), offset);
    const floor = height - BOTTOM;
    const axis = ticks.flatMap((at) => [
      svg("line", { class: "tick", x1: Math.round(x(at)) + 0.5, x2: Math.round(x(at)) + 0.5, y1: 0, y2: floor }),
      x(at) > 24 && x(at) < width - 24 && svg("text", { x: x(at), y: height - 4, "text-anchor": "middle" }, label(at, step)),
    ]);
    const largest = Math.max(1, ...marks.map((mark) => mark.items));
    const bar = Math.min(8, Math.max(1.5, (width / Math.max(1, marks.length)) * 0.5));
    const bars = marks.map((mark) => {
      const tall = Math.max(4, (Math.log1p(mark.items) / Math.log1p(largest)) * (floor - TOP));
      return svg("rect", { class: `bar-mark${mark.id === picked ? " picked" : ""}`, x: (x(Date.parse(mark.time)) - bar / 2).toFixed(1), y: (floor - tall).toFixed(1), width: bar.toFixed(1), height: tall.toFixed(1), rx: Math.min(1.5, bar / 2) });
    });
    const more = knownFrom > from && svg("g", null, svg("rect", { class: "unknown", x: 0, y: 0, width: Math.max(0, x(knownFrom)), height: floor }), x(knownFrom) > 150 && svg("text", { x: x(knownFrom) / 2, y: floor / 2 + 4, "text-anchor": "middle" }, "More transactions here: zoom in"));
    drawing.replaceChildren(...[more, ...axis, svg("line", { class: "tick", x1: 0, x2: width, y1: floor + 0.5, y2: floor + 0.5 }), ...bars].filter(Boolean));
    put(says, `${count(marks.length, "transaction")}${knownFrom > from ? " and more" : ""} in ${(to - from) < 1000 ? `${Math.round(to - from)} ms` : spanText((to - from) / 1000)}`);
  }

  /** @param {number} at @param {number} step */
  function label(at, step) {
    const date = new Date(at);
    if (step >= 86400e3) return absolute(date).slice(5, 10);
    return absolute(date, { date: false, ms: step < 1000 }).slice(0, step < 1000 ? 12 : step < 60_000 ? 8 : 5);
  }

  /** @param {number} begin @param {number} end */
  function range(begin, end) {
    const size = Math.min(SPAN_MS_MAX, Math.max(SPAN_MS_MIN, end - begin));
    const middle = (begin + end) / 2;
    from = middle - size / 2;
    to = middle + size / 2;
    draw();
    clearTimeout(timer);
    timer = window.setTimeout(() => void refresh(), SETTLE_MS);
  }

  /** @param {number} factor @param {number} [around] */
  function zoom(factor, around = (from + to) / 2) {
    range(around - (around - from) * factor, around + (to - around) * factor);
  }

  /** @param {number} part */
  function shift(part) {
    const by = (to - from) * part;
    range(from + by, to + by);
  }

  async function refresh() {
    turn += 1;
    const mine = turn;
    try {
      const got = await fetch(from, to);
      if (signal.aborted || mine !== turn) return;
      marks = got.marks;
      knownFrom = got.knownFrom;
      draw();
    } catch (error) {
      if (!signal.aborted) failed(error);
    }
  }

  strip.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
    event.preventDefault();
    const around = timeAt(event.clientX - strip.getBoundingClientRect().left);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) shift(event.deltaX / width);
    else zoom(event.deltaY > 0 ? 1.25 : 0.8, around);
  }, { passive: false });
  strip.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const acts = /** @type {Record<string, () => void>} */ ({ "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2) });
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  strip.addEventListener("pointerdown", (/** @type {PointerEvent} */ down) => {
    if (down.button !== 0) return;
    const begin = { from, to };
    let moved = 0;
    strip.setPointerCapture(down.pointerId);
    const drag = (/** @type {PointerEvent} */ event) => {
      moved = Math.max(moved, Math.abs(event.clientX - down.clientX));
      const by = ((event.clientX - down.clientX) / width) * (begin.to - begin.from);
      if (moved > 3) range(begin.from - by, begin.to - by);
    };
    const end = (/** @type {PointerEvent} */ event) => {
      strip.removeEventListener("pointermove", drag);
      strip.removeEventListener("pointerup", end);
      strip.removeEventListener("pointercancel", end);
      if (moved <= 3 && event.type === "pointerup") choose(event.clientX - strip.getBoundingClientRect().left);
    };
    strip.addEventListener("pointermove", drag);
    strip.addEventListener("pointerup", end);
    strip.addEventListener("pointercancel", end);
  });

  /** @param {number} place */
  function choose(place) {
    let best = null;
    for (const mark of marks) {
      const away = Math.abs(x(Date.parse(mark.time)) - place);
      if (away < 12 && (best === null || away < best.away)) best = { mark, away };
    }
    if (best) pick(best.mark);
  }

  return {
    element,
    /** Shows a range, and what is in it. @param {number} begin @param {number} end */
    range,
    /** Marks a transaction, and brings it into view. @param {string} id @param {number} time */
    pick(id, time) {
      picked = id;
      if (time < from || time > to) range(time - (to - from) / 2, time + (to - from) / 2);
      else draw();
    },
    refresh,
    get span() {
      return { from, to };
    },
  };
}
