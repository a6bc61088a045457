// Drawings as SVG text: bars with intervals, lines, heat maps. Pure: a figure and a width in, text out. The same code draws
// the static page when the report is built and the live page in the browser.

const SHAPES = {
  circle: "M3.4,0A3.4,3.4 0 1 1 -3.4,0A3.4,3.4 0 1 1 3.4,0Z",
  square: "M-3,-3H3V3H-3Z",
  "triangle-up": "M0,-3.9L3.6,2.7H-3.6Z",
  diamond: "M0,-4.2L3.5,0L0,4.2L-3.5,0Z",
  cross: "M-1.4,-3.8H1.4V-1.4H3.8V1.4H1.4V3.8H-1.4V1.4H-3.8V-1.4H-1.4Z",
  "triangle-down": "M0,3.9L3.6,-2.7H-3.6Z",
  "triangle-right": "M3.9,0L-2.7,3.6V-3.6Z",
  "triangle-left": "M-3.9,0L2.7,3.6V-3.6Z",
};
const LETTER = 6.9; // width in pixels at 12 px, rounded up
const NAME_LETTER = 1.12 * LETTER; // names have wider letters than numbers
const ROW = 30;
const CROWD = 400; // trial marks in a drawing

const tenth = (pixels) => Number(pixels.toFixed(1));

function svg(width, height, label, body) {
  return `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${esc(label)}">${body}</svg>`;
}

function dashOf(look) {
  return look.dash.length > 2 || look.dash[1] ? ` stroke-dasharray="${look.dash.join(",")}"` : "";
}

// Trial marks refer to shapes that the page defines once: there may be thousands of marks.
function shapeDefinitions() {
  const shapes = Object.entries(SHAPES).map(([name, d]) => `<path id="mark-${name}" d="${d}"/>`).join("");
  return `<svg width="0" height="0" aria-hidden="true" class="shapes"><defs>${shapes}</defs></svg>`;
}

// Trials of a server: filled VALID, pale SUSPECT, hollow INVALID; a click opens the trial. `places` are [x, y, kind, trial].
// In a crowd all filled marks are one path, and all pale ones another: twenty thousand elements would take seconds to show.
function dots(look, places, crowd) {
  if (!places.length) return "";
  const kinds = ["", ' class="pale"', ' class="hollow"', ""];
  const points = [VALID, SUSPECT].map((wanted) => (crowd ? places.filter(([, , kind]) => kind === wanted) : []));
  const paths = points.map((of, kind) => (of.length ? `<path class="crowd${kind ? " pale" : ""}" d="${of.map(([x, y]) => `M${tenth(x)},${tenth(y)}h0`).join("")}"/>` : ""));
  const uses = places.filter(([, , kind]) => !crowd || kind > SUSPECT).map(([x, y, kind, trial]) => `<use href="#mark-${look.shape}" x="${tenth(x)}" y="${tenth(y)}" data-trial="${trial}"${kinds[kind]}/>`);
  return `<g class="dots" fill="${look.colour}" stroke="${look.colour}">${paths.join("")}${uses.join("")}</g>`;
}

function isCrowd(figure) {
  return figure.crowd || (figure.rows || figure.series).reduce((sum, one) => sum + (one.dots || []).length, 0) > CROWD;
}

function swatch(look) {
  return `<svg class="swatch" width="26" height="12" viewBox="0 0 26 12" aria-hidden="true"><path d="M0,6H26" stroke="${look.colour}" stroke-width="2"${dashOf(look)}/><path transform="translate(13,6)" d="${SHAPES[look.shape]}" fill="${look.colour}"/></svg>`;
}

// ---- axes ----------------------------------------------------------------------------------------------------------

function below(axis, at, top, bottom, width) {
  const texts = axis.labels || axis.ticks.map((tick) => tickText(tick, axis.ticks));
  let end = -Infinity, parts = "";
  axis.ticks.forEach((tick, i) => {
    const x = tenth(at.to(tick));
    if (axis.grid !== false) parts += `<path class="grid" d="M${x},${top}V${bottom}"/>`;
    const half = (texts[i].length * LETTER) / 2;
    if (!texts[i] || x - half < end + 5 || x + half > width + 8) return;
    end = x + half;
    parts += `<text x="${x}" y="${bottom + 16}" text-anchor="middle">${esc(texts[i])}</text>`;
  });
  const middle = tenth((at.range[0] + at.range[1]) / 2);
  return parts + (axis.title ? `<text class="title" x="${middle}" y="${bottom + 34}" text-anchor="middle">${esc(axis.title)}</text>` : "");
}

