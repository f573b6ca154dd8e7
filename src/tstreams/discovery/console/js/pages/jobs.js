/** Jobs: work of many processes that one coordinator commits step by step. Spark queries are such. */
import { whole } from "../format.js";
import { h } from "../h.js";
import { pageHead } from "../head.js";
import { createListing } from "../listing.js";
import { empty } from "../states.js";
import { ago } from "../time.js";

/** @type {import("../router.js").Page} */
export function jobsPage({ root, signal, title }) {
  title("Jobs");
  const listing = createListing({
    where: "v1/jobs",
    caption: "Jobs",
    signal,
    key: (row) => row.name,
    empty: () => empty("No job has committed a step", "A Spark query that writes to a stream appears here after its first micro-batch."),
    columns: [
      { title: "Job", cell: (row) => h("span", { class: "name", title: row.name }, row.name), sort: (row) => row.name },
      { title: "Last step", number: true, width: "120px", cell: (row) => whole(row.last_step), sort: (row) => row.last_step },
      { title: "Committed", number: true, width: "140px", cell: (row) => ago(row.committed, "not known"), sort: (row) => row.committed ?? "" },
    ],
  });
  root.append(pageHead({ title: "Jobs", text: "Transactions of many processes that are committed together, step by step: Spark queries, for example. What a query reads is under Consumers, if it names itself there with the option consumer." }), h("div", { class: "card" }, listing.element));
}
