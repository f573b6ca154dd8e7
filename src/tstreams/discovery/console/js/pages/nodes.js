/** The nodes, and where they are reached. */
import { get } from "../api.js";
import { h } from "../h.js";
import { card, pageHead } from "../head.js";
import { empty, load } from "../states.js";
import { ago } from "../time.js";

/** @type {import("../router.js").Page} */
export function nodesPage({ root, signal, title }) {
  title("Nodes");
  const body = h("div", { class: "stack" });
  root.append(pageHead({ title: "Nodes", text: "Storage servers, and the addresses that clients use." }), body);
  void load(body, () => get("v1/nodes", {}, signal), (page) => (page.items.length ? h("div", { class: "columns" }, page.items.map(nodeCard)) : empty("No node is known")), signal);
}

/** @param {any} node */
function nodeCard(node) {
  return card({
    title: node.id,
    body: h(
      "dl",
      { class: "pairs card-body" },
      h("dt", null, "Version"), h("dd", null, node.version),
      h("dt", null, "Started"), h("dd", null, ago(node.started, "not known")),
      h("dt", null, "Clients"), h("dd", null, node.addresses.map((/** @type {string} */ address) => h("div", null, h("code", null, address)))),
      h("dt", null, "HTTP"), h("dd", null, h("code", null, node.http || "off")),
      h("dt", null, "Shards"), h("dd", null, node.shards.map((/** @type {any} */ shard) => h("div", null, `Shard ${shard.shard}: ${shard.role}, epoch ${shard.epoch}`))),
    ),
  });
}
