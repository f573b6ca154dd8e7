/**
 * Dialogs: modal, closed by Escape, and the focus returns to where it was.
 *
 * @typedef {import("./h.js").Child} Child
 */
import { h } from "./h.js";
import { icon } from "./icons.js";
import { failure } from "./states.js";
import { toast } from "./toast.js";

/**
 * A form in a dialog. `submit` does the work: if it fails the dialog stays and says why; what it returns is
 * said when the dialog has closed.
 *
 * @param {{
 *   title: string, body: Child, confirm: string, danger?: boolean, wide?: boolean,
 *   submit: () => Promise<string | null>, ready?: (() => boolean) | null,
 * }} options
 * @returns {{ element: HTMLDialogElement, refresh: () => void, close: () => void }}
 */
export function formDialog({ title, body, confirm, danger = false, wide = false, submit, ready = null }) {
  const trouble = h("div", null);
  const done = h("button", { type: "submit", class: `button primary${danger ? " danger" : ""}` }, confirm);
  const heading = h("h2", { id: "dialog-title" }, title);
  const form = h(
    "form",
    { method: "dialog", novalidate: true },
    h("div", { class: "dialog-head" }, heading, closeButton()),
    h("div", { class: "dialog-body" }, body, trouble),
    h("div", { class: "dialog-foot" }, h("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Not now"), done),
  );
  const dialog = open(form, wide);
  const refresh = () => { done.disabled = ready !== null && !ready(); };
  form.addEventListener("input", refresh);
  form.addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    if (done.disabled) return;
    done.disabled = true;
    trouble.replaceChildren();
    try {
      const said = await submit();
      dialog.close();
      if (said) toast(said);
    } catch (error) {
      trouble.replaceChildren(failure(error));
      trouble.scrollIntoView({ block: "nearest" });
      refresh();
    }
  });
  refresh();
  return { element: dialog, refresh, close: () => dialog.close() };
}

/** A dialog that only shows something. @param {{ title: string, body: Child }} options */
export function infoDialog({ title, body }) {
  const head = h("div", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, title), closeButton());
  open(h("form", { method: "dialog" }, head, h("div", { class: "dialog-body" }, body)), false);
}

function closeButton() {
  return h(
    "button",
    { type: "button", class: "button quiet icon small", "aria-label": "Close", onclick: (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.currentTarget).closest("dialog")?.close() },
    icon("close", 16),
  );
}

/** @param {HTMLElement} content @param {boolean} wide @returns {HTMLDialogElement} */
function open(content, wide) {
  const before = document.activeElement;
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", class: wide ? "wide" : null }, content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  dialog.addEventListener("click", (/** @type {MouseEvent} */ event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  const first = dialog.querySelector(".dialog-body input, .dialog-body select, .dialog-body textarea");
  (first ?? dialog.querySelector(".dialog-foot button") ?? dialog).focus?.();
  return dialog;
}

/** What will happen, line by line. @param {...Child} lines */
export function consequences(...lines) {
  return h("ul", { class: "consequences" }, ...lines.filter(Boolean).map((line) => h("li", null, line)));
}

/**
 * A field with its label and a hint.
 *
 * @param {string} label
 * @param {HTMLElement} control
 * @param {Child} [hint]
 */
export function field(label, control, hint) {
  const id = `f${Math.random().toString(36).slice(2)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint && h("span", { class: "hint", id: `${id}-hint` }, hint));
}
