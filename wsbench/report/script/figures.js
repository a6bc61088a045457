// Figures from a view: which chart shows which numbers. `draw.js` draws a figure; its table repeats the numbers.

const LOG_BARS = 30; // from this ratio on, a linear axis hides small values
const MARKS = [2, 10, 100, 1000];
const PERCENTILES = [1, 2, 10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 1e8];

const SECTIONS = {
  throughput: (view) => ({ figures: leadingFigures(view), note: left_out(panels(view).length, Math.min(panels(view).length, view.panels), "panels") }),
  distance: (view) => ({ figures: distanceFigures(view), note: leftCells(view) }),
  percentiles: (view) => ({ figures: curveFigures(view), note: leftCells(view) }),
  resources: (view) => ({ figures: [...costFigures(view), ...memoryFigures(view)], note: "" }),
  time: timeFigures,
};

function sections(view) {
  return Object.keys(SECTIONS).map((id) => sectionOf(view, id));
}

function sectionOf(view, id) {
  const { figures, note } = SECTIONS[id](view);
  return { id, note, figures: figures.map((figure, i) => ({ ...figure, id: `${id}-${i}` })) };
}

// The leading metric of the answer, and next to it a second one.
function leadingFigures(view) {
  const [first, second] = [view.data.roles.leading, view.data.roles.second].map((name) => metricFigures(view, name));
  return first.flatMap((figure, i) => [figure, second[i]]).concat(second.slice(first.length)).filter(Boolean);
}

function costFigures(view) {
  const names = ["server_cpu_us_per_message", "server_rss_bytes_max"].filter((name) => name !== view.data.roles.leading);
  return names.flatMap((name) => metricFigures(view, name));
}

function leftCells(view) {
  return left_out(view.cells.length, Math.min(view.cells.length, view.panels), "cells");
}

function said(title, panel, view, rows) {
  return `${title}${panel ? `, ${panel}` : ""}, for ${names(view, rows)}. The table below has the numbers.`;
}

// ---- a metric by server, or over the swept number ------------------------------------------------------------------

function metricFigures(view, name) {
  const metric = view.data.metrics[name];
  if (!metric) return [];
  const found = panels(view).slice(0, view.panels);
  const draw = view.data.axis === null || found.every(([, cells]) => cells.length === 1) ? barFigure : sweepFigure;
  return found.map(([panel, cells]) => draw(view, metric, panel, cells)).filter(Boolean);
}

function dotsOf(view, name, cell, server) {
  const { trials } = view.data;
  return trialsOf(view, cell, server).filter((i) => trials.values[name]?.[i] != null).map((i) => [shown(view.data.metrics[name], trials.values[name][i]), kindOf(trials, view.data.metrics[name], i), trials.number[i]]);
}

// The verdict of a trial on one metric, by the metric's family.
function kindOf(trials, metric, i) {
  return trials.kind[i] === FAILED ? FAILED : trials.kinds[metric.family][i];
}

function barFigure(view, metric, panel, [cell]) {
  const rows = rowsOf(view, cell).map((row) => {
    const server = view.data.servers[row.server];
    const found = estimateOf(metric, row.figures[metric.name]);
    return { ...found, text: found.text ?? "not measured", name: server.label, server: row.server, look: server.look, dots: dotsOf(view, metric.name, cell, row.server), note: row.note };
  });
  const isMark = (row) => view.data.servers[row.server].ceiling && rows.some((other) => !view.data.servers[other.server].ceiling && other.mean !== null);
  const drawn = rows.filter((row) => !isMark(row)), marks = rows.filter((row) => isMark(row));
  const values = drawn.flatMap((row) => [row.mean, row.low, row.high, ...row.dots.map(([value]) => value)]).filter((value) => value !== null);
  if (!values.length) return null;
  const cell_text = view.data.cells[cell].text;
  const axisTitle = `${metric.title} (${metric.shown})`;
  // An interval far above the highest value would compress everything else; it is cut at the edge.
  const highest = Math.max(...drawn.flatMap((row) => [row.mean, ...row.dots.map(([value]) => value)]).filter((value) => value !== null));
  const shownValues = values.map((value) => Math.min(value, 1.3 * highest));
  const { fits, title } = marked(shownValues.filter((value) => value > 0), marks.map((row) => row.mean), marks.map((row) => row.name).join(", "), axisTitle);
  const x = axisOf([...shownValues, ...fits], title);
  const table = { head: ["server", `mean (${metric.shown})`, "95 % interval", "single trials"], rows: rows.map((row) => [row.name, row.text, row.low === null ? NONE : between(row.low, row.high), row.dots.map(([value]) => number(value)).join(", ") || NONE]) };
  return { kind: "bars", title: metric.title, panel: cell_text, label: said(axisTitle, cell_text, view, rowsOf(view, cell)), rows: drawn, marks: fits, x, table, unit: metric.shown };
}

