// The live page: filters, address, values under the pointer and the arrow keys, zoom, trial dialog, downloads, colour
// scheme. If it fails, the static page remains.

const page = { data: null, chosen: null, view: null, figures: new Map(), stale: new Set() };
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

async function unpack(element) {
  const text = element.textContent.trim();
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

// ---- drawing -------------------------------------------------------------------------------------------------------

function choose(change) {
  page.chosen = { ...page.chosen, ...change };
  const address = toAddress(page.chosen);
  try {
    history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
  } catch {
    // In a sandbox that forbids changing the address, everything but deep links works.
  }
  show();
}

function show() {
  page.view = view(page.data, page.chosen);
  if ($("#filters")) showFiltered($("#filters")); // the page of a load has no filters
  sortable(document);
  for (const area of $$("main > div > .scroll")) tables.observe(area);
  for (const list of $$("ul.legend")) for (const key of $$("button.key", list)) key.setAttribute("aria-pressed", String(page.view.servers.has(Number(key.dataset.server))));
  page.sections = new Map();
  page.stale = new Set($$("[data-figures]"));
  for (const area of page.stale) { seen.unobserve(area); seen.observe(area); }
}

function showFiltered(form) {
  const focused = document.activeElement?.closest("#filters") ? document.activeElement : null;
  const open = Boolean($("details.servers", form)?.open);
  form.innerHTML = filtersHtml(page.data, page.chosen);
  if (open) $("details.servers", form).open = true;
  if (focused) refocus(form, focused);
  $("#filtered").textContent = isFiltered(page.chosen) ? `Filtered: ${page.view.servers.size} of ${page.data.servers.length} servers, ${page.view.cells.length} of ${page.data.cells.length} cells. The answer above covers the whole campaign.` : "";
  const still = page.sections === undefined && !toAddress({ ...page.chosen, trial: null });
  if (still) return;
  $("#result-tables").innerHTML = resultsHtml(page.view);
  $("#trial-tables").innerHTML = trialsHtml(page.view, page.chosen.sort, page.chosen.page);
}

// The heads of tables become buttons that sort.
function sortable(within) {
  for (const head of $$("table.sortable thead th:not(:has(button))", within)) head.innerHTML = `<button type="button" data-column>${head.innerHTML}</button>`;
}

function sortColumn(head) {
  const body = head.closest("table").tBodies[0], rows = [...body.rows];
  const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const text = ({ cells }) => cells[head.cellIndex].dataset.value ?? cells[head.cellIndex].innerText.split("\n")[0].trim();
  body.append(...rowOrder(rows.map(text), direction).map((i) => rows[i]));
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
}

// What sticks below the filters, and where links land.
const underFilters = new ResizeObserver(([{ target }]) => {
  const sticks = getComputedStyle(target).position === "sticky";
  document.documentElement.style.setProperty("--under", `${sticks ? target.offsetHeight : 0}px`);
});

// A table that would make the whole page scroll sideways scrolls by itself.
const tables = new ResizeObserver((entries) => {
  const width = document.documentElement.clientWidth;
  for (const { target } of entries) target.classList.toggle("wide", target.getBoundingClientRect().left + target.scrollWidth > width);
});

function refocus(form, { name, value, type }) {
  const found = $$("input, select", form).find((one) => one.name === name && (type !== "checkbox" || one.value === value));
  if (!found) return;
  found.focus();
  if (type === "search") found.setSelectionRange(value.length, value.length);
}

function draw(area) {
  page.stale.delete(area);
  const id = area.dataset.figures;
  if (!page.sections.has(id)) page.sections.set(id, sectionOf(page.view, id));
  const section = page.sections.get(id);
  const figures = area.dataset.first === undefined ? section.figures : section.figures.slice(0, 1).map(firstFigure);
  const wide = area.clientWidth - 34, narrow = wide < 900 || area.dataset.first !== undefined ? wide : (wide - 52) / 2;
  const width = (figure) => (figure.lane ? wide : narrow);
  area.innerHTML = figures.map((figure) => figureHtml(figure, width(figure))).join("") || `<p class="note">No data: filtered out, or not measured.</p>`;
  figures.forEach((figure) => page.figures.set(figure.id, { figure, width: Math.max(260, Math.round(width(figure))) }));
  const note = $(`#${id}-note`);
  if (note && area.dataset.first === undefined) note.textContent = section.note;
  sortable(area);
  area.dataset.state = "live";
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting && page.stale.has(entry.target)) draw(entry.target);
}, { rootMargin: "500px" });

// ---- filters -------------------------------------------------------------------------------------------------------

function filtersChanged(event) {
  const form = $("#filters"), { name, value } = event.target;
  if (name === "server") {
    const on = $$("input[name=server]:checked", form).map((box) => box.value);
    choose({ servers: on.length === page.data.servers.length ? null : on, page: 0 });
  } else if (name?.startsWith("cell.")) {
    const cells = { ...page.chosen.cells };
    delete cells[name.slice(5)];
    if (value) cells[name.slice(5)] = value.split(",");
    choose({ cells, page: 0, zoom: null });
  } else if (name) choose({ [name]: value, page: 0 });
}

