/** What a person chose, remembered by the browser. */

/** @typedef {"auto" | "light" | "dark"} Theme */
/** @typedef {"local" | "utc"} Zone */

const listeners = /** @type {Set<() => void>} */ (new Set());

/** @param {string} key @returns {string | null} */
function read(key) {
  try {
    return localStorage.getItem(`tstreams.${key}`);
  } catch {
    return null; // forbidden: choices last as long as the page
  }
}

/** @param {string} key @param {string} value */
function write(key, value) {
  try {
    localStorage.setItem(`tstreams.${key}`, value);
  } catch {
    // Forbidden: as above.
  }
}

const kept = read("theme");
export const settings = {
  theme: /** @type {Theme} */ (kept === "light" || kept === "dark" ? kept : "auto"),
  zone: /** @type {Zone} */ (read("zone") === "utc" ? "utc" : "local"),
};

/** @param {Theme} theme */
export function setTheme(theme) {
  settings.theme = theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  write("theme", theme);
  for (const listener of listeners) listener();
}

/** @param {Zone} zone */
export function setZone(zone) {
  settings.zone = zone;
  write("zone", zone);
  for (const listener of listeners) listener();
}

/** Calls back after each change. @param {() => void} listener @param {AbortSignal} [signal] */
export function onSettings(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener));
}