function sweepFigure(view, metric, panel, cells) {
  const { axis, keys } = view.data;
  const key = keys.find((one) => one.name === axis);
  const swept = cells.map((cell) => view.data.cells[cell].values[axis]);
  const series = [...view.servers].map((place) => {
    const server = view.data.servers[place];
    const rows = cells.map((cell) => view.estimates.get(groupKey(view.data, cell, place)));
    const estimates = rows.map((row) => estimateOf(metric, row?.figures[metric.name]));
    const points = estimates.map(({ mean, open }, i) => [swept[i], open ? null : mean]);
    const texts = estimates.map(({ low, high, text }) => (text ?? NONE) + (low === null ? "" : ` (${between(low, high)})`));
    const dots = cells.flatMap((cell, i) => dotsOf(view, metric.name, cell, place).map(([value, kind, trial]) => [swept[i], value, kind, trial]));
    return { server: place, name: server.label, look: server.look, points, intervals: estimates.map(({ low, high }, i) => [swept[i], low, high]), texts, dots };
  }).filter((one) => one.dots.length);
  const { drawn, reference } = apart(series, (one) => view.data.servers[one.server].ceiling);
  const values = drawn.flatMap((one) => one.dots.map(([, value]) => value));
  if (!values.length) return null;
  const title = `${metric.title} (${metric.shown})`;
  const table = {
    head: ["server", ...swept.map((value) => `${key.title} ${grouped(value, 0)}`)],
    rows: series.map((one) => [one.name, ...one.texts]),
  };
  const label = said(`${title} over ${key.title}`, panel, view, view.rows);
  return { kind: "panels", title: metric.title, panel, label, series: drawn, reference, x: sweptAxis(key.title, swept), y: panelAxis(values, reference, title), table, unit: metric.shown };
}

// The baseline is a mark in every panel, not a panel of its own, unless nothing else is drawn.
function apart(series, isReference) {
  const drawn = series.filter((one) => !isReference(one));
  return drawn.length ? { drawn, reference: series.find(isReference) || null } : { drawn: series, reference: null };
}

function panelAxis(values, reference, text) {
  const log = values.every((value) => value > 0) && Math.max(...values) >= LOG_BARS * Math.min(...values);
  const { fits, title } = marked(values, reference ? reference.points.map(([, mean]) => mean) : [], reference ? reference.name : "", text, log);
  return axisOf([...values, ...fits], title, { log });
}

function sweptAxis(title, swept) {
  const [low, high] = [Math.min(...swept), Math.max(...swept)];
  const log = low > 0 && high >= 10 * low;
  const margin = log ? 1.15 : (high - low) * 0.05 || 1;
  return { title, log, domain: log ? [low / margin, high * margin] : [low - margin, high + margin], ticks: swept, labels: swept.map((value) => value.toLocaleString("en")), grid: false };
}

// ---- distance to the reference -------------------------------------------------------------------------------------

function distanceFigures(view) {
  const figures = [];
  if (view.data.reference === null || view.data.roles.leading !== view.data.roles.throughput) return figures;
  for (const cell of view.cells.slice(0, view.panels)) {
    const rows = rowsOf(view, cell).filter((row) => row.ratio && row.ratio[0] !== null).map((row) => {
      const server = view.data.servers[row.server];
      const [mean, low, high] = row.ratio.map((value) => (value === null ? null : 100 * value));
      return { name: server.label, server: row.server, look: server.look, mean, low, high, dots: [], text: `${number(mean)} %`, note: row.note };
    });
    if (!rows.length) continue;
    const panel = view.data.cells[cell].text;
    const x = axisOf([...rows.flatMap((row) => [row.mean, row.high]), 100], "throughput, % of the reference, with the interval that decides");
    const table = { head: ["server", "% of the reference", "interval that decides"], rows: rows.map((row) => [row.name, number(row.mean), row.low === null ? NONE : between(row.low, row.high)]) };
    figures.push({ kind: "bars", title: "Distance to the baseline", panel, label: said("Throughput in per cent of the reference", panel, view, rowsOf(view, cell)), rows, x, marks: [100], table, unit: "%" });
  }
  return figures;
}

// ---- percentiles ---------------------------------------------------------------------------------------------------

function curveFigures(view) {
  return view.cells.slice(0, view.panels).flatMap((cell) => {
    const curves = view.data.curves.filter((curve) => curve.cell === cell && view.servers.has(curve.server));
    return curves.length ? [percentileFigure(view, cell, curves), cdfFigure(view, cell, curves)] : [];
  });
}

function unitOf(curves) {
  const middle = curves.map((curve) => curve.y[Math.floor(curve.y.length / 2)]).sort((a, b) => a - b)[curves.length >> 1];
  return [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => middle >= size) || [1, "ns"];
}