function beside(axis, at, left, right) {
  const texts = axis.labels || axis.ticks.map((tick) => tickText(tick, axis.ticks));
  let parts = "";
  let last = Infinity;
  axis.ticks.forEach((tick, i) => {
    const y = tenth(at.to(tick));
    parts += `<path class="grid" d="M${tenth(left)},${y}H${tenth(right)}"/>`;
    if (last - y < 14 || axis.silent) return;
    last = y;
    parts += `<text x="${left - 6}" y="${y + 4}" text-anchor="end">${esc(texts[i])}</text>`;
  });
  return parts + (axis.title ? `<text class="title" x="${left}" y="11" text-anchor="start" dx="${-left + 2}">${esc(axis.title)}</text>` : "");
}

// ---- bars ----------------------------------------------------------------------------------------------------------

function barGeometry(figure, width) {
  const longest = Math.max(4, ...figure.rows.map((row) => row.name.length));
  const left = Math.min(longest * NAME_LETTER + 14, width * 0.42);
  const right = width - 26 - 1.1 * LETTER * Math.max(...figure.rows.map((row) => row.text.length));
  return { left, right, top: 4, bottom: 4 + ROW * figure.rows.length, x: scale(figure.x.domain, [left, right], figure.x.log) };
}

/** A name shortened in its middle: the variant after @ distinguishes rows. */
function shortened(name, most) {
  if (name.length <= most) return name;
  const variant = name.includes("@") ? name.slice(name.lastIndexOf("@")) : "";
  const tail = variant.length <= most / 2 ? variant : variant.slice(-Math.floor(most / 2));
  return `${name.slice(0, most - 1 - tail.length)}…${tail}`;
}

function drawBars(figure, width) {
  const { left, right, top, bottom, x } = barGeometry(figure, width);
  const most = Math.floor((left - 12) / NAME_LETTER);
  const crowd = isCrowd(figure);
  let body = below(figure.x, x, top, bottom, width);
  for (const mark of figure.marks || []) body += `<path class="mark" d="M${tenth(x.to(mark))},${top}V${bottom}"/>`;
  figure.rows.forEach((row, i) => {
    const y = top + ROW * i + ROW / 2;
    const name = shortened(row.name, most);
    body += `<text class="name" x="${tenth(left - 8)}" y="${y + 4}" text-anchor="end">${esc(name)}</text>`;
    if (row.mean === null) {
      body += `<text class="soft" x="${tenth(left + 6)}" y="${y + 4}">${esc(row.text)}</text>`;
      return;
    }
    const from = tenth(x.to(figure.x.log ? figure.x.domain[0] : Math.max(0, figure.x.domain[0]))), to = tenth(x.to(row.mean));
    body += `<rect class="bar" x="${from}" y="${y - 8}" width="${tenth(Math.max(0, to - from))}" height="16" fill="${row.look.colour}"/>`;
    if (row.open) body += `<path class="interval" d="M${to},${y}h${row.open === "≥" ? "14m-5,-5l5,5l-5,5" : "-14m5,-5l-5,5l5,5"}" stroke="${row.look.colour}"/>`;
    if (row.low !== null) {
      const [a, b] = [row.low, row.high].map((value) => tenth(x.to(Math.min(Math.max(value, figure.x.domain[0]), figure.x.domain[1]))));
      body += `<path class="interval" d="M${a},${y - 5}v10M${a},${y}H${b}M${b},${y - 5}v10" stroke="${row.look.colour}"/>`;
    }
    body += `<path class="mean" d="M${to},${y - 9}v18" stroke="${row.look.colour}"/>`;
    body += dots(row.look, row.dots.map(([value, kind, trial]) => [x.to(value), y, kind, trial]), crowd);
    body += `<text class="value" x="${width - 4}" y="${y + 4}" text-anchor="end">${esc(row.text)}</text>`;
  });
  return svg(width, bottom + 42, figure.label, body);
}

// ---- lines ---------------------------------------------------------------------------------------------------------

