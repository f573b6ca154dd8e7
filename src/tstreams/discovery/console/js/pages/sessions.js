/** The sessions of clients. */
import { whole } from "../format.js";
import { h } from "../h.js";
import { pageHead } from "../head.js";
import { createListing } from "../listing.js";
import { empty } from "../states.js";
import { ago } from "../time.js";

/** @type {import("../router.js").Page} */
export function sessionsPage({ root, signal, title }) {
  title("Sessions");
  const listing = createListing({
    where: "v1/sessions",
    caption: "Sessions",
    signal,
    key: (row) => row.id,
    empty: () => empty("No client is connected", "A session begins when a program connects, and ends some time after its last sign of life."),
    foot: (rows, complete) => `${whole(rows.length)}${complete ? " in all" : " shown"}`,
    columns: [
      { title: "Session", cell: (row) => h("span", { class: "mono" }, row.id), sort: (row) => row.id.padStart(20, "0") },
      { title: "Last sign of life", number: true, cell: (row) => ago(row.seen), sort: (row) => row.seen ?? "" },
      { title: "Ends if silent", number: true, cell: (row) => ago(row.expires), rank: "middle" },
      { title: "Agents", number: true, width: "100px", cell: (row) => whole(row.agents), sort: (row) => row.agents },
      { title: "Changes asked for", number: true, width: "150px", cell: (row) => whole(row.requests), sort: (row) => row.requests, rank: "middle" },
    ],
  });
  root.append(pageHead({ title: "Sessions", text: "A program that uses the client has one. When it ends, what it left open is cancelled." }), h("div", { class: "card" }, listing.element));
}
