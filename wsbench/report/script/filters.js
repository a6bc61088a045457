// The filters: the selection, its form in the address, and the HTML form. Pure.
// Address: #servers=a,b&language=Java&tag=x&text=netty&cell.connections=16,64&each=1&zoom=2-5&sort=number:-1&page=2&trial=12

const NOTHING = { servers: null, language: "", tag: "", text: "", cells: {}, each: false, zoom: null, sort: null, page: 0, trial: null };

function fromAddress(hash, data) {
  const chosen = { ...NOTHING, cells: {} };
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const known = (values, all) => values.filter((value) => all.includes(value));
  for (const [key, value] of given) {
    if (key === "servers") chosen.servers = known(value.split(","), data.servers.map((server) => server.name));
    if (key === "language" || key === "tag" || key === "text") chosen[key] = value;
    if (key.startsWith("cell.")) {
      const found = known(value.split(","), valuesOf(data, key.slice(5)));
      if (found.length) chosen.cells[key.slice(5)] = found;
    }
    if (key === "each") chosen.each = value === "1";
    if (key === "zoom" && /^[\d.]+-[\d.]+$/.test(value)) chosen.zoom = value.split("-").map(Number);
    if (key === "sort" && /^\w+:-?1$/.test(value)) chosen.sort = [value.split(":")[0], Number(value.split(":")[1])];
    if (key === "page") chosen.page = Math.max(0, Number.parseInt(value, 10) - 1 || 0);
    if (key === "trial" && data.trials.number.includes(Number(value))) chosen.trial = Number(value);
  }
  return chosen;
}

function toAddress(chosen) {
  const given = new URLSearchParams();
  if (chosen.servers) given.set("servers", chosen.servers.join(","));
  for (const key of ["language", "tag", "text"]) if (chosen[key]) given.set(key, chosen[key]);
  for (const [key, values] of Object.entries(chosen.cells)) given.set(`cell.${key}`, values.join(","));
  if (chosen.each) given.set("each", "1");
  if (chosen.zoom) given.set("zoom", chosen.zoom.map((second) => Number(second.toFixed(2))).join("-"));
  if (chosen.sort) given.set("sort", chosen.sort.join(":"));
  if (chosen.page) given.set("page", String(chosen.page + 1));
  if (chosen.trial !== null) given.set("trial", String(chosen.trial));
  return given.toString().replaceAll("%2C", ",");
}

function valuesOf(data, key) {
  return [...new Set(data.cells.map((cell) => String(cell.values[key])))];
}

function isFiltered(chosen) {
  return Boolean(chosen.servers || chosen.language || chosen.tag || chosen.text || Object.keys(chosen.cells).length);
}

function filtersHtml(data, chosen) {
  const option = (value, text, current) => `<option value="${esc(value)}"${value === current ? " selected" : ""}>${esc(text)}</option>`;
  const select = (name, title, values, current) => (values.length < 2 ? "" : `<label>${esc(title)} <select name="${esc(name)}">${option("", "all", current)}${values.map((value) => option(value, value, current)).join("")}</select></label>`);
  const languages = [...new Set(data.servers.map((server) => server.language))].sort();
  const tags = [...new Set(data.servers.flatMap((server) => server.tags))].sort();
  const cells = data.keys.map((key) => {
    const values = valuesOf(data, key.name), current = chosen.cells[key.name] || [];
    return current.length > 1 ? select(`cell.${key.name}`, key.title, [...values, current.join(",")], current.join(",")) : select(`cell.${key.name}`, key.title, values, current[0] || "");
  });
  const boxes = data.servers.map((server) => `<label class="box"><input type="checkbox" name="server" value="${esc(server.name)}"${!chosen.servers || chosen.servers.includes(server.name) ? " checked" : ""}>${swatch(server.look)}${esc(server.name)}</label>`);
  const count = chosen.servers ? `${chosen.servers.length} of ${data.servers.length}` : `all ${data.servers.length}`;
  const servers = `<details class="servers"><summary>Servers: ${count}</summary><fieldset><legend>Servers and variants</legend>${boxes.join("")}</fieldset></details>`;
  const text = `<label>Name <input type="search" name="text" value="${esc(chosen.text)}" size="12"></label>`;
  const reset = `<button type="reset"${isFiltered(chosen) ? "" : " hidden"}>Reset filters</button>`;
  return servers + text + select("language", "Language", languages, chosen.language) + select("tag", "Tag", tags, chosen.tag) + cells.join("") + reset;
}
