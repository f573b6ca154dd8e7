/** What can be done to a stream: create, write a test transaction, alter, purge, delete. */
import { patch, path, post, remove } from "../api.js";
import { consequences, field, formDialog } from "../dialog.js";
import { bytes, count, parseDuration, ttl, whole } from "../format.js";
import { h, put } from "../h.js";
import { go, href } from "../router.js";
import { absolute, parsePoint, timeOfId } from "../time.js";

/** Asks for a stream to be made, and goes there. */
export function createStreamDialog() {
  const name = h("input", { type: "text", autocomplete: "off", spellcheck: "false", maxlength: "255" });
  const partitions = h("input", { type: "number", min: "1", max: "65536", value: "1" });
  const kept = h("input", { type: "text", value: "7d" });
  const description = h("input", { type: "text", autocomplete: "off" });
  formDialog({
    title: "Create a stream",
    body: [
      field("Name", name),
      h("div", { class: "fields" }, field("Partitions", partitions, "The unit of order. It cannot be changed later."), field("Keep data for", kept, "For example 90s, 36h or 7d.")),
      field("Description", description),
    ],
    confirm: "Create stream",
    ready: () => name.value !== "" && Number.isInteger(Number(partitions.value)) && Number(partitions.value) >= 1 && parseDuration(kept.value) !== null,
    async submit() {
      const made = await post("v1/streams", { name: name.value, partitions: Number(partitions.value), ttl_seconds: parseDuration(kept.value), description: description.value });
      setTimeout(() => go(href(["streams", made.name])));
      return `${made.name} was created.`;
    },
  });
}

/** @param {any} stream @param {string | null} tag @param {() => void} done */
export function alterDialog(stream, tag, done) {
  const kept = h("input", { type: "text", value: ttl(stream.ttl_seconds) });
  const description = h("input", { type: "text", autocomplete: "off", value: stream.description });
  const warning = h("div");
  const warn = () => {
    const seconds = parseDuration(kept.value);
    const shorter = seconds !== null && seconds < stream.ttl_seconds;
    put(warning, shorter && h("div", { class: "notice warn" }, h("div", null, `Whatever is older than ${ttl(seconds)} will be dropped, for all consumers.`)));
  };
  kept.addEventListener("input", warn);
  formDialog({
    title: `Change ${stream.name}`,
    body: [field("Keep data for", kept, "For example 90s, 36h or 7d."), warning, field("Description", description)],
    confirm: "Save",
    ready: () => parseDuration(kept.value) !== null,
    async submit() {
      await patch(path("v1", "streams", stream.name), { ttl_seconds: parseDuration(kept.value), description: description.value }, tag);
      done();
      return `${stream.name} was changed.`;
    },
  });
}

/** @param {any} stream @param {string | null} tag @param {() => void} done */
export function purgeDialog(stream, tag, done) {
  const point = h("input", { type: "text", autocomplete: "off", placeholder: "1h ago" });
  const says = h("div", { class: "stack" });
  const show = () => {
    const where = parsePoint(point.value);
    if (!where) return put(says, point.value !== "" && h("div", { class: "notice warn" }, h("div", null, "That is neither a time nor the id of a transaction.")));
    const time = "time" in where ? new Date(where.time) : timeOfId(where.id);
    put(says, consequences(
      `Every transaction of ${stream.name} that was opened before ${absolute(time, { zone: true })} is dropped, in all ${count(stream.partitions, "partition")}.`,
      "Consumers that have not read them never will. Those that are further on notice nothing.",
      "This cannot be undone.",
    ));
  };
  point.addEventListener("input", show);
  formDialog({
    title: `Purge ${stream.name}`,
    body: [field("Drop what was opened before", point, "A time (2026-01-31 08:00, 08:00, 1h ago) or the id of a transaction."), says],
    confirm: "Purge",
    danger: true,
    ready: () => parsePoint(point.value) !== null,
    async submit() {
      await post(path("v1", "streams", stream.name, "purge"), { before: parsePoint(point.value) }, tag);
      done();
      return `${stream.name} was purged.`;
    },
  });
}

/** @param {any} stream @param {string | null} tag */
export function deleteDialog(stream, tag) {
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const size = stream.size;
  formDialog({
    title: `Delete ${stream.name}?`,
    body: [
      consequences(
        size ? `${size.exact ? "" : "At least "}${whole(size.transactions)} transactions with ${whole(size.items)} items (${bytes(size.bytes)}) are dropped.` : "All its transactions are dropped.",
        stream.consumers > 0 && `The positions of its ${count(stream.consumers, "consumer")} are forgotten.`,
        stream.open_transactions > 0 && `${count(stream.open_transactions, "open transaction")} will be lost: their producers are told so.`,
        "This cannot be undone.",
      ),
      field("Type its name to confirm", typed),
    ],
    confirm: "Delete stream",
    danger: true,
    ready: () => typed.value === stream.name,
    async submit() {
      await remove(path("v1", "streams", stream.name), tag);
      setTimeout(() => go(href(["streams"])));
      return `${stream.name} was deleted.`;
    },
  });
}

/** @param {any} stream @param {(made: any) => void} done */
export function produceDialog(stream, done) {
  const text = h("textarea", { rows: "6", spellcheck: "false", placeholder: stream.typed ? '{"column": 1}' : "One item per line" });
  const kind = h("select", null, ...(stream.typed ? [["json", "JSON objects, one per line"]] : [["text", "Text, one item per line"], ["json", "JSON, one value per line"], ["base64", "Base64, one item per line"]]).map(([value, label]) => h("option", { value }, label)));
  const place = h("input", { type: "text", autocomplete: "off", placeholder: "0" });
  const by = h("select", null, h("option", { value: "partition" }, "Partition"), h("option", { value: "key" }, "Key"));
  const lines = () => text.value.split("\n").filter((/** @type {string} */ line) => line !== "");
  formDialog({
    title: `Write a test transaction to ${stream.name}`,
    body: [
      field("Items", text),
      h("div", { class: "fields" }, field("They are", kind), h("div", { class: "fields" }, field("Where", by), field("Which", place))),
      consequences("The items become one transaction, which is checkpointed at once: all consumers of the stream will read it."),
    ],
    confirm: "Write",
    ready: () => lines().length > 0,
    async submit() {
      const items = lines().map((/** @type {string} */ line) => ({ [kind.value]: kind.value === "json" ? parseLine(line) : line }));
      const where = place.value === "" ? {} : by.value === "key" ? { key: place.value } : { partition: Number(place.value) };
      const made = await post(path("v1", "streams", stream.name, "transactions"), { items, ...where });
      done(made);
      return `Transaction ${made.id} was written to partition ${made.partition}.`;
    },
  });
}

/** @param {string} line */
function parseLine(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    throw new Error(`This line is not JSON: ${line} (${/** @type {Error} */ (error).message})`, { cause: error });
  }
}
