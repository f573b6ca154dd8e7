/** The settings in force. */
import { get } from "../api.js";
import { h } from "../h.js";
import { pageHead } from "../head.js";
import { empty, load } from "../states.js";
import { createTable } from "../table.js";

/** @type {import("../router.js").Page} */
export function configPage({ root, signal, title }) {
  title("Configuration");
  const body = h("div", { class: "card" });
  const filter = h("input", { type: "text", "aria-label": "Filter settings", placeholder: "Filter settings", autocomplete: "off" });
  root.append(pageHead({ title: "Configuration", text: "The settings in force. They come from the command line, the environment and the configuration file; a restart reads them anew.", actions: [filter] }), body);
  void load(body, () => get("v1/config", {}, signal), (config) => {
    const table = settingsTable(() => filter.value);
    const show = () => {
      const text = filter.value.toLowerCase();
      table.set(config.items.filter((/** @type {any} */ item) => `${item.name} ${item.value} ${item.description}`.toLowerCase().includes(text)));
    };
    filter.addEventListener("input", show);
    show();
    return table.element;
  }, signal);
}

/** @param {() => string} filtered */
function settingsTable(filtered) {
  return createTable({
    caption: "Settings",
    key: (row) => row.name,
    empty: () => empty(`No setting has “${filtered()}” in it`),
    columns: [
      { title: "Setting", width: "26%", cell: (row) => h("code", { title: row.name }, row.name) },
      { title: "Value", width: "26%", cell: (row) => [h("code", { title: row.value }, row.value === "" ? h("span", { class: "muted" }, "empty") : row.value), !row.default && [" ", h("span", { class: "tag", title: "Not the default" }, "set")]] },
      { title: "What it is", cell: (row) => h("span", { class: "muted", title: row.description }, row.description), rank: "middle" },
    ],
  });
}
