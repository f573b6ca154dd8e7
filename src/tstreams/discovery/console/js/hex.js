/** Bytes as people look at them: sixteen a line, with their place, and what is text among them. */

const LINE = 16;

/** @param {string} digits two for each byte @returns {string} */
export function hexDump(digits) {
  const lines = [];
  for (let at = 0; at < digits.length; at += 2 * LINE) {
    const pairs = digits.slice(at, at + 2 * LINE).match(/../g) ?? [];
    const text = pairs.map((pair) => printable(Number.parseInt(pair, 16))).join("");
    const shown = `${pairs.slice(0, LINE / 2).join(" ")}  ${pairs.slice(LINE / 2).join(" ")}`;
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${shown.padEnd(3 * LINE)}  ${text}`);
  }
  return lines.join("\n");
}

/** @param {number} byte */
function printable(byte) {
  return byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·";
}