function toggleServer(place) {
  const on = page.data.servers.filter((server, i) => page.view.servers.has(i) !== (i === place)).map((server) => server.name);
  choose({ servers: on.length === page.data.servers.length ? null : on, page: 0 });
}

// ---- values --------------------------------------------------------------------------------------------------------

function locate(drawing, event) {
  const known = page.figures.get(drawing.closest("figure").id);
  if (!known) return null;
  const box = $("svg", drawing).getBoundingClientRect(), scaled = known.width / box.width;
  return { ...known, px: (event.clientX - box.left) * scaled, py: (event.clientY - box.top) * scaled, box, scaled };
}

function trialUnder(drawing, event) {
  const place = locate(drawing, event);
  return place && trialAt(place.figure, place.width, place.px, place.py);
}

function point(drawing, place) {
  const found = place && readAt(place.figure, place.width, place.px, place.py);
  if (!found) return unpoint();
  const tip = $("#tip");
  tip.innerHTML = tipHtml(found);
  tip.hidden = false;
  const left = place.box.left + place.px / place.scaled + 16, room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(4, left > room ? left - tip.offsetWidth - 32 : left)}px`;
  tip.style.top = `${Math.max(4, Math.min(place.box.top + place.py / place.scaled, innerHeight - tip.offsetHeight - 8))}px`;
  cursor(drawing, place, found);
  return found;
}

// Lanes and heat maps share a time axis, so they share a cursor.
function cursor(drawing, place, found) {
  for (const old of $$("path.cursor")) old.remove();
  if (found.x === undefined) return;
  const linked = place.figure.lane || place.figure.kind === "heat" ? $$("figure.lane .drawing, figure.heat .drawing", drawing.closest(".grid")) : [drawing];
  for (const one of linked) {
    const known = page.figures.get(one.closest("figure").id);
    if (!known) continue;
    const { x, top, bottom } = lineGeometry(known.figure, known.width), at = tenth(x.to(found.x));
    $("svg", one).insertAdjacentHTML("beforeend", `<path class="cursor" d="M${at},${top}V${bottom}"/>`);
  }
}

function unpoint() {
  $("#tip").hidden = true;
  for (const old of $$("path.cursor")) old.remove();
  return null;
}

function step(drawing, event) {
  const known = page.figures.get(drawing.closest("figure").id);
  const way = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
  if (!known) return;
  if (event.key === "Escape") return unpoint();
  if ((event.key === "+" || event.key === "-") && (known.figure.lane || known.figure.kind === "heat")) return zoomAround(known, drawing, event.key === "+" ? 0.5 : 2);
  if (way === undefined) return;
  event.preventDefault();
  const all = stops(known.figure, known.width);
  if (!all.length) return;
  const at = Math.max(0, Math.min(all.length - 1, (drawing.dataset.at === undefined ? (way > 0 ? -1 : all.length) : Number(drawing.dataset.at)) + way));
  drawing.dataset.at = at;
  const box = $("svg", drawing).getBoundingClientRect();
  const found = point(drawing, { ...known, px: all[at][0], py: all[at][1], box, scaled: known.width / box.width });
  if (found) $("#spoken").textContent = tipText(found);
}

function zoomAround({ figure, width }, drawing, factor) {
  const [low, high] = figure.x.domain, all = stops(figure, width), at = all[Number(drawing.dataset.at)];
  const middle = at ? lineGeometry(figure, width).x.back(at[0]) : (low + high) / 2, half = ((high - low) * factor) / 2;
  const id = drawing.closest("figure").id;
  choose({ zoom: factor > 1 && half > 600 ? null : [Math.max(0, middle - half), middle + half] });
  $$("[data-figures]").filter((area) => page.stale.has(area) && area.dataset.figures === "time").forEach(draw);
  $(`#${id} .drawing`)?.focus();
}

function drag(drawing, event) {
  const start = locate(drawing, event);
  if (!start || !(start.figure.lane || start.figure.kind === "heat") || drawing.closest("dialog")) return;
  const { x } = lineGeometry(start.figure, start.width);
  const end = (up) => {
    const stop = locate(drawing, up);
    if (!stop || Math.abs(stop.px - start.px) < 8) return;
    const zoom = [x.back(start.px), x.back(stop.px)].sort((a, b) => a - b).map((second) => Math.max(0, second));
    choose({ zoom });
  };
  document.addEventListener("pointerup", end, { once: true });
}

// ---- one trial, downloads, scheme ----------------------------------------------------------------------------------

