/** The nodes, what they stand on, and which of them leads which shard. */
import { get } from "../api.js";
import { bytes } from "../format.js";
import { h, put } from "../h.js";
import { card, figures, pageHead } from "../head.js";
import { createListing } from "../listing.js";
import { empty, failure, repeat, sentence } from "../states.js";
import { ago } from "../time.js";

const SECONDS = 3;
const HEALTH_SECONDS = 10;
const SHARDS_MAX = 1000;
const STATES = /** @type {Record<string, [string, string]>} */ ({
  ok: ["good", "All is well"],
  degraded: ["warn", "Degraded"],
  failing: ["bad", "Failing"],
});

/** @type {import("../router.js").Page} */
export function nodesPage({ root, signal, title }) {
  title("Nodes");
  const strip = figures([["state", "State"], ["nodes", "Nodes"], ["shards", "Shards with a leader"], ["replicas", "Copies of a shard"], ["log", "Logs kept by"]]);
  const set = (/** @type {string} */ key, /** @type {import("../h.js").Child} */ value) => put(/** @type {HTMLElement} */ (strip.cells.get(key)), value);
  const trouble = h("div");
  const map = h("div", { class: "card-body stack", "aria-busy": "true" });
  const servers = h("div");

  repeat(SECONDS, async () => {
    const [cluster, nodes, shards] = await Promise.all([get("v1/cluster", {}, signal), get("v1/nodes", { limit: 100 }, signal), get("v1/shards", { limit: SHARDS_MAX }, signal)]);
    set("nodes", `${cluster.nodes_live} of ${cluster.nodes}`);
    set("shards", `${cluster.shards_led} of ${cluster.shards}`);
    set("replicas", String(cluster.replicas));
    set("log", cluster.engine === "local" ? "the server itself" : cluster.engine);
    map.removeAttribute("aria-busy");
    put(map, ...leadership(nodes.items, shards.items, cluster));
  }, signal, (error) => put(map, failure(error)));
  repeat(HEALTH_SECONDS, async () => {
    const health = await get("v1/cluster/health", {}, signal);
    const [kind, text] = STATES[health.status];
    set("state", h("span", { class: `state ${kind}` }, text));
    put(trouble, health.problems.length > 0 && h("div", { class: `notice ${kind}`, role: "status" }, h("div", null, health.problems.map((/** @type {string} */ it) => h("div", null, sentence(it))))));
    put(servers, serverCard(health));
  }, signal, (error) => put(trouble, failure(error)));

  root.append(
    pageHead({ title: "Nodes", text: "Storage servers, the addresses that clients use, and which of them leads which shard." }),
    strip.element,
    trouble,
    card({ title: "Who leads what", tools: legend(), body: map }),
    h("div", { class: "card" }, nodeList(signal)),
    h("div", { class: "card" }, shardList(signal)),
    servers,
  );
}

/** A row for each node, with a tile for each shard that it leads, follows, or should. @param {any[]} nodes @param {any[]} shards @param {any} cluster */
function leadership(nodes, shards, cluster) {
  if (!nodes.length) return [empty("No node is known")];
  const busiest = Math.max(...shards.map((it) => it.load), 0);
  const rows = nodes.map((node) => h(
    "div",
    { class: "leads" },
    h("div", { class: "leads-node" }, h("code", null, node.id), h("span", { class: "muted small" }, describe(node, cluster))),
    h("ul", { class: "tiles", "aria-label": `Shards of node ${node.id}` }, shards.map((shard) => tile(node, shard, busiest))),
  ));
  const nobody = shards.filter((it) => it.leader === null).map((it) => it.shard);
  return nobody.length ? [...rows, h("div", { class: "notice bad", role: "alert" }, `Nobody leads shard ${nobody.join(", ")}.`)] : rows;
}

/** @param {any} node @param {any} cluster */
function describe(node, cluster) {
  const more = [node.id === cluster.director && cluster.name && "decides where shards are", node.id === cluster.node && cluster.name && "this front door"].filter(Boolean);
  return [stateOf(node)[1], `leads ${node.leads}`, `follows ${node.follows}`, ...more].join(" · ");
}

/** @param {any} node @param {any} shard @param {number} busiest */
function tile(node, shard, busiest) {
  const epoch = `epoch ${shard.epoch}`;
  if (shard.leader === node.id) {
    const text = `Shard ${shard.shard}: led here, ${epoch}${shard.chosen === node.id ? ", chosen by operators" : ""}${shard.load ? `, load ${shard.load.toFixed(2)}` : ""}`;
    return h("li", { class: "tile leader", title: text, style: { "--load": busiest ? shard.load / busiest : 0 } }, h("span", { "aria-hidden": "true" }, shard.shard), h("span", { class: "visually-hidden" }, text));
  }
  const copy = shard.followers.find((/** @type {any} */ it) => it.node === node.id);
  if (copy === undefined) return h("li", { class: "tile none", "aria-hidden": "true" });
  const text = `Shard ${shard.shard}: ${follows(copy)}, ${epoch}`;
  return h("li", { class: `tile ${copy.in_sync ? "follower" : "late"}`, title: text }, h("span", { "aria-hidden": "true" }, shard.shard), h("span", { class: "visually-hidden" }, text));
}

