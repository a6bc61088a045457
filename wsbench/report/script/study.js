// Figures of an experiment's file, which chooses the numbers. Values and looks in, the drawing with its legend out.

function studyFigure(one) {
  const rows = one.rows || [], series = one.series || [];
  const of = (place) => series.flatMap((line) => [...line.points, ...(line.dots || [])].map((found) => found[place]));
  if (one.kind === "bars") {
    const values = rows.flatMap((row) => [row.mean, row.low, row.high, ...row.dots.map(([value]) => value)]);
    return { ...one, x: axisOf(values.filter((value) => value !== null), one.axis) };
  }
  const seen = [...new Set(of(0))].sort((a, b) => a - b);
  const x = one.swept ? sweptAxis(one.key, seen) : axisOf(seen, one.key);
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
