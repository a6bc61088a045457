// Figures of an experiment's file, which chooses the numbers. Values and looks in, the drawing with its legend out.

function studyFigure(one) {
  const rows = one.rows || [], series = one.series || [];
  const of = (place) => series.flatMap((line) => [...line.points, ...(line.dots || [])].map((found) => found[place]));
  if (one.kind === "bars") {
    const values = rows.flatMap((row) => [row.mean, row.low, row.high, ...row.dots.map(([value]) => value)]);
    return { ...one, x: axisOf(values.filter((value) => value !== null), one.axis) };
  }
  const seen = [...new Set(of(0))].sort((a, b) => a - b);
  const x = one.swept ? sweptAxis(one.key, seen) : axisOf(seen, one.key, { log: one.logX });
  if (one.swept && one.key !== undefined && series.length > 1) {
    const { drawn, reference } = apart(series, (line) => line.reference);
    const values = drawn.flatMap((line) => [...line.points, ...(line.dots || [])].map(([, value]) => value)).filter((value) => value !== null);
    return { ...one, kind: "panels", series: drawn, reference, x, y: panelAxis(values, reference, one.axis) };
  }
  const bounds = series.flatMap((line) => (line.intervals || []).flatMap(([, low, high]) => [low, high]));
  return { ...one, height: one.height || 260, x, y: axisOf([...of(1), ...bounds].filter((value) => value !== null), one.axis, { log: one.log }) };
}

function studyHtml(one, width) {
  const figure = studyFigure(one);
  const named = figure.kind === "lines" ? figure.series.filter((line, i, all) => all.findIndex(({ name }) => name === line.name) === i) : [];
  return `<div class="drawing">${drawing(figure, width)}</div>${named.length ? namesHtml({ series: named }) : ""}`;
}

function studies(text, width) {
  return JSON.stringify(JSON.parse(text).map((one) => studyHtml(one, width)));
}

// ---- lines and bars inside tables: pages over many campaigns ---------------------------------------------------------

const SPARK = { width: 320, height: 56, margin: 6, narrowest: 1.2 }; // a line's scale spans a fifth at least

// A line over campaigns; `steps` are the points at which the level changed.
function sparkline({ values, steps, label }) {
  const { width, height, margin, narrowest } = SPARK, low = Math.min(...values), high = Math.max(...values);
  const middle = Math.sqrt(low * high), spread = Math.sqrt(Math.max(high / low, narrowest));
  const y = scale([middle / spread, middle * spread], [height - margin, margin], false);
  const wide = (width - 2 * margin) / Math.max(1, values.length - 1);
  const points = values.map((value, i) => [tenth(margin + i * wide), tenth(y.to(value))]);
  const marks = steps.map((at) => `<path class="step" d="M${tenth(margin + (at - 0.5) * wide)},0V${height}"/>`);
  const body = `${marks.join("")}<path class="trace" d="M${points.join("L")}"/>${points.map(([px, py]) => `<circle cx="${px}" cy="${py}" r="3"/>`).join("")}`;
  return svg(width, height, label, body);
}

// A mean with its interval on an axis from zero to `longest`.
function meanLine({ mean, low, high, longest, label }) {
  const at = (value) => ((100 * value) / longest).toFixed(2);
  const interval = low === null ? "" : `<line class="interval" x1="${at(low)}" y1="3" x2="${at(high)}" y2="3"/>`;
  const body = `<line class="ground" x1="0" y1="3" x2="100" y2="3"/>${interval}<rect class="mean" x="${(at(mean) - 0.4).toFixed(2)}" y="0.5" width="0.8" height="5"/>`;
  return `<svg viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="${esc(label)}">${body}</svg>`;
}

function insideTables(kind, text) {
  return JSON.stringify(JSON.parse(text).map({ sparkline, meanLine }[kind]));
}
