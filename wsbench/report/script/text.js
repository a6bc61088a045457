// Texts: numbers in the report's format (three digits, as in wording.py), and escaping of all foreign text.
"use strict";

const NONE = "–";
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function esc(text) {
  return String(text).replace(/[&<>"']/g, (found) => ESCAPES[found]);
}

// Digits in groups of three with `places` decimals; Intl is slow for ten thousand numbers.
function grouped(value, places) {
  const [whole, part] = Math.abs(value).toFixed(places).split(".");
  const sign = value < 0 ? "-" : "";
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? "." + part : "");
}

// Rounded to `digits` significant digits; counts below 10,000 keep all digits.
function number(value, digits = 3, counts = false) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  if (counts && Number.isInteger(value) && Math.abs(value) < 10000) return grouped(value, 0);
  const rounded = Number(value.toPrecision(digits));
  const places = digits - 1 - Math.floor(Math.log10(Math.abs(rounded)));
  return grouped(rounded, Math.max(0, places));
}

function between(low, high) {
  const alike = number(low) === number(high) && number(low, 4) !== number(high, 4);
  return `${number(low, alike ? 4 : 3)}–${number(high, alike ? 4 : 3)}`;
}

// A metric's value in its display unit.
function shown(metric, value) {
  return value === null || value === undefined ? null : metric.size === 1 ? value : value / metric.size;
}

function shownText(metric, value) {
  return number(shown(metric, value), 3, metric.unit === "count");
}

// A row's estimate in the metric's display unit. `open`: ≥ or ≤ where `mean` is only a bound;
// `text`: the number, undefined if there is none.
function estimateOf(metric, found) {
  if (!found) return { mean: null, low: null, high: null };
  const known = found[0] !== null;
  const [bound, value] = known ? [found[4] ? "≥" : "", found[0]] : [found[2] || "", found[3] ?? null];
  const [low, high] = known ? [found[1], found[2]] : [null, null];
  const text = value === null ? undefined : `${bound} ${shownText(metric, value)}`.trim();
  return { mean: shown(metric, value), low: shown(metric, low), high: shown(metric, high), open: !known && bound, text };
}

// A time in a suitable unit.
function time(ns) {
  if (ns === null || ns === undefined) return NONE;
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (ns >= size) return `${number(ns / size)} ${unit}`;
  return `${number(ns)} ns`;
}

function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (value >= size) return `${number(value / size)} ${unit}`;
  return `${number(value)} B`;
}

function quantile(x) {
  const percent = 100 * (1 - 1 / x);
  const nines = Math.max(0, Math.ceil(Math.log10(x)) - 1);
  return `${Number(percent.toFixed(Math.max(1, nines)))} %`;
}

function four(number_) {
  return String(number_).padStart(4, "0");
}

function listed(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

function plural(count, noun) {
  return `${grouped(count, 0)} ${noun}${count === 1 ? "" : "s"}`;
}
