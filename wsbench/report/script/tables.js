// Tables and other parts of the page as HTML text, escaped. Pure functions.

const PAGE = 100; // trials on one page of their table
const MOST_TABLES = 20; // cells: the filters give access to more

function figureHtml(figure, width) {
  const panel = figure.panel && !figure.lane ? ` <span>${esc(figure.panel)}</span>` : "";
  const caption = figure.lane ? "" : `<figcaption>${esc(figure.title)}${panel}</figcaption>`;
  const wide = figure.lane ? " wide" : "";
  return `<figure class="chart ${figure.kind}${figure.lane ? " lane" : ""}${wide}" id="${figure.id}">${caption}<div class="drawing" tabindex="0" role="group" aria-label="${esc(figure.title)}: chart; the arrow keys step through its values">${drawing(figure, width)}</div>${figure.named ? namesHtml(figure) : ""}${numbersHtml(figure)}</figure>`;
}

// The first figure has no section legend, so it needs its own.
function firstFigure(figure) {
  return { ...figure, id: `${figure.id}-first`, named: figure.kind === "lines" };
}

function namesHtml({ series }) {
  return `<ul class="legend">${series.map((one) => `<li>${swatch(one.look)}${esc(one.name)}</li>`).join("")}</ul>`;
}

function numbersHtml({ table, openTable, title }) {
  const head = table.head.map((text) => `<th scope="col">${esc(text)}</th>`).join("");
  const rows = table.rows.map(([first, ...rest]) => `<tr><th scope="row">${esc(first)}</th>${rest.map((text) => `<td>${esc(text).replace(/ \(([^)]*)\)$/, "<small>$1</small>")}</td>`).join("")}</tr>`).join("");
  return `<details${openTable ? " open" : ""}><summary>Numbers</summary><div class="scroll" tabindex="0" role="region" aria-label="numbers: ${esc(title)}"><table class="sortable"><thead><tr>${head}</tr></thead><tbody>${rows}</tbody></table></div></details>`;
}

function legendHtml(data, servers, label) {
  const items = [...servers].map((place) => `<li><button type="button" class="key" data-server="${place}" aria-pressed="true">${swatch(data.servers[place].look)}${esc(data.servers[place].label)}</button></li>`);
  return `<ul class="legend" aria-label="${esc(label)}">${items.join("")}</ul>`;
}

function estimateHtml(data, metric, found) {
  const { low, high, text } = estimateOf(metric, found);
  if (text === undefined) return `<span class="none" title="${esc(found ? data.texts[found[1]] : "not measured")}">${NONE}</span>`;
  return text + (low === null ? "" : `<small>${between(low, high)}</small>`);
}

// How many trials; those without a usable number are named, for they are missing in the mean.
function countsHtml(row) {
  const [valid, suspect, invalid, failed, missing] = row.counts;
  const parts = [grouped(valid + suspect, 0)];
  for (const [count, text] of [[invalid, "INVALID"], [failed, "failed"], [missing, "not run"]]) if (count) parts.push(`<span class="tag ${text === "not run" ? "" : "INVALID"}">${count} ${text}</span>`);
  return parts.join(" ");
}

function limitText(text) {
  return text ? text.replace("server", "server CPU") : NONE;
}

// ---- results -------------------------------------------------------------------------------------------------------

function resultsHtml(view) {
  const { data } = view;
  if (!view.rows.length) return `<p class="note">No results pass the filters.</p>`;
  const note = left_out(view.cells.length, Math.min(view.cells.length, MOST_TABLES), "cells");
  return (note ? `<p class="note">${note}</p>` : "") + view.cells.slice(0, MOST_TABLES).map((cell) => resultTable(data, data.cells[cell].text, rowsOf(view, cell))).join("");
}

function resultTable(data, text, rows) {
  if (!rows.length) return "";
  const columns = data.roles.columns.map((name) => data.metrics[name]);
  const ratio = data.reference === null ? "" : `<th scope="col">× reference</th>`;
  const head = columns.map((metric, i) => `<th scope="col">${esc(metric.title)}<small>${esc(metric.shown)}</small></th>${i ? "" : ratio}`).join("");
  const highest = Math.max(...rows.map((row) => row.figures[columns[0].name]?.[0] || 0));
  const body = rows.map((row) => resultRow(data, row, columns, highest)).join("");
  const caption = text ? `<caption>${esc(text)}</caption>` : "";
  return `<div class="scroll" tabindex="0" role="region" aria-label="results ${esc(text)}"><table class="summary sortable">${caption}<thead><tr><th scope="col">server</th>${head}<th scope="col" class="text">trials</th><th scope="col" class="text">limited by</th></tr></thead><tbody>${body}</tbody></table></div>`;
}

