/**
 * Pages by the address behind the `#`: `#/streams/orders?partition=2`. So every view has an address of its own,
 * the back button works, and the server needs to know nothing of it.
 *
 * @typedef {{ params: string[], query: URLSearchParams, root: HTMLElement, signal: AbortSignal, title: (text: string) => void }} Context
 * @typedef {(context: Context) => void} Page
 */

/** The address of a page. @param {(string | number)[]} parts @param {Record<string, string | number | null | undefined>} [query] */
export function href(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return `#/${parts.map((part) => encodeURIComponent(String(part))).join("/")}${text ? `?${text}` : ""}`;
}

/** Goes to another page. @param {string} where */
export function go(where) {
  location.hash = where;
}

/** Changes the address without leaving the page. @param {string} where @param {{ push?: boolean }} [options] */
export function rename(where, { push = false } = {}) {
  if (location.hash === where) return;
  if (push) history.pushState(null, "", where);
  else history.replaceState(null, "", where);
}

/** @returns {{ parts: string[], query: URLSearchParams }} */
export function current() {
  const [path, search = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(search) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Shows the page of the address now, and whenever it changes.
 *
 * A page gets a signal that is aborted when it is left: its requests end, and its timers and listeners with it.
 *
 * @param {HTMLElement} root
 * @param {{ match: (parts: string[]) => { page: Page, params: string[], section: string }, shown: (section: string, moved: boolean) => void }} options
 */
export function startRouter(root, { match, shown }) {
  let leave = new AbortController();
  let first = true;
  const show = () => {
    leave.abort();
    leave = new AbortController();
    const { parts, query } = current();
    const { page, params, section } = match(parts);
    const body = document.createElement("div");
    body.className = "page";
    root.replaceChildren(body);
    document.title = "tstreams";
    page({ params, query, root: body, signal: leave.signal, title: (text) => { document.title = `${text} · tstreams`; } });
    shown(section, !first);
    first = false;
  };
  window.addEventListener("hashchange", () => {
    if (location.hash !== "" && !location.hash.startsWith("#/")) return; // a place on this page
    show();
  });
  show();
}
