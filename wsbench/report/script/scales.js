// Scales from values to pixels, linear or logarithmic, and their ticks.

function scale(domain, range, log) {
  const [low, high] = log ? domain.map(Math.log10) : domain;
  const span = high - low || 1;
  const to = (value) => range[0] + (((log ? Math.log10(value) : value) - low) / span) * (range[1] - range[0]);
  const back = (pixel) => {
    const value = low + ((pixel - range[0]) / (range[1] - range[0] || 1)) * span;
    return log ? 10 ** value : value;
  };
  return { to, back, domain, range, log };
}

function linearTicks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= rough * 0.999);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

// 1, 2 and 5 times each power of ten, or only the powers over a wide range.
function logTicks(low, high) {
  const steps = high < 200 * low ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const step of steps) if (step * 10 ** power >= low * 0.999 && step * 10 ** power <= high * 1.001) ticks.push(Number((step * 10 ** power).toPrecision(12)));
  return ticks;
}

// Short tick labels: 120k for 120,000.
function tickText(value, ticks) {
  const largest = Math.max(...ticks.map(Math.abs));
  const short = (size, unit) => `${Number((value / size).toPrecision(6))}${value ? unit : ""}`;
  if (largest >= 1e7) return short(1e6, "M");
  if (largest >= 1e4) return short(1e3, "k");
  return grouped(value, Math.max(0, ...ticks.map((tick) => (String(tick).split(".")[1] || "").length)));
}

// An axis that contains all values: a linear one starts at zero, a logarithmic one extends slightly beyond them.
function axisOf(values, title, { log = false, zero = true } = {}) {
  const seen = values.filter((value) => value !== null && Number.isFinite(value) && (!log || value > 0));
  let low = Math.min(...seen), high = Math.max(...seen);
  if (!seen.length) [low, high] = [log ? 1 : 0, log ? 10 : 1];
  if (log) {
    const domain = [low / 1.12, high * 1.12], ticks = logTicks(...domain);
    return { title, log, domain, ticks: ticks.length > 1 ? ticks : linearTicks(...domain, 4) };
  }
  if (zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
  if (low === high) high = low + 1;
  high += (high - low) * 0.04;
  return { title, log, domain: [low, high], ticks: linearTicks(low, high, 5) };
}

const MARK_WITHIN = 1.5; // a mark farther away than this times the largest value would squash the rest

// What is drawn as a mark: { fits } values extend the axis, the others are said in its title.
function marked(values, marks, name, text, log = false) {
  const seen = marks.filter((value) => value !== null && value !== undefined), highest = Math.max(...values), lowest = Math.min(...values);
  const fits = seen.filter((value) => value <= MARK_WITHIN * highest && (!log || value >= lowest / 10)); // a linear axis begins at zero
  const beyond = seen.length && !fits.length ? `; ${name}, beyond the scale: ${[...new Set([Math.min(...seen), Math.max(...seen)].map((value) => number(value)))].join("–")}` : "";
  return { fits, title: text + (beyond || (seen.length ? `; dashed: ${name}` : "")) };
}
