/** The frame: navigation, search, health, and the switches for theme and time. */
import { get } from "./api.js";
import { h, put } from "./h.js";
import { icon } from "./icons.js";
import { showKeys } from "./keyboard.js";
import { link, on } from "./live.js";
import { current, go, href, rename } from "./router.js";
import { setTheme, setZone, settings } from "./settings.js";
import { repeat } from "./states.js";

const SECTIONS = /** @type {[string, [string, string][]][]} */ ([
  ["Data", [["overview", "Overview"], ["streams", "Streams"], ["consumers", "Consumers"], ["open", "Open transactions"], ["jobs", "Jobs"]]],
  ["Node", [["ledgers", "Ledgers and disk"], ["nodes", "Nodes"], ["sessions", "Sessions"], ["config", "Configuration"]]],
]);
const SEARCH_WAIT_MS = 180;

/** @returns {{ element: HTMLElement, main: HTMLElement, search: HTMLInputElement, mark: (section: string) => void }} */
export function createShell() {
  const opened = h("span", { class: "count", hidden: true });
  const links = new Map();
  const nav = h("nav", { class: "nav", "aria-label": "Pages" }, SECTIONS.map(([title, pages]) => [
    h("div", { class: "nav-title", "aria-hidden": "true" }, title),
    pages.map(([section, text]) => {
      const item = h("a", { href: href([section]) }, icon(/** @type {any} */ (section)), text, section === "open" && opened);
      links.set(section, item);
      return item;
    }),
  ]));
  on("statistics", (told) => {
    opened.hidden = told.oldest_open_seconds < 10;
    put(opened, String(told.open_transactions));
    opened.setAttribute("title", "Some have been open for more than 10 s");
  });
  const version = h("div", { class: "side-foot" });
  void get("v1/nodes", { limit: 20 }).then((page) => { const known = page.items.find((/** @type {any} */ it) => it.version); if (known) put(version, `tstreams ${known.version}`); }, () => {});
  const search = createSearch();
  const main = h("main", { class: "main", id: "main", tabindex: "-1" });
  const element = h(
    "div",
    { class: "shell" },
    h("aside", { class: "side", "aria-label": "tstreams" }, h("a", { class: "brand", href: href(["overview"]) }, h("img", { src: "icon.svg", alt: "", width: 24, height: 24 }), "tstreams"), nav, version),
    h("div", null, h("header", { class: "bar" }, search.element, h("div", { class: "bar-tools" }, pulse(), zoneSwitch(), themeSwitch(), keysButton())), main),
  );
  return {
    element,
    main,
    search: search.input,
    mark(section) {
      for (const [name, item] of links) {
        if (name === section) item.setAttribute("aria-current", "page");
        else item.removeAttribute("aria-current");
      }
      links.get(section)?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
      if (document.activeElement !== search.input) search.input.value = section === "streams" ? current().query.get("search") ?? "" : "";
    },
  };
}

/** Searches streams from everywhere: what is typed is the address of the list. */
function createSearch() {
  let timer = 0;
  const input = h("input", { type: "search", "aria-label": "Search streams", placeholder: "Search streams", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" });
  const find = () => {
    const where = href(["streams"], { search: input.value });
    const listed = current().parts.join("/") === "streams";
    if (listed) {
      rename(where);
      window.dispatchEvent(new CustomEvent("search", { detail: input.value }));
    } else if (input.value !== "") {
      go(where);
    }
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = window.setTimeout(find, SEARCH_WAIT_MS);
  });
  input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter") {
      clearTimeout(timer);
      find();
    }
    if (event.key === "Escape" && input.value !== "") {
      input.value = "";
      find();
    }
    if (event.key === "ArrowDown") {
      event.preventDefault();
      /** @type {HTMLElement | null} */ (document.querySelector("main tbody a, main tbody button"))?.focus();
    }
  });
  return { input, element: h("div", { class: "search", role: "search" }, icon("search", 16), input, h("kbd", { "aria-hidden": "true" }, "/")) };
}

/** Whether the server works, and whether we hear of it. */
function pulse() {
  const label = h("span", { class: "label" }, "Connecting");
  const element = h("span", { class: "state pulse small", role: "status" }, label);
  let health = /** @type {any} */ (null);
  let available = true;
  const show = () => {
    const [kind, text, more] = describe(health, available);
    element.className = `state pulse small ${kind}`;
    element.setAttribute("title", more);
    put(label, text);
  };
  on("link", show);
  on("statistics", (told) => {
    available = told.available;
    show();
  });
  repeat(10, async () => {
    health = await get("health/ready");
    show();
  }, new AbortController().signal, (error) => {
    health = { status: "failing", checks: { ready: error.message } };
    show();
  });
  return element;
}

/** @param {any} health @param {boolean} available @returns {[string, string, string]} */
function describe(health, available) {
  if (link === "lost") return ["bad", "No connection", "The front door does not answer. Values are those from before."];
  const checks = Object.entries(health?.checks ?? {}).map(([name, found]) => `${name}: ${found}`).join("\n");
  if (!available || health?.status === "failing") return ["bad", "Failing", checks || "The storage server does not answer."];
  if (link === "connecting") return ["", "Connecting", ""];
  return ["good", "Live", checks];
}

function themeSwitch() {
  const order = /** @type {import("./settings.js").Theme[]} */ (["auto", "light", "dark"]);
  const icons = /** @type {const} */ ({ auto: "auto", light: "sun", dark: "moon" });
  const button = h("button", { type: "button", class: "button quiet icon", id: "theme" });
  const show = () => {
    const text = settings.theme === "auto" ? "as the system" : settings.theme;
    button.setAttribute("aria-label", `Theme: ${text}`);
    button.setAttribute("title", `Theme: ${text}`);
    button.replaceChildren(icon(icons[settings.theme]));
  };
  button.addEventListener("click", () => {
    setTheme(order[(order.indexOf(settings.theme) + 1) % order.length]);
    show();
  });
  show();
  return button;
}

function zoneSwitch() {
  const button = h("button", { type: "button", class: "button quiet small", id: "zone" });
  const show = () => {
    const utc = settings.zone === "utc";
    put(button, utc ? "UTC" : "Local");
    button.setAttribute("aria-label", `Times: ${utc ? "UTC" : "local"}`);
    button.setAttribute("title", utc ? "Times are in UTC" : `Times are local: ${Intl.DateTimeFormat().resolvedOptions().timeZone}`);
  };
  button.addEventListener("click", () => {
    setZone(settings.zone === "utc" ? "local" : "utc");
    show();
  });
  show();
  return button;
}

function keysButton() {
  return h("button", { type: "button", class: "button quiet icon", "aria-label": "Keys", title: "Keys (?)", onclick: showKeys }, icon("help"));
}
