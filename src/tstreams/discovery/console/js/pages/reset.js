/** Resetting a consumer: what the server says would happen is what has to be confirmed. */
import { path, post } from "../api.js";
import { field, formDialog } from "../dialog.js";
import { atLeast, count, whole } from "../format.js";
import { h, put } from "../h.js";
import { failure, sentence } from "../states.js";
import { absolute, parsePoint, timeOfId } from "../time.js";

const WAIT_MS = 250;

/** @param {any} consumer @param {string | null} tag @param {() => void} done */
export function resetDialog(consumer, tag, done) {
  const where = path("v1", "streams", consumer.stream, "consumers", consumer.name, "reset");
  let target = "oldest";
  /** @type {any} What the last dry run said, or null. */
  let plan = null;
  let turn = 0;
  let timer = 0;

  const point = h("input", { type: "text", "aria-label": "Time or id", placeholder: "18:30, 2026-01-31 08:00, 1h ago, or an id", autocomplete: "off", disabled: true });
  const only = h("input", { type: "text", autocomplete: "off", placeholder: "All" });
  const force = h("input", { type: "checkbox", id: "reset-force" });
  const forceLine = h("div", { class: "notice warn", hidden: true }, h("div", { class: "check" }, force, h("label", { for: "reset-force" }, "Somebody reads under this name now. Take it away: that program’s next checkpoint is refused.")));
  const preview = h("div", { class: "reset-preview", role: "status" });

  /** @returns {any} the body of the request, or null if the form is not filled in */
  function asked() {
    const partitions = parsePartitions(only.value);
    const to = target === "point" ? parsePoint(point.value) : target;
    return to === null || partitions === undefined ? null : { to, partitions };
  }

  async function dryRun() {
    turn += 1;
    const mine = turn;
    plan = null;
    dialog.refresh();
    const body = asked();
    if (!body) return put(preview, h("p", { class: "reset-summary muted" }, target === "point" ? "Say a time, or the id of a transaction." : "Partitions are numbers: 0, 2-5."));
    try {
      const said = await post(where, { ...body, dry_run: true, force: true });
      if (mine !== turn) return;
      plan = said;
      forceLine.hidden = !said.live;
      put(preview, planView(said));
    } catch (error) {
      if (mine === turn) put(preview, h("div", { class: "card-body" }, failure(error, () => void dryRun())));
    }
    dialog.refresh();
  }

  const soon = () => {
    plan = null;
    clearTimeout(timer);
    timer = window.setTimeout(() => void dryRun(), WAIT_MS);
  };
  const choices = /** @type {[string, string][]} */ ([["oldest", "The oldest: read everything again"], ["newest", "The newest: skip what is there now"], ["point", "A time or an id"]]).map(([value, label]) => {
    const radio = h("input", { type: "radio", name: "reset-to", value, id: `reset-${value}`, checked: value === target, onchange: () => { target = value; point.disabled = value !== "point"; if (value === "point") point.focus(); soon(); } });
    return h("div", { class: "check" }, radio, h("label", { for: `reset-${value}` }, label));
  });
  point.addEventListener("input", soon);
  only.addEventListener("input", soon);

  const dialog = formDialog({
    title: `Reset the offset of ${consumer.name}`,
    wide: true,
    danger: true,
    confirm: "Reset offset",
    body: [
      h("div", { class: "fields" }, h("fieldset", null, h("legend", null, `Go on in ${consumer.stream} from`), choices, point), field("Only in partitions", only, "For example 0, 2-5. Empty: all.")),
      h("div", { class: "field" }, h("span", { class: "label" }, "What will happen"), preview),
      forceLine,
    ],
    ready: () => plan !== null && plan.partitions.some((/** @type {any} */ part) => part.direction !== "none") && (!plan.live || force.checked),
    async submit() {
      const said = await post(where, { ...asked(), force: force.checked }, plan.live ? null : tag);
      done();
      return sentence(said.summary);
    },
  });
  put(preview, h("p", { class: "reset-summary muted" }, "Asking the server …"));
  void dryRun();
}

/** @param {any} plan */
function planView(plan) {
  return [
    h("p", { class: "reset-summary" }, sentence(plan.summary)),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "What happens in each partition" },
      h(
        "table",
        { class: "rows-table" },
        h("thead", null, h("tr", null, ["Partition", "From", "To", "What happens"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, plan.partitions.map((/** @type {any} */ part) => h("tr", null, h("td", null, String(part.partition)), h("td", null, position(part.before)), h("td", null, position(part.after)), h("td", null, outcome(part))))),
      ),
    ),
  ];
}

/** @param {string | null} id */
function position(id) {
  return id === null || id === "0" ? "the beginning" : h("span", { title: id }, absolute(timeOfId(id), { ms: true }));
}

/** @param {any} part */
function outcome(part) {
  if (part.direction === "none") return "stays where it is";
  const what = `${atLeast(count(part.transactions, "transaction"), part.exact)} (${whole(part.items)} items)`;
  return part.direction === "back" ? `reads ${what} again` : `never reads ${what}`;
}

/**
 * Numbers and ranges; null is all, undefined is nonsense.
 *
 * @param {string} text
 * @returns {number[] | null | undefined}
 */
function parsePartitions(text) {
  if (text.trim() === "") return null;
  const found = new Set();
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,5})(?:\s*-\s*(\d{1,5}))?\s*$/.exec(part);
    if (!match) return undefined;
    const last = Number(match[2] ?? match[1]);
    for (let each = Number(match[1]); each <= last && found.size <= 1024; each += 1) found.add(each);
  }
  return [...found].sort((a, b) => a - b);
}