function percentileFigure(view, cell, curves) {
  const [size, unit] = unitOf(curves);
  const series = curves.map((curve) => {
    const server = view.data.servers[curve.server];
    const points = curve.x.map((x, i) => [x, curve.y[i] / size]);
    const marks = MARKS.filter((x) => x <= curve.count).map((x) => points[points.findIndex((point) => point[0] >= x * 0.9999)]).filter(Boolean);
    return { server: curve.server, name: server.label, look: server.look, points, marks };
  });
  const furthest = Math.max(...curves.map((curve) => curve.x[curve.x.length - 1]));
  const ticks = PERCENTILES.filter((tick) => tick <= furthest);
  const x = { title: "share of messages at or below this time", log: true, domain: [1, furthest], ticks, labels: ticks.map((tick) => (tick === 1 ? "0 %" : quantile(tick))) };
  const y = axisOf(series.flatMap((one) => one.points.map((point) => point[1])), `${view.data.roles.time} (${unit})`, { log: true });
  const panel = view.data.cells[cell].text;
  return { kind: "lines", title: "Percentiles", panel, label: said(`${view.data.roles.time} by percentile`, panel, view, rowsOf(view, cell)), series, x, y, height: 260, table: percentileTable(view, cell), unit, reads: "quantile" };
}

function percentileTable(view, cell) {
  const { roles, metrics } = view.data;
  const chosen = ["p50", "p90", "p99", "p999", "max"].map((statistic) => metrics[`${roles.latency}_${statistic}`]).filter(Boolean);
  const rows = rowsOf(view, cell).map((row) => [view.data.servers[row.server].label, ...chosen.map((metric) => shownText(metric, row.figures[metric.name]?.[0]))]);
  return { head: [roles.each, ...chosen.map((metric) => `${metric.title} (${metric.shown})`)], rows };
}

function cdfFigure(view, cell, curves) {
  const [size, unit] = unitOf(curves);
  const series = curves.map((curve) => {
    const server = view.data.servers[curve.server];
    const steps = curve.x.map((x, i) => [curve.y[i] / size, 100 * (1 - (i === curve.x.length - 1 ? 0 : 1 / x))]);
    return { server: curve.server, name: server.label, look: server.look, points: steps };
  });
  const x = { ...axisOf(series.flatMap((one) => one.points.map((point) => point[0])), `${view.data.roles.time} (${unit})`, { log: true }) };
  const y = { title: "% of messages", log: false, domain: [0, 100], ticks: [0, 25, 50, 75, 100] };
  const panel = view.data.cells[cell].text;
  return { kind: "lines", title: "Distribution", panel, label: said(`Share of messages by ${view.data.roles.time.toLowerCase()}`, panel, view, rowsOf(view, cell)), series, x, y, height: 260, table: percentileTable(view, cell), unit: "%", reads: unit };
}

// ---- memory per connection -----------------------------------------------------------------------------------------

function memoryFigures(view) {
  const fits = view.data.memory.filter((fit) => view.servers.has(fit.server));
  if (!fits.length) return [];
  const { trials, metrics } = view.data;
  const metric = metrics.server_rss_bytes_max;
  const series = fits.map((fit) => {
    const server = view.data.servers[fit.server];
    const dots = view.trials.filter((i) => trials.server[i] === fit.server && trials.values[metric.name]?.[i] != null).map((i) => [trials.connections[i], trials.values[metric.name][i] / 2 ** 20, kindOf(trials, metric, i), trials.number[i]]);
    const line = fit.slope === null ? [] : [fit.smallest, fit.largest].map((at) => [at, (fit.intercept + fit.slope * at) / 2 ** 20]);
    return { server: fit.server, name: server.label, look: server.look, points: line, dots };
  });
  const swept = [...new Set(series.flatMap((one) => one.dots.map(([at]) => at)))].sort((a, b) => a - b);
  const x = axisOf(swept, "connections");
  const y = axisOf(series.flatMap((one) => one.dots.map(([, value]) => value)), "Memory (MiB)");
  const text = (fit) => (fit.slope === null ? [fit.reason, NONE, NONE] : [bytes(Math.abs(fit.slope)).replace(/^/, fit.slope < 0 ? "-" : ""), fit.low === null ? NONE : `${number(fit.low / 1024)}–${number(fit.high / 1024)} KiB`, number(fit.r2)]);
  const table = { head: ["server", "memory per connection", "95 % interval", "R²"], rows: fits.map((fit) => [view.data.servers[fit.server].label, ...text(fit)]) };
  return [{ kind: "lines", title: "Memory per connection", panel: "slope of a line fitted to VALID and SUSPECT trials", label: `Memory over connections, with a fitted line per server. The table below has the slopes.`, series, x, y, height: 230, table, unit: "MiB", openTable: true }];
}
