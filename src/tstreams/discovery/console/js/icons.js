/** Icons, as lines of one width. */
import { svg } from "./h.js";

const SHAPES = {
  overview: "M3 12h3l2.2-7 3.6 12L14 9l1.2 3H17",
  streams: "M3 6c3-3 4.5 2 7 0s4-3 7 0M3 10.500c3-3 4.5 2 7 0s4-3 7 0M3 15c3-3 4.5 2 7 0s4-3 7 0",
  consumers: "M4 4v12M8 10h8m-3.2-3.200L16 10l-3.2 3.2",
  open: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14M10 6v4.300l2.8 1.7",
  ledgers: "M4 5.500C4 4.1 6.7 3 10 3s6 1.1 6 2.500S13.3 8 10 8 4 6.9 4 5.500v9C4 15.9 6.7 17 10 17s6-1.1 6-2.500v-9M4 10c0 1.4 2.7 2.5 6 2.500s6-1.1 6-2.5",
  nodes: "M4 3.500h12v5H4zM4 11.500h12v5H4zM7 6h.01M7 14h.01",
  sessions: "M7.5 9a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5M3 16c.4-2.7 2.2-4.2 4.5-4.200S11.6 13.3 12 16M13 4.400a2.3 2.3 0 0 1 0 4.400M14 12c1.7.5 2.7 1.9 3 4",
  jobs: "M5 3.500v13M5 6h6.500a3 3 0 0 1 3 3v1.500m-2.5-2 2.5 2.5 2.5-2.5",
  config: "M3 6h6m4 0h4M11 4v4M3 14h3m4 0h7M8 12v4",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4m3.7 8.700L16.5 16.5",
  close: "M5 5l10 10M15 5 5 15",
  sun: "M10 6.500a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 2v1.500M10 16.500V18M2 10h1.500M16.5 10H18M4.3 4.300l1.1 1.100M14.6 14.600l1.1 1.100M4.3 15.700l1.1-1.100M14.6 5.400l1.1-1.1",
  moon: "M16.5 11.800A7 7 0 0 1 8.2 3.500a7 7 0 1 0 8.3 8.3",
  auto: "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14",
  help: "M7.5 7.500c.2-1.5 1.2-2.3 2.6-2.3 1.5 0 2.6.9 2.6 2.3 0 2-2.7 2.1-2.7 4.300M10 14.800h.01",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
};

/** @param {keyof typeof SHAPES} name @param {number} [size] */
export function icon(name, size = 18) {
  return svg(
    "svg",
    { viewBox: "0 0 20 20", width: size, height: size, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" },
    svg("path", { d: SHAPES[name] }),
  );
}
