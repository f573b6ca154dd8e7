/** What is shown while something loads, when there is nothing, and when it failed. */
import { h } from "./h.js";

/** @typedef {import("./h.js").Child} Child */

/** Grey bars in place of what is coming. @param {number} [rows] */
export function skeleton(rows = 6) {
  const widths = [62, 84, 45, 73, 56, 90];
  const bones = Array.from({ length: rows }, (_, i) => h("span", { class: "bone", style: { width: `${widths[i % widths.length]}%` } }));
  return h("div", { class: "card-body stack", "aria-busy": "true" }, h("span", { class: "visually-hidden" }, "Loading"), bones);
}

/** Nothing is here, and what to do about it. @param {string} title @param {...Child} text */
export function empty(title, ...text) {
  return h("div", { class: "empty" }, h("strong", null, title), ...text.map((part) => (typeof part === "string" ? h("p", null, part) : part)));
}

/** What went wrong, with a button to try again. @param {any} error @param {(() => void) | null} [retry] */
export function failure(error, retry) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("div", null, h("strong", null, titleOf(error)), " ", sentence(error.message)),
    retry && h("button", { type: "button", class: "button small", onclick: retry }, "Try again"),
  );
}

/** What the server says, as a sentence. @param {string} text */
export function sentence(text) {
  const whole = /[.!?]$/.test(text) ? text : `${text}.`;
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}

/** @param {any} error */
function titleOf(error) {
  if (error.name !== "Problem") return "Something went wrong in the console.";
  return error.title ? `${error.title.replace(/\.$/, "")}.` : `Error ${error.status}.`;
}

/**
 * Loads something into an element: bones, then what `view` makes of it, or the failure with a retry.
 *
 * @template T
 * @param {HTMLElement} root
 * @param {() => Promise<T>} fetcher
 * @param {(data: T) => Child} view
 * @param {AbortSignal} signal
 * @param {Child} [waiting]
 */
export async function load(root, fetcher, view, signal, waiting = skeleton()) {
  root.replaceChildren();
  if (waiting) root.append(/** @type {Node} */ (waiting));
  try {
    const data = await fetcher();
    if (signal.aborted) return;
    const made = view(data);
    root.replaceChildren();
    if (made) root.append(/** @type {Node} */ (made));
  } catch (error) {
    if (signal.aborted) return;
    root.replaceChildren(h("div", { class: "card-body" }, failure(error, () => load(root, fetcher, view, signal))));
  }
}

/**
 * Does something now and then again and again, until the signal; not while the page is hidden.
 * A failure is told to `failed`, and the next turn comes all the same.
 *
 * @param {number} seconds
 * @param {() => Promise<void>} work
 * @param {AbortSignal} signal
 * @param {(error: any) => void} failed
 */
export function repeat(seconds, work, signal, failed) {
  let timer = 0;
  const turn = async () => {
    try {
      if (!document.hidden) await work();
    } catch (error) {
      if (signal.aborted) return;
      failed(error);
    }
    if (!signal.aborted) timer = window.setTimeout(turn, seconds * 1000);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  void turn();
}