function lineGeometry(figure, width) {
  const texts = figure.y.labels || figure.y.ticks.map((tick) => tickText(tick, figure.y.ticks));
  const left = figure.left || 12 + LETTER * Math.max(2, ...texts.map((text) => text.length));
  const top = figure.y.title ? 22 : 8, bottom = top + figure.height, right = width - 14;
  return { left, right, top, bottom, x: scale(figure.x.domain, [left, right], figure.x.log), y: scale(figure.y.domain, [bottom, top], figure.y.log) };
}

// A line with gaps for missing values.
function path(points, x, y, step) {
  let text = "", pen = false;
  for (const [at, value] of points) {
    if (value === null || (y.log && value <= 0)) { pen = false; continue; }
    const px = tenth(x.to(at)), py = tenth(y.to(value));
    text += !pen ? `M${px},${py}` : step ? `H${px}V${py}` : `L${px},${py}`;
    pen = true;
  }
  return text;
}

function drawLines(figure, width) {
  const geometry = lineGeometry(figure, width);
  const { left, right, top, bottom, x, y } = geometry;
  let body = below(figure.x, x, top, bottom, width) + beside(figure.y, y, left, right);
  for (const [name, from, to] of figure.spans || []) {
    const [a, b] = [from, to].map((value) => tenth(Math.min(Math.max(x.to(value), left), right)));
    if (b > a) body += `<rect class="span" x="${a}" y="${top}" width="${tenth(b - a)}" height="${bottom - top}"><title>${esc(name)}</title></rect>`;
  }
  let lines = "", marks = "";
  const crowd = isCrowd(figure);
  for (const one of figure.series) {
    const { colour } = one.look;
    const drawn = one.points.filter(([at]) => at >= figure.x.domain[0] && at <= figure.x.domain[1]);
    lines += `<path class="line" data-server="${one.server}" d="${path(drawn, x, y, figure.step)}" stroke="${colour}"${dashOf(one.look)}/>`;
    for (const [at, low, high] of one.intervals || []) if (low !== null) lines += `<path class="interval" d="M${tenth(x.to(at))},${tenth(y.to(Math.max(low, y.domain[0])))}V${tenth(y.to(Math.min(high, y.domain[1])))}" stroke="${colour}"/>`;
    for (const [at, value] of one.marks || []) marks += `<path transform="translate(${tenth(x.to(at))},${tenth(y.to(value))})" d="${SHAPES[one.look.shape]}" fill="${colour}"/>`;
    marks += dots(one.look, (one.dots || []).map(([at, value, kind, trial]) => [x.to(at), y.to(value), kind, trial]), crowd);
  }
  return svg(width, bottom + (figure.x.title ? 42 : 6), figure.label, body + lines + marks);
}

// ---- small multiples -----------------------------------------------------------------------------------------------

const PANEL = { width: 122, height: 84, between: 16, head: 30 };
const MOST_PALE = 12; // series; more are a range

// A panel per series, all on the same scales: { left, right, top, bottom, x, y, one } each.
function panelGeometry(figure, width) {
  const texts = figure.y.ticks.map((tick) => tickText(tick, figure.y.ticks));
  const left = 12 + LETTER * Math.max(2, ...texts.map((text) => text.length)), top = figure.y.title ? 20 : 0;
  const columns = Math.max(1, Math.min(figure.series.length, Math.floor((width - left) / (PANEL.width + PANEL.between))));
  const wide = (width - left - 12 - (columns - 1) * PANEL.between) / columns, rows = Math.ceil(figure.series.length / columns);
  const panels = figure.series.map((one, i) => {
    const from = tenth(left + (i % columns) * (wide + PANEL.between)), above = top + PANEL.head + Math.floor(i / columns) * (PANEL.height + PANEL.head);
    const range = { left: from, right: tenth(from + wide), top: above, bottom: above + PANEL.height };
    return { ...range, one, x: scale(figure.x.domain, [from + 4, from + wide - 4], figure.x.log), y: scale(figure.y.domain, [range.bottom, above], figure.y.log) };
  });
  return { panels, columns, bottom: top + rows * (PANEL.height + PANEL.head) };
}

function panelAt({ panels }, px, py) {
  return panels.find(({ left, right, top, bottom }) => px >= left - 8 && px <= right + 8 && py >= top - PANEL.head && py <= bottom);
}

