// Downloads from the page's data: tables as CSV, everything as JSON, pooled histograms as a log. Text out.

function csv(rows) {
  const quoted = (value) => (value === null || value === undefined ? "" : /[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function trialsCsv(view) {
  const { data } = view, { trials } = data, metrics = Object.values(data.metrics);
  const head = ["trial", "round", "server", ...data.keys.map((key) => key.name), "verdict", "reasons", "bottleneck", ...metrics.map((metric) => `${metric.name} [${metric.unit}]`)];
  const rows = view.trials.map((i) => [
    ...[trials.number[i], trials.round[i], data.servers[trials.server[i]].name, ...data.keys.map((key) => data.cells[trials.cell[i]].values[key.name])],
    ...[KINDS[trials.kind[i]], trials.reasons[i].map((text) => data.texts[text]).join("; "), data.texts[trials.limit[i]]],
    ...metrics.map((metric) => trials.values[metric.name]?.[i]),
  ]);
  return csv([head, ...rows]);
}

function summaryCsv(view) {
  const { data } = view, metrics = data.roles.columns.map((name) => data.metrics[name]);
  const head = ["server", ...data.keys.map((key) => key.name), ...metrics.flatMap((metric) => [`${metric.name} [${metric.unit}]`, "low", "high", "repeats"]), ...KINDS, "not run", "bottleneck", "note"];
  const rows = view.rows.map((row) => [
    ...[data.servers[row.server].name, ...data.keys.map((key) => data.cells[row.cell].values[key.name])],
    ...metrics.flatMap((metric) => (row.figures[metric.name]?.[0] == null ? [null, null, null, 0] : row.figures[metric.name].slice(0, 4))),
    ...[...row.counts, row.limit, row.note],
  ]);
  return csv([head, ...rows]);
}

function pooledLog(view) {
  const { data } = view;
  const lines = ["#[Histogram log format version 1.3]", "#[pooled repeats of each server and cell; nanoseconds]", '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'];
  for (const curve of data.curves) {
    if (!curve.log || !view.servers.has(curve.server) || !view.cells.includes(curve.cell)) continue;
    const tag = [data.servers[curve.server].name, ...Object.entries(data.cells[curve.cell].values).map(([key, value]) => `${key}=${value}`)].join(";").replace(/[,\s]/g, "_");
    lines.push(`Tag=${tag},0.000,0.000,${curve.y[curve.y.length - 1] / 1e6},${curve.log}`);
  }
  return lines.join("\n") + "\n";
}

const FILES = {
  "trials.csv": ["text/csv", trialsCsv],
  "summary.csv": ["text/csv", summaryCsv],
  "report.json": ["application/json", (view) => JSON.stringify(view.data)],
  "pooled.hlog": ["text/plain", pooledLog],
};
