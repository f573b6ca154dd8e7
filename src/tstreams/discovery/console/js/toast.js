/** Short notes about what was done; they go by themselves, and are read out. */
import { h } from "./h.js";

const SHOWN_MS = 6000;

/** @param {string} text */
export function toast(text) {
  const element = h("div", { class: "toast" }, text);
  document.getElementById("toasts")?.append(element);
  setTimeout(() => element.remove(), SHOWN_MS);
}
