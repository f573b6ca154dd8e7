/** The REST interface, as the console uses it. Paths are relative, so it works behind any prefix. */

/** What the server said about a request that it did not do (RFC 9457), or that it could not be asked. */
export class Problem extends Error {
  /** @param {{ status: number, title: string, detail: string, code: string }} fields */
  constructor({ status, title, detail, code }) {
    super(detail || title);
    this.name = "Problem";
    this.status = status;
    this.title = title;
    this.code = code;
  }
}

/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

/** A path of names and numbers; names are percent-encoded. @param {...(string | number)} parts */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(String(part))).join("/");
}

/** @param {string} where @param {Query} [query] */
export function address(where, query = {}) {
  const url = new URL(where, new URL(".", document.baseURI));
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * @param {string} method
 * @param {string} where
 * @param {{ query?: Query, body?: unknown, signal?: AbortSignal, tag?: string | null }} [options]
 * @returns {Promise<{ data: any, tag: string | null }>}
 */
async function send(method, where, { query, body, signal, tag } = {}) {
  const headers = /** @type {Record<string, string>} */ ({ Accept: "application/json" });
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (tag) headers["If-Match"] = tag;
  let response;
  try {
    response = await fetch(address(where, query), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ status: 0, title: "No answer", code: "unreachable", detail: "The front door does not answer. Is `tstreams serve` running?" });
  }
  if (!response.ok) throw await problemOf(response);
  const data = response.status === 204 ? null : await response.json();
  return { data, tag: response.headers.get("ETag") };
}

/** @param {Response} response */
async function problemOf(response) {
  let told = /** @type {any} */ ({});
  try {
    told = await response.json();
  } catch {
    // Not from our server: something between it and the browser answered.
  }
  return new Problem({
    status: response.status,
    title: told.title ?? response.statusText,
    detail: told.detail ?? `HTTP ${response.status} ${response.statusText}`,
    code: told.code ?? "",
  });
}

/** @param {string} where @param {Query} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(where, query, signal) {
  return (await send("GET", where, { query, signal })).data;
}

/** With its entity tag, for a later change. @param {string} where @param {AbortSignal} [signal] */
export function getTagged(where, signal) {
  return send("GET", where, { signal });
}

/** @param {string} where @param {unknown} body @param {string | null} [tag] @returns {Promise<any>} */
export async function post(where, body, tag) {
  return (await send("POST", where, { body, tag })).data;
}

/** @param {string} where @param {unknown} body @param {string | null} [tag] @returns {Promise<any>} */
export async function patch(where, body, tag) {
  return (await send("PATCH", where, { body, tag })).data;
}

/** @param {string} where @param {string | null} [tag] */
export async function remove(where, tag) {
  await send("DELETE", where, { tag });
}
