/** Keys that work on every page. */
import { infoDialog } from "./dialog.js";
import { h } from "./h.js";
import { go, href } from "./router.js";

const PLACES = /** @type {Record<string, [string, string]>} */ ({
  o: ["overview", "Overview"],
  s: ["streams", "Streams"],
  c: ["consumers", "Consumers"],
  t: ["open", "Open transactions"],
  j: ["jobs", "Jobs"],
  l: ["ledgers", "Ledgers and disk"],
  n: ["nodes", "Nodes"],
});
const SECOND_KEY_MS = 1500;

/** @param {{ search: HTMLInputElement }} parts */
export function startKeyboard({ search }) {
  let going = 0;
  document.addEventListener("keydown", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey || target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "?") {
      showKeys();
    } else if (event.key === "g") {
      going = Date.now();
    } else if (Date.now() - going < SECOND_KEY_MS && PLACES[event.key]) {
      going = 0;
      go(href([PLACES[event.key][0]]));
    }
  });
}

/** Shows what the keys do. */
export function showKeys() {
  const keys = /** @type {[string[], string][]} */ ([
    [["/"], "Search streams"],
    [["↑", "↓"], "From row to row in a table"],
    [["←", "→"], "Along a chart or the timeline"],
    [["+", "−"], "Zoom the timeline"],
    [["Esc"], "Close a dialog, clear the search"],
    ...Object.entries(PLACES).map(([key, [, text]]) => /** @type {[string[], string]} */ ([["g", key], text])),
    [["?"], "This list"],
  ]);
  infoDialog({
    title: "Keys",
    body: h("dl", { class: "pairs" }, keys.map(([pressed, text]) => [h("dt", null, pressed.map((key, i) => [i > 0 && " ", h("kbd", null, key)])), h("dd", null, text)])),
  });
}
