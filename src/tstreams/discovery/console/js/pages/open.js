/** Open transactions: whose they are, how old, and who waits behind them. */
import { path, post } from "../api.js";
import { consequences, formDialog } from "../dialog.js";
import { count, duration, whole } from "../format.js";
import { h } from "../h.js";
import { pageHead, streamLink } from "../head.js";
import { createListing } from "../listing.js";
import { empty } from "../states.js";
import { ago } from "../time.js";

/** Older ones are probably stuck: a transaction's lease is seconds. */
const OLD_S = 30;

/** @type {import("../router.js").Page} */
export function openPage({ root, signal, title }) {
  title("Open transactions");
  const listing = createListing({
    where: "v1/transactions/open",
    caption: "Open transactions, the oldest first",
    signal,
    seconds: 2,
    key: (row) => `${row.id} ${row.stream} ${row.partition}`,
    empty: () => empty("No transaction is open", "Everything that was begun has been checkpointed, cancelled, or has run out of time. Nobody is held back."),
    columns: openColumns({ withStream: true, refresh: () => void listing.refresh() }),
  });
  root.append(pageHead({ title: "Open transactions", text: "The oldest first. Readers of a partition wait behind its first open transaction: an old one with an owner that gives no sign of life is stuck." }), h("div", { class: "card" }, listing.element));
}

/** @param {{ withStream: boolean, refresh: () => void }} options @returns {import("../table.js").Column[]} */
export function openColumns({ withStream, refresh }) {
  const stream = /** @type {import("../table.js").Column} */ ({ title: "Stream", cell: (row) => streamLink(row.stream), sort: (row) => row.stream });
  return [
    { title: "Age", width: "104px", cell: (row) => h("span", { class: row.first && row.age_seconds >= OLD_S ? "state warn" : "state" }, duration(row.age_seconds)), sort: (row) => -row.age_seconds },
    ...(withStream ? [stream] : []),
    { title: "Partition", number: true, width: "84px", cell: (row) => String(row.partition), sort: (row) => row.partition, rank: "middle" },
    { title: "Owner", cell: (row) => [h("span", { class: "name", title: `${row.owner.kind} ${row.owner.name}, session ${row.owner.session}` }, row.owner.name), " ", h("span", { class: "tag" }, row.staged ? "staged" : row.owner.kind)], sort: (row) => row.owner.name },
    { title: "Sign of life", number: true, width: "108px", cell: (row) => ago(row.owner.seen, "unknown"), rank: "low" },
    { title: "Items", number: true, width: "76px", cell: (row) => whole(row.items), sort: (row) => row.items, rank: "middle" },
    { title: "Expires", number: true, width: "92px", cell: (row) => ago(row.expires, "never"), rank: "middle" },
    { title: "Holds back", width: "140px", cell: (row) => heldBack(row), rank: "low" },
    { title: "Action", hidden: true, number: true, width: "92px", cell: (row, now) => h("button", { type: "button", class: "button small danger", "aria-label": `Cancel transaction ${row.id}`, onclick: () => cancelDialog(now(), refresh) }, "Cancel") },
  ];
}

/** @param {any} row */
function heldBack(row) {
  if (!row.first) return h("span", { class: "muted" }, "waits itself");
  if (row.held_back.length === 0) return h("span", { class: "muted" }, "nobody");
  const names = row.held_back.join(", ");
  return h("span", { class: "tag warn", title: names }, row.held_back.length === 1 ? names : `${row.held_back.length} consumers`);
}

/** @param {any} row @param {() => void} refresh */
function cancelDialog(row, refresh) {
  formDialog({
    title: "Cancel this transaction?",
    body: [
      consequences(
        `${row.id} in ${row.stream}, partition ${row.partition}, has been open for ${duration(row.age_seconds)}. ${row.items === 0 ? "None of its items has reached the server." : `Its ${count(row.items, "item")} will never be read by anyone.`}`,
        row.staged ? "It was handed over to a job: the job’s step that commits it will fail." : `Its owner, the ${row.owner.kind} ${row.owner.name}, is told that an operator cancelled it.`,
        row.first && (row.held_back.length ? `These can go on: ${row.held_back.join(", ")}.` : "Readers of the partition can go on."),
        "This cannot be undone.",
      ),
    ],
    confirm: "Cancel transaction",
    danger: true,
    async submit() {
      await post(`${path("v1", "transactions", "open", row.id, "cancel")}?${new URLSearchParams({ stream: row.stream, partition: row.partition })}`, undefined);
      refresh();
      return `Transaction ${row.id} was cancelled.`;
    },
  });
}