function resultRow(data, row, columns, highest) {
  const server = data.servers[row.server];
  const ratio = data.reference === null ? "" : `<td>${row.ratio && row.ratio[0] !== null ? number(row.ratio[0]) + (row.ratio[1] === null ? "" : `<small>${between(row.ratio[1], row.ratio[2])}</small>`) : NONE}</td>`;
  const cells = columns.map((metric, i) => {
    const found = row.figures[metric.name];
    const bar = i ? "" : ` class="bar" style="--share:${found && found[0] ? tenth((100 * found[0]) / highest) : 0}%"`;
    return `<td${bar}>${estimateHtml(data, metric, found)}</td>${i ? "" : ratio}`;
  });
  const trials = `<a class="trials" href="#trials" data-server="${row.server}" data-cell="${row.cell}">${countsHtml(row)}</a>`;
  return `<tr data-server="${row.server}"${server.ceiling ? ' class="ceiling"' : ""}><th scope="row">${esc(server.label).replace(/[@-]/g, "<wbr>$&")}${row.tier ? `<span class="tier" title="servers that share a letter cannot be ranked against one another"> ${esc(row.tier)}</span>` : ""}</th>${cells.join("")}<td class="text counts">${trials}</td><td class="text${row.note ? " reasons" : ""}">${esc(limitText(row.limit))}${row.note ? `<small>${esc(row.note)}</small>` : ""}</td></tr>`;
}

// ---- trials --------------------------------------------------------------------------------------------------------

function sortedTrials(view, sort) {
  const { trials } = view.data;
  const [name, direction] = sort || ["number", 1];
  const column = { number: trials.number, round: trials.round, server: trials.server, cell: trials.cell, verdict: trials.kind }[name] || trials.values[name] || trials.number;
  const last = (value) => (value === null || value === undefined ? Infinity : value * direction);
  return [...view.trials].sort((a, b) => last(column[a]) - last(column[b]) || trials.number[a] - trials.number[b]);
}

function trialsHtml(view, sort, page) {
  const { data } = view;
  const order = sortedTrials(view, sort), pages = Math.max(1, Math.ceil(order.length / PAGE));
  const at = Math.min(page || 0, pages - 1);
  const heads = [["number", "trial", ""], ["round", "round", ""], ["server", "server", "text"], ...(data.keys.length ? [["cell", "cell", "text"]] : [])];
  const metrics = data.roles.trial_columns.map((name) => data.metrics[name]);
  const button = (name, text, kind, small) => {
    const sorted = (sort || ["number", 1])[0] === name ? ` aria-sort="${(sort || ["number", 1])[1] > 0 ? "ascending" : "descending"}"` : "";
    return `<th scope="col"${kind ? ` class="${kind}"` : ""}${sorted}><button type="button" data-sort="${esc(name)}">${esc(text)}</button>${small ? `<small>${esc(small)}</small>` : ""}</th>`;
  };
  const head = heads.map(([name, text, kind]) => button(name, text, kind)).join("") + metrics.map((metric) => button(metric.name, metric.title, "", metric.shown)).join("") + button("verdict", "verdict", "text") + `<th scope="col" class="text">limited by</th>`;
  const body = order.slice(at * PAGE, (at + 1) * PAGE).map((i) => trialRow(data, i, metrics)).join("");
  const turn = pages > 1 ? `<p class="pages"><button type="button" data-page="${at - 1}"${at ? "" : " disabled"}>previous</button> page ${at + 1} of ${pages} <button type="button" data-page="${at + 1}"${at + 1 < pages ? "" : " disabled"}>next</button></p>` : "";
  return `<p class="note">${plural(order.length, "trial")}${order.length < data.trials.number.length ? ` of ${grouped(data.trials.number.length, 0)}` : ""}.</p><div class="scroll" tabindex="0" role="region" aria-label="trials"><table id="trial-table"><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>${turn}`;
}

function trialRow(data, i, metrics) {
  const { trials } = data, server = data.servers[trials.server[i]], name = four(trials.number[i]);
  const values = metrics.map((metric) => {
    const value = trials.values[metric.name]?.[i] ?? null;
    return `<td>${value === null ? `<span class="none" title="${esc(whyNot(data, metric.name, i))}">${NONE}</span>` : `<data value="${value}">${shownText(metric, value)}</data>`}</td>`;
  });
  const tag = `<span class="tag ${KINDS[trials.kind[i]]}">${KINDS[trials.kind[i]]}</span>`;
  const reasons = trials.reasons[i].map((text) => `<small>${esc(data.texts[text])}</small>`).join("");
  const cell = data.keys.length ? `<td class="n">${esc(data.cells[trials.cell[i]].text)}</td>` : "";
  return `<tr><th scope="row"><a href="#trial=${trials.number[i]}">${name}</a></th><td>${trials.round[i]}</td><td class="n">${esc(server.label)}</td>${cell}${values.join("")}<td class="text">${reasons ? `<details><summary>${tag}</summary>${reasons}</details>` : tag}</td><td class="text">${esc(limitText(data.texts[trials.limit[i]]))}</td></tr>`;
}

// ---- order ---------------------------------------------------------------------------------------------------------

// The order of rows by one column's texts: numbers by value, words by letter, missing ones last. `direction` is 1 or -1.
function rowOrder(texts, direction) {
  const values = texts.map((text) => (text === "" || text === NONE ? null : Number.parseFloat(text.replaceAll(",", "").replace("−", "-").replace(/^≥\s*/, ""))));
  const numeric = values.some((value) => value !== null) && values.every((value) => value === null || Number.isFinite(value));
  const compare = (a, b) => (numeric ? values[a] - values[b] : texts[a].localeCompare(texts[b], "en", { numeric: true }));
  return texts.map((_, i) => i).sort((a, b) => (values[a] === null) - (values[b] === null) || direction * (values[a] === null ? 0 : compare(a, b)) || a - b);
}

function whyNot(data, metric, i) {
  const why = data.trials.why[metric];
  const found = typeof why === "number" ? why : why?.[i];
  return found === null || found === undefined ? "not measured" : data.texts[found];
}