function openTrial(number_) {
  const i = page.data.trials.number.indexOf(number_), dialog = $("#trial");
  if (i < 0) return;
  $(".body", dialog).innerHTML = trialHtml(page.data, i);
  const alone = { data: page.data, chosen: {}, servers: new Set([page.data.trials.server[i]]), cells: [page.data.trials.cell[i]], rows: [], trials: [i] };
  if (page.data.timelines[i]) [...laneFigures(alone, [i], ""), ...heatFigures(alone, [i])].forEach((figure, k) => page.figures.set(`trial-${k}`, { figure, width: 760 }));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function download(name) {
  const [type, make] = FILES[name], link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([make(page.view)], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function scheme(wanted) {
  document.documentElement.dataset.scheme = wanted;
  for (const button of $$("#scheme button")) button.setAttribute("aria-pressed", String(button.value === wanted));
}

function clicked(event) {
  const target = (selector) => event.target.closest(selector);
  const link = target('a[href^="#"]'), key = target("button.key"), button = target("button");
  const mark = target("use[data-trial]"), drawn = target(".drawing");
  const marked = mark ? mark.dataset.trial : drawn && $(".crowd", drawn) ? trialUnder(drawn, event) : null;
  if (marked !== null) return choose({ trial: Number(marked) }), openTrial(page.chosen.trial);
  if (link?.hash.startsWith("#trial=")) {
    event.preventDefault();
    choose({ trial: Number(link.hash.slice(7)) });
    openTrial(page.chosen.trial);
  } else if (link?.matches(".trials")) {
    event.preventDefault();
    const cell = page.data.cells[Number(link.dataset.cell)];
    choose({ servers: [page.data.servers[Number(link.dataset.server)].name], cells: Object.fromEntries(Object.entries(cell.values).map(([name, value]) => [name, [String(value)]])), page: 0 });
    jump("trials");
  } else if (link) {
    event.preventDefault();
    jump(link.hash.slice(1));
  } else if (key) toggleServer(Number(key.dataset.server));
  else if (button?.dataset.sort) choose({ sort: [button.dataset.sort, page.chosen.sort?.[0] === button.dataset.sort ? -page.chosen.sort[1] : 1], page: 0 }), $(`[data-sort="${CSS.escape(button.dataset.sort)}"]`)?.focus();
  else if (button?.dataset.column !== undefined) sortColumn(button.closest("th"));
  else if (button?.dataset.page) choose({ page: Number(button.dataset.page) });
  else if (button?.dataset.file) download(button.dataset.file);
  else if (button?.closest("#scheme")) scheme(button.value);
  else if (button?.id === "each") choose({ each: !page.chosen.each }), button.setAttribute("aria-pressed", String(page.chosen.each));
  else if (button?.id === "close") $("#trial").close();
  else if (button?.id === "whole") choose({ zoom: null });
}

// Scrolls to a place in the page; the address keeps the filters.
function jump(id) {
  const place = document.getElementById(id);
  if (!place) return;
  for (let details = place.closest("details"); details; details = details.parentElement.closest("details")) details.open = true;
  place.scrollIntoView();
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
}

function listenToFilters(form) {
  underFilters.observe(form);
  form.addEventListener("change", filtersChanged);
  form.addEventListener("input", (event) => event.target.type === "search" && filtersChanged(event));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => (event.preventDefault(), choose({ ...NOTHING, cells: {}, sort: page.chosen.sort })));
}

function listen() {
  if ($("#filters")) listenToFilters($("#filters"));
  document.addEventListener("click", clicked);
  document.addEventListener("pointermove", (event) => {
    const drawing = event.target.closest?.(".drawing");
    if (drawing) point(drawing, locate(drawing, event)); else if (!$("#tip").hidden) unpoint();
  });
  document.addEventListener("pointerdown", (event) => event.target.closest?.(".drawing") && drag(event.target.closest(".drawing"), event));
  document.addEventListener("keydown", (event) => event.target.matches?.(".drawing") && step(event.target, event));
  document.addEventListener("focusout", (event) => event.target.matches?.(".drawing") && unpoint());
  $("#trial")?.addEventListener("close", () => choose({ trial: null }));
  addEventListener("hashchange", () => begin());
  addEventListener("beforeprint", everything);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(); } });
}

// A printed page contains all sections and drawings.
function everything() {
  for (const area of [...page.stale]) draw(area);
  for (const details of $$("details")) details.open = true;
}

function begin() {
  page.chosen = fromAddress(location.hash, page.data);
  show();
  if (page.chosen.trial !== null) openTrial(page.chosen.trial);
}

// A page that was written where nothing could be drawn.
function complete(data) {
  $("#undrawn").outerHTML = shapeDefinitions();
  for (const place of $$("[data-legend]")) place.outerHTML = legendHtml(data, [...data.servers.keys()].slice(1), `${data.roles.each}s`);
}

unpack($("#data")).then((data) => {
  page.data = data;
  if ($("#undrawn")) complete(data);
  document.documentElement.classList.add("live");
  listen();
  begin();
  document.documentElement.dataset.ready = "yes";
});
