/** Starts the console: the frame, the pages, and the connection that feeds them. */
import { startKeyboard } from "./keyboard.js";
import { startLive } from "./live.js";
import { startRouter } from "./router.js";
import { createShell } from "./shell.js";
import { empty } from "./states.js";
import { h } from "./h.js";
import { startClock } from "./time.js";
import { configPage } from "./pages/config.js";
import { consumerPage } from "./pages/consumer.js";
import { consumersPage } from "./pages/consumers.js";
import { jobsPage } from "./pages/jobs.js";
import { ledgersPage } from "./pages/ledgers.js";
import { nodesPage } from "./pages/nodes.js";
import { openPage } from "./pages/open.js";
import { overviewPage } from "./pages/overview.js";
import { sessionsPage } from "./pages/sessions.js";
import { streamPage } from "./pages/stream.js";
import { streamsPage } from "./pages/streams.js";

/** @typedef {import("./router.js").Page} Page */

const PAGES = /** @type {Record<string, Page>} */ ({
  overview: overviewPage,
  streams: streamsPage,
  consumers: consumersPage,
  open: openPage,
  ledgers: ledgersPage,
  nodes: nodesPage,
  sessions: sessionsPage,
  jobs: jobsPage,
  config: configPage,
});

/** @param {string[]} parts */
function match(parts) {
  const [section = "overview", name, part, other] = parts;
  if (section === "streams" && name !== undefined) {
    if (part === "consumers" && other !== undefined) return { page: consumerPage, params: [name, other], section: "consumers" };
    if (part === undefined) return { page: streamPage, params: [name], section };
  }
  const page = name === undefined ? PAGES[section] : undefined;
  return page ? { page, params: [], section } : { page: lostPage, params: [], section: "" };
}

/** @type {Page} */
function lostPage({ root, title }) {
  title("Not found");
  root.append(h("h1", null, "There is no such page"), h("div", { class: "card" }, empty("Nothing lives at this address", h("a", { class: "button", href: "#/overview" }, "Go to the overview"))));
}

const shell = createShell();
document.getElementById("app")?.append(shell.element);
document.getElementById("skip")?.addEventListener("click", (event) => {
  event.preventDefault();
  shell.main.focus();
});
startClock();
startLive();
startKeyboard({ search: shell.search });
startRouter(shell.main, {
  match,
  shown(section, moved) {
    shell.mark(section);
    if (!moved || document.activeElement === shell.search) return;
    window.scrollTo(0, 0);
    shell.main.focus({ preventScroll: true });
  },
});
