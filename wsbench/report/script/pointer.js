// Values of a figure at the pointer or the arrow keys: the position, its text, and the cursor.

// The values of a figure at a pixel: { title, rows: [[name, value, look]], x } or null.
function readAt(figure, width, px, py) {
  if (figure.kind === "bars") {
    const { top } = barGeometry(figure, width);
    const row = figure.rows[Math.floor((py - top) / ROW)];
    return row ? readBar(figure, row) : null;
  }
  if (figure.kind === "panels") {
    const panel = panelAt(panelGeometry(figure, width), px, py);
    return panel ? readPanel(figure, panel, panel.x.back(px)) : null;
  }
  const geometry = lineGeometry(figure, width);
  if (px < geometry.left - 4 || px > geometry.right + 4) return null;
  return figure.kind === "heat" ? readHeat(figure, geometry, px, py) : readLines(figure, geometry.x.back(px));
}

// The trial whose mark is nearest to a pixel, within 8 pixels; else null.
function trialAt(figure, width, px, py) {
  const bars = figure.kind === "bars", panels = figure.kind === "panels";
  const { x, y, top } = bars ? barGeometry(figure, width) : panels ? {} : lineGeometry(figure, width);
  const places = panels
    ? panelGeometry(figure, width).panels.flatMap((panel) => panel.one.dots.map(([at, value, , trial]) => [panel.x.to(at), panel.y.to(value), trial]))
    : bars
    ? figure.rows.flatMap((row, i) => row.dots.map(([value, , trial]) => [x.to(value), top + ROW * (i + 0.5), trial]))
    : (figure.series || []).flatMap((one) => (one.dots || []).map(([at, value, , trial]) => [x.to(at), y.to(value), trial]));
  let found = null, nearest = 8;
  for (const [a, b, trial] of places) {
    const distance = Math.hypot(a - px, b - py);
    if (distance < nearest) [found, nearest] = [trial, distance];
  }
  return found;
}

function readBar(figure, row) {
  const interval = row.low === null ? "no interval" : `95 % interval ${between(row.low, row.high)}`;
  const rows = row.mean === null ? [] : [[row.open || "mean", `${number(row.mean)} ${figure.unit}`, row.look], ["", interval, null], ...row.dots.map(([value, kind, trial]) => [`trial ${four(trial)}`, `${number(value)} ${KINDS[kind]}`, null])];
  return { title: row.name + (row.note ? `: ${row.note}` : ""), rows };
}

// A server's value, its trials, and the baseline's.
function readPanel(figure, { one }, at) {
  const found = readLines({ ...figure, series: [one, ...(figure.reference ? [figure.reference] : [])] }, at);
  const trials = found && one.dots.filter(([x]) => x === found.x).map(([, value, kind, trial]) => [`trial ${four(trial)}`, `${number(value)} ${KINDS[kind]}`, null]);
  return found && { title: `${one.name}, ${found.title}`, rows: [...found.rows, ...trials] };
}

function readLines(figure, at) {
  const distance = (value) => Math.abs(figure.x.log ? Math.log(value / at) : value - at);
  let nearest = null;
  for (const one of figure.series) for (const [x, y] of one.points) if (y !== null && (nearest === null || distance(x) < distance(nearest))) nearest = x;
  if (nearest === null) return null;
  const rows = figure.series.map((one) => [one.name, valueAt(one.points, nearest, figure), one.look]).filter(([, value]) => value !== null);
  rows.sort((a, b) => b[1] - a[1]);
  const title = figure.reads === "quantile" ? quantile(nearest) : figure.reads ? `${number(nearest)} ${figure.reads}` : `${figure.x.title} ${number(nearest)}`;
  return { title, x: nearest, rows: rows.slice(0, 14).map(([name, value, look]) => [name, `${number(value)} ${figure.unit || ""}`, look]) };
}

function valueAt(points, x, figure) {
  let best = null;
  for (const point of points) if (point[1] !== null && (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x))) best = point;
  if (!best || (figure.lane && Math.abs(best[0] - x) > 1.01)) return null;
  return best[1];
}

function readHeat(figure, { x, y }, px, py) {
  const second = x.back(px), { heat } = figure;
  const column = heat.columns[Math.floor(second / heat.width_s)];
  if (!column || !column.length) return null;
  const row = Math.floor(Math.log10(y.back(py)) * heat.per_decade + 1e-9);
  const count = column.find(([at]) => at === row)?.[1] || 0, total = column.reduce((sum, [, n]) => sum + n, 0);
  const edge = (place) => time(10 ** (place / heat.per_decade));
  const from = Math.floor(second / heat.width_s) * heat.width_s;
  return { title: `second ${number(from) === NONE ? 0 : from} to ${from + heat.width_s}`, x: second, rows: [[`${edge(row)} to ${edge(row + 1)}`, `${plural(count, "message")} of ${grouped(total, 0)}`, null]] };
}

function tipHtml(found) {
  const rows = found.rows.map(([name, value, look]) => `<tr><th scope="row">${look ? swatch(look) : ""}${esc(name)}</th><td>${esc(value)}</td></tr>`).join("");
  return `<strong>${esc(found.title)}</strong><table role="presentation">${rows}</table>`;
}

function tipText(found) {
  return `${found.title}. ${found.rows.map(([name, value]) => `${name} ${value}`).join("; ")}`;
}

// Positions that the arrow keys step through, in pixels.
function stops(figure, width) {
  if (figure.kind === "bars") return figure.rows.map((_, i) => [width / 2, barGeometry(figure, width).top + ROW * (i + 0.5)]);
  if (figure.kind === "panels") return panelGeometry(figure, width).panels.flatMap(({ one, x, y }) => one.points.filter(([, value]) => value !== null).map(([at, value]) => [x.to(at), y.to(value)]));
  const { x, y } = lineGeometry(figure, width);
  if (figure.kind === "heat") return figure.heat.columns.flatMap((column, i) => {
    const at = (i + 0.5) * figure.heat.width_s;
    if (!column.length || at < figure.x.domain[0] || at > figure.x.domain[1]) return [];
    const most = column.reduce((best, one) => (one[1] > best[1] ? one : best));
    return [[x.to(at), y.to(10 ** ((most[0] + 0.5) / figure.heat.per_decade))]];
  });
  const seen = new Set(figure.series.flatMap((one) => one.points.filter(([at, value]) => value !== null && at >= figure.x.domain[0] && at <= figure.x.domain[1]).map(([at]) => at)));
  const places = [...seen].sort((a, b) => a - b).map((at) => x.to(at));
  return places.filter((place, i) => !i || place - places[i - 1] > 2).map((place) => [place, y.range[1]]);
}
