/**
 * Builds elements. Text is only ever set as text, so whatever a stream is called, or holds, stays text.
 *
 * @typedef {Node | string | number | null | undefined | false | any[]} Child `any[]`: such parts, one level down
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element: `h("a", { href: "#/streams", onclick: go }, "Streams")`.
 *
 * Functions become listeners, `style` and `dataset` take objects, false and null leave an attribute out.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * An element of a drawing.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** @param {any} element @param {Record<string, any> | null | undefined} attributes @param {Child[]} children */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, String(text));
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** @param {Element} element @param {Child[]} children */
function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Replaces what is in an element, unless it is the same already: then focus and selection stay.
 *
 * @param {Element} element
 * @param {...Child} children
 */
export function put(element, ...children) {
  if (children.length === 1 && typeof children[0] === "string") {
    if (element.childElementCount === 0 && element.textContent === children[0]) return;
  }
  const holder = document.createElement("div");
  append(holder, children);
  if (holder.childNodes.length === element.childNodes.length) {
    let same = true;
    for (let i = 0; same && i < holder.childNodes.length; i += 1) same = holder.childNodes[i].isEqualNode(element.childNodes[i]);
    if (same) return;
  }
  element.replaceChildren(...holder.childNodes);
}
