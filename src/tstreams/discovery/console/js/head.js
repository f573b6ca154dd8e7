/** The head of a page, and small parts that many pages have. */
import { h } from "./h.js";
import { href } from "./router.js";

/** @typedef {import("./h.js").Child} Child */

/**
 * @param {{ title: string, text?: Child, crumbs?: Child[], actions?: Child[], tags?: Child }} options
 */
export function pageHead({ title, text, crumbs, actions = [], tags }) {
  return h(
    "div",
    { class: "page-head" },
    h("div", { class: "titles" }, crumbs && h("nav", { class: "crumbs", "aria-label": "Where this is" }, crumbs), h("h1", null, title, tags && " ", tags), text && h("p", null, text)),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

/** A card with a heading. @param {{ title?: string, tools?: Child, body: Child, label?: string }} options */
export function card({ title, tools, body, label }) {
  return h("section", { class: "card", "aria-label": title ? null : label }, (title || tools) && h("div", { class: "card-head" }, title && h("h2", null, title), tools && h("div", { class: "push line" }, tools)), body);
}

/**
 * A strip of figures: returns the element, and a function that sets them.
 *
 * @param {[string, string][]} names key and label
 */
export function figures(names) {
  const cells = new Map(names.map(([key]) => [key, h("dd", null, "–")]));
  const element = h("dl", { class: "card figures" }, names.map(([key, label]) => h("div", null, h("dt", null, label), cells.get(key))));
  return { element, cells };
}

/** A choice of a few. @param {{ label: string, choices: [string, string][], chosen: string, choose: (value: string) => void }} options */
export function segments({ label, choices, chosen, choose }) {
  const buttons = choices.map(([value, text]) => h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => mark(value) }, text));
  function mark(/** @type {string} */ value) {
    choices.forEach(([each], i) => buttons[i].setAttribute("aria-pressed", String(each === value)));
    choose(value);
  }
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

/** @param {string} name */
export function streamLink(name) {
  return h("a", { href: href(["streams", name]), class: "name", title: name }, name);
}

/** @param {string} stream @param {string} name */
export function consumerLink(stream, name) {
  return h("a", { href: href(["streams", stream, "consumers", name]), class: "name", title: name }, name);
}
