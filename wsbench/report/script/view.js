// The filtered part of a report's data, and queries for figures and tables.

const [VALID, SUSPECT, INVALID, FAILED] = [0, 1, 2, 3];
const KINDS = ["VALID", "SUSPECT", "INVALID", "failed"];
const MOST_PANELS = 6;

// `chosen`: { servers: [names]|null, language, tag, text, cells: {key: [texts]}, zoom: [from, to]|null, each: bool }
function view(data, chosen) {
  const text = (chosen.text || "").toLowerCase();
  const passes = (server) =>
    (!chosen.servers || chosen.servers.includes(server.name)) &&
    (!chosen.language || server.language === chosen.language) &&
    (!chosen.tag || server.tags.includes(chosen.tag)) &&
    (!text || `${server.name} ${server.library}`.toLowerCase().includes(text));
  const servers = new Set(data.servers.flatMap((server, place) => (passes(server) ? [place] : [])));
  const inCells = (cell) => Object.entries(chosen.cells || {}).every(([key, values]) => values.includes(String(cell.values[key])));
  const cells = data.cells.flatMap((cell, place) => (inCells(cell) ? [place] : []));
  const cellSet = new Set(cells);
  const rows = data.rows.filter((row) => servers.has(row.server) && cellSet.has(row.cell));
  const trials = [];
  for (let i = 0; i < data.trials.number.length; i++) if (servers.has(data.trials.server[i]) && cellSet.has(data.trials.cell[i])) trials.push(i);
  const groups = new Map();
  for (const i of trials) {
    const key = groupKey(data, data.trials.cell[i], data.trials.server[i]);
    if (groups.has(key)) groups.get(key).push(i); else groups.set(key, [i]);
  }
  const estimates = new Map(rows.map((row) => [groupKey(data, row.cell, row.server), row]));
  return { data, chosen, servers, cells, rows, estimates, trials, groups, panels: MOST_PANELS };
}

function groupKey(data, cell, server) {
  return cell * data.servers.length + server;
}

function rowsOf(view, cell) {
  return view.rows.filter((row) => row.cell === cell);
}

function trialsOf(view, cell, server) {
  return view.groups.get(groupKey(view.data, cell, server)) || [];
}

function names(view, rows) {
  return listed([...new Set(rows.map((row) => view.data.servers[row.server].label))]);
}

// Panels: one per cell, or one for all values of the swept number; [text, cells] each.
function panels(view) {
  const { axis, cells } = view.data;
  if (axis === null) return view.cells.map((cell) => [cells[cell].text, [cell]]);
  const found = new Map();
  for (const cell of view.cells) {
    const { text } = withoutAxis(view, cell);
    found.set(text, [...(found.get(text) || []), cell]);
  }
  return [...found];
}

function withoutAxis(view, cell) {
  const { axis, keys, cells } = view.data;
  const parts = keys.filter((key) => key.name !== axis && cells[cell].values[key.name] !== undefined);
  return { text: parts.map((key) => `${key.title} ${cells[cell].values[key.name]}`).join(", ") };
}

// The number of drawn panels in words; empty if all are drawn.
function left_out(all, drawn, what) {
  return all > drawn ? `Showing ${drawn} of ${all} ${what}. Use the filters above to choose others.` : "";
}
