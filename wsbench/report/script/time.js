// Figures over time: lanes with a common axis, and a latency heat map per shown trial.

const LANES = [
  { title: "Open connections (thin: requested)", names: ["open"], also: "asked", size: 1 },
  { title: "Replies per second", names: ["rate"], size: 1 },
  { title: "Median", names: ["p50"], size: 1e6, unit: "ms", log: true },
  { title: "p99", names: ["p99"], size: 1e6, unit: "ms", log: true },
  { title: "Maximum", names: ["max"], size: 1e6, unit: "ms", log: true },
  { title: "Errors per second", names: ["errors"], size: 1 },
  { title: "Server CPU", names: ["cpu"], size: 1, unit: "% of a core" },
  { title: "Server memory", names: ["rss"], size: 2 ** 20, unit: "MiB" },
  { title: "Heap in use (thin: heap size)", names: ["heap"], also: "heap_size", size: 2 ** 20, unit: "MiB" },
  { title: "GC pause", names: ["gc"], size: 1, unit: "ms per second" },
  { title: "Event loop delay", names: ["loop"], size: 1, unit: "ms" },
];
const MOST_HEAT_MAPS = 6;

// The trials shown over time: per server in the cell the typical one, or all.
function timeFigures(view) {
  const known = view.trials.filter((i) => view.data.timelines[i]);
  const cell = view.cells.find((one) => known.some((i) => view.data.trials.cell[i] === one));
  if (cell === undefined) return { figures: [], note: known.length ? "" : view.data.roles.no_timelines };
  const inCell = known.filter((i) => view.data.trials.cell[i] === cell);
  const chosen = view.chosen.each ? inCell : inCell.filter((i) => view.data.trials.typical[i]);
  const panel = view.data.cells[cell].text;
  const note = [left_out(view.cells.length, 1, "cells"), left_out(chosen.length, Math.min(chosen.length, MOST_HEAT_MAPS), "heat maps")].filter(Boolean).join(" ");
  return { figures: [...laneFigures(view, chosen, panel), ...heatFigures(view, chosen.slice(0, MOST_HEAT_MAPS))], note };
}

// A load is its server's only trial and has no number.
function trialName(data, i) {
  const { label } = data.servers[data.trials.server[i]], number = data.trials.number[i];
  return number === null ? label : `${label}, trial ${four(number)}`;
}

function endOf(view, chosen) {
  return Math.max(...chosen.map((i) => view.data.timelines[i].buckets * view.data.timelines[i].width_s));
}

function timeAxis(view, chosen, title) {
  const domain = view.chosen.zoom || [0, endOf(view, chosen)];
  const ticks = linearTicks(domain[0], domain[1], 8);
  return { title, log: false, domain, ticks, ...(title ? {} : { labels: ticks.map(() => "") }) };
}

function spansOf(timeline) {
  const found = [];
  timeline.phases.forEach(([name, from], i) => {
    const to = i + 1 < timeline.phases.length ? timeline.phases[i + 1][1] : timeline.buckets * timeline.width_s;
    if (name !== "measure") found.push([name, from, to]);
  });
  return found;
}

function laneFigures(view, chosen, panel) {
  const lanes = LANES.map((lane) => laneFigure(view, chosen, lane)).filter(Boolean);
  return lanes.map((lane, i) => ({ ...lane, panel, x: timeAxis(view, chosen, i === lanes.length - 1 ? "seconds since the engine started; shaded: not measured" : "") }));
}

function laneFigure(view, chosen, lane) {
  const series = [];
  for (const i of chosen) {
    const timeline = view.data.timelines[i], place = view.data.trials.server[i], server = view.data.servers[place];
    const name = trialName(view.data, i);
    const at = (k) => (k + 0.5) * timeline.width_s;
    const line = (of, look) => series.push({ server: place, name, look, points: timeline.series[of].map((value, k) => [at(k), value === null ? null : value / lane.size]) });
    if (lane.also && timeline.series[lane.also]) line(lane.also, { ...server.look, dash: [1, 3] });
    for (const of of lane.names) if (timeline.series[of]) line(of, server.look);
  }
  const values = series.flatMap((one) => one.points.map(([, value]) => value)).filter((value) => value !== null);
  if (!values.length || (lane.names[0] === "errors" && !values.some((value) => value > 0))) return null;
  const log = Boolean(lane.log) && values.every((value) => value > 0);
  const y = { ...axisOf(values, lane.unit ? `${lane.title} (${lane.unit})` : lane.title, { log }) };
  if (!log) y.ticks = linearTicks(y.domain[0], y.domain[1], 3);
  const seen = new Map(series.map((one) => [one.name, one.points.map(([, value]) => value).filter((value) => value !== null)]));
  const rows = [...seen].filter(([, found]) => found.length).map(([name, found]) => [name, number(Math.min(...found)), number(Math.max(...found))]);
  const unit = lane.unit || "";
  return { kind: "lines", lane: true, title: lane.title, label: `${lane.title} over time. The table below has the extremes.`, series, y, height: 78, left: 64, spans: spansOf(view.data.timelines[chosen[0]]), table: { head: ["trial", `lowest ${unit}`, `highest ${unit}`], rows }, unit, reads: "s" };
}

// Missing series of these trials, with the reasons.
function absences(view, chosen) {
  const found = new Map();
  for (const i of chosen) for (const [name, reason] of Object.entries(view.data.timelines[i].absent)) {
    const text = `${name}: ${reason}`;
    found.set(text, new Set([...(found.get(text) || []), view.data.servers[view.data.trials.server[i]].label]));
  }
  return [...found].map(([text, servers]) => `${text} (${listed([...servers])})`);
}

function heatFigures(view, chosen) {
  const known = chosen.filter((i) => view.data.timelines[i].heat);
  const edges = known.flatMap((i) => {
    const { heat } = view.data.timelines[i];
    const rows = heat.columns.flatMap((column) => column.map(([row]) => row));
    return rows.length ? [10 ** (Math.min(...rows) / heat.per_decade), 10 ** ((Math.max(...rows) + 1) / heat.per_decade)] : [];
  });
  if (!edges.length) return [];
  const domain = [Math.min(...edges), Math.max(...edges)];
  const ticks = logTicks(domain[0], domain[1]).filter((tick) => domain[1] < 1e4 * domain[0] || Number.isInteger(Math.log10(tick)));
  return known.map((i) => {
    const { heat } = view.data.timelines[i];
    const y = { title: view.data.roles.time, log: true, domain, ticks, labels: ticks.map((tick) => time(tick).replace(/\.0+(?= )/, "")) };
    const title = trialName(view.data, i);
    const rows = heat.columns.map((column, k) => heatRow(heat, column, k)).filter(Boolean);
    return { kind: "heat", title: "Latency over time", panel: title, label: `Heat map of latency over time: ${title}. The table below has each second's most frequent and longest times.`, heat, x: timeAxis(view, known, "seconds since the engine started"), y, height: 200, left: 64, table: { head: ["from second", "messages", "most frequent", "longest below"], rows }, reads: "heat" };
  });
}

function heatRow(heat, column, k) {
  if (!column.length) return null;
  const most = column.reduce((best, one) => (one[1] > best[1] ? one : best));
  const at = (row) => time(10 ** (row / heat.per_decade));
  return [String(k * heat.width_s), grouped(column.reduce((sum, [, count]) => sum + count, 0), 0), `${at(most[0])} to ${at(most[0] + 1)}`, at(column[column.length - 1][0] + 1)];
}