/** @param {any} copy */
function follows(copy) {
  if (!copy.live) return "the node is not there";
  if (copy.in_sync) return "followed here";
  return copy.behind_bytes === null ? "on its way" : `${bytes(copy.behind_bytes)} behind`;
}

function legend() {
  const part = (/** @type {string} */ kind, /** @type {string} */ text) => h("span", { class: "line small" }, h("span", { class: `tile tile-key ${kind}`, "aria-hidden": "true" }), text);
  return h("span", { class: "line tile-keys" }, part("leader", "leads"), part("follower", "follows"), part("late", "behind"));
}

/** @param {any} node @returns {[string, string]} */
function stateOf(node) {
  if (!node.live) return ["bad", "gone"];
  if (node.leaving) return ["warn", "leaving"];
  if (node.draining) return ["warn", node.placed || node.leads ? "draining" : "drained"];
  return ["good", "live"];
}

/** @param {AbortSignal} signal */
function nodeList(signal) {
  return createListing({
    where: "v1/nodes",
    caption: "Nodes",
    signal,
    key: (row) => row.id,
    empty: () => empty("No node is known"),
    columns: [
      { title: "Node", width: "176px", cell: (row) => h("span", { class: "name", title: row.id }, row.id), sort: (row) => row.id },
      { title: "State", width: "96px", cell: (row) => h("span", { class: `state ${stateOf(row)[0]}` }, stateOf(row)[1]) },
      { title: "Clients", cell: (row) => h("span", { class: "name", title: row.addresses.join(", ") }, row.addresses.join(", ") || "–") },
      { title: "Console", width: "208px", cell: (row) => (row.http ? h("a", { class: "name", href: row.http, title: row.http }, row.http) : "off"), rank: "middle" },
      { title: "Load", number: true, width: "72px", cell: (row) => `${Math.round(row.load * 100)} %`, sort: (row) => row.load, rank: "middle" },
      { title: "Version", width: "84px", cell: (row) => row.version || "–", rank: "low" },
      { title: "Started", number: true, width: "128px", cell: (row) => ago(row.started, "not known"), sort: (row) => row.started ?? "", rank: "low" },
    ],
  }).element;
}

/** @param {AbortSignal} signal */
function shardList(signal) {
  return createListing({
    where: "v1/shards",
    caption: "Shards",
    signal,
    key: (row) => String(row.shard),
    empty: () => empty("There are no shards"),
    columns: [
      { title: "Shard", number: true, width: "72px", cell: (row) => String(row.shard), sort: (row) => row.shard },
      { title: "Leader", width: "176px", cell: (row) => (row.leader === null ? h("span", { class: "state bad" }, "nobody") : h("span", { class: "name", title: row.leader }, row.leader)), sort: (row) => row.leader ?? "" },
      { title: "Epoch", number: true, width: "80px", cell: (row) => String(row.epoch), sort: (row) => row.epoch },
      { title: "Load", number: true, width: "72px", cell: (row) => (row.load ? row.load.toFixed(2) : "–"), sort: (row) => row.load, rank: "middle" },
      { title: "Followers", cell: (row) => (row.followers.length ? h("span", { class: "line" }, row.followers.map((/** @type {any} */ it) => h("span", { class: `state ${it.in_sync ? "good" : "warn"}`, title: follows(it) }, it.node))) : "–"), rank: "middle" },
      { title: "Chosen", width: "92px", cell: (row) => (row.chosen ? "yes" : "–"), rank: "low" },
    ],
  }).element;
}

/** @param {any} health */
function serverCard(health) {
  const all = [...health.coordination.map((/** @type {any} */ it) => ["ZooKeeper", it]), ...health.engine.map((/** @type {any} */ it) => ["Log", it])];
  if (!all.length) return null;
  return card({
    title: "What it stands on",
    body: h("dl", { class: "pairs card-body" }, all.map(([kind, it]) => [
      h("dt", null, kind),
      h("dd", null, h("code", null, it.address), " ", h("span", { class: `state ${it.problem === null ? "good" : "bad"}` }, it.problem ?? ([it.name, it.version].filter(Boolean).join(" ") || "well"))),
    ])),
  });
}