// The other series, pale; in a crowd the range that they span.
function context(series, one, x, y) {
  if (series.length <= MOST_PALE) return `<path class="context" d="${series.filter((other) => other !== one).map((other) => path(other.points, x, y)).join("")}"/>`;
  const ends = series[0].points.flatMap(([at]) => {
    const values = series.flatMap((other) => other.points.filter(([where, value]) => where === at && value !== null && !(y.log && value <= 0)).map(([, value]) => value));
    return values.length ? [[at, Math.min(...values), Math.max(...values)]] : [];
  });
  const points = [...ends.map(([at, low]) => [at, low]), ...ends.reverse().map(([at, , high]) => [at, high])];
  return `<path class="context band" d="${path(points, x, y)}Z"/>`;
}

function drawPanels(figure, width) {
  const { panels, columns, bottom } = panelGeometry(figure, width);
  const crowd = isCrowd(figure);
  const inside = (points) => points.map(([at, value]) => [at, value === null || value < figure.y.domain[0] || value > figure.y.domain[1] ? null : value]);
  let body = figure.y.title ? `<text class="title" x="2" y="11">${esc(figure.y.title)}</text>` : "";
  panels.forEach(({ left, right, top, bottom: end, x, y, one }, i) => {
    const first = i % columns === 0, last = i + columns >= panels.length;
    body += beside({ ...figure.y, title: "", silent: !first }, y, left, right);
    if (last) body += below({ ...figure.x, title: "", grid: false }, x, top, end, right + 6);
    body += context(figure.series, one, x, y);
    if (figure.reference) body += `<path class="mark" d="${path(inside(figure.reference.points), x, y)}"/>`;
    body += `<text class="name" x="${tenth(left)}" y="${top - 8}">${esc(shortened(one.name, Math.floor((right - left) / NAME_LETTER)))}</text>`;
    body += `<path class="line" data-server="${one.server}" d="${path(one.points, x, y)}" stroke="${one.look.colour}"/>`;
    for (const [at, low, high] of one.intervals || []) if (low !== null) body += `<path class="interval" d="M${tenth(x.to(at))},${tenth(y.to(Math.max(low, y.domain[0])))}V${tenth(y.to(Math.min(high, y.domain[1])))}" stroke="${one.look.colour}"/>`;
    body += dots(one.look, (one.dots || []).map(([at, value, kind, trial]) => [x.to(at), y.to(value), kind, trial]), crowd);
  });
  const middle = tenth((panels[0].left + width - 12) / 2);
  return svg(width, bottom + 42, figure.label, `${body}<text class="title" x="${middle}" y="${bottom + 36}" text-anchor="middle">${esc(figure.x.title)}</text>`);
}

// ---- heat maps -----------------------------------------------------------------------------------------------------

const LEVELS = 8;

// One path per colour level: a level is a share of the column's messages, on a logarithmic scale.
function drawHeat(figure, width) {
  const geometry = lineGeometry(figure, width);
  const { left, right, top, bottom, x, y } = geometry;
  const paths = Array.from({ length: LEVELS }, () => "");
  const { heat } = figure;
  heat.columns.forEach((column, i) => {
    const total = column.reduce((sum, [, count]) => sum + count, 0);
    const from = Math.max(figure.x.domain[0], i * heat.width_s), to = Math.min(figure.x.domain[1], (i + 1) * heat.width_s);
    if (to <= from) return;
    const [a, b] = [tenth(x.to(from)), tenth(x.to(to))];
    for (const [row, count] of column) {
      const level = heatLevel(count / total);
      const [low, high] = [row, row + 1].map((place) => tenth(y.to(10 ** (place / heat.per_decade))));
      paths[level] += `M${a},${high}H${b}V${low}H${a}Z`;
    }
  });
  const cells = paths.map((d, level) => (d ? `<path class="heat heat-${level}" d="${d}"/>` : "")).join("");
  const body = cells + below({ ...figure.x, grid: false }, x, top, bottom, width) + beside(figure.y, y, left, right);
  return svg(width, bottom + 42, figure.label, body);
}

function heatLevel(share) {
  return Math.max(0, Math.min(LEVELS - 1, Math.floor(LEVELS + 2 * Math.log10(share))));
}

function drawing(figure, width) {
  return { bars: drawBars, lines: drawLines, panels: drawPanels, heat: drawHeat }[figure.kind](figure, Math.max(260, Math.round(width)));
}
