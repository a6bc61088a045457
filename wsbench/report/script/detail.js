// All details of one trial as HTML text: verdict, numbers or the reasons why they are missing, plan, command, log.

function trialHtml(data, i) {
  const { trials } = data, server = data.servers[trials.server[i]], name = four(trials.number[i]);
  const cell = data.cells[trials.cell[i]].text;
  const reasons = trials.reasons[i].map((text) => `<li>${esc(data.texts[text])}</li>`).join("");
  const facts = [
    ["verdict", `<span class="tag ${KINDS[trials.kind[i]]}">${KINDS[trials.kind[i]]}</span>${reasons ? `<ul>${reasons}</ul>` : ""}`],
    ["bottleneck", esc(data.texts[trials.limit[i]])],
    ["started", trials.started[i] === null ? "not recorded" : `${esc(new Date(1000 * trials.started[i]).toISOString().replace("T", " ").slice(0, 19))} UTC, took ${number(trials.duration[i])} s`],
    ...(trials.again_of[i] === null ? [] : [["repeats", `trial ${four(trials.again_of[i])}, which the host disturbed`]]),
    ["server", `${esc(server.name)}: <code>${esc(server.command)}</code>`],
    ["CPUs", `server ${esc(data.texts[trials.server_cpus[i]])}, engine ${esc(data.texts[trials.engine_cpus[i]])}`],
    ["server exit", esc(data.texts[trials.exit[i]])],
    ["replay", `<code>wsbench-engine ${name}/plan.json OUT</code>`],
    ["raw files", rawFiles(name)],
  ].map(([term, text]) => `<dt>${term}</dt><dd>${text}</dd>`).join("");
  const log = data.texts[trials.log[i]];
  return `<h2 id="dialog-title">Trial ${name}: ${esc(server.name)}${cell ? `, ${esc(cell)}` : ""}</h2><dl>${facts}</dl><div class="grid">${trialFigures(data, i)}</div>${metricTable(data, i)}<h3>Plan</h3><pre tabindex="0">${esc(planText(data, i))}</pre><h3>Last lines of the server's log</h3><pre tabindex="0">${esc(log || "(empty)")}</pre>`;
}

function rawFiles(name) {
  const files = ["trial.json", "plan.json", "events.jsonl", "latency.hlog", "resources.jsonl", "server.log"].map((file) => `<a href="${name}/${file}">${file}</a>`);
  return `${files.join(", ")} <small>next to this page, if the run directory still has them</small>`;
}

function planOf(data, i) {
  const place = data.trials.plan[i];
  return place === null ? null : { ...data.plans[0], ...data.plans[place] };
}

function planText(data, i) {
  const plan = planOf(data, i);
  return plan === null ? "(the trial has no plan)" : JSON.stringify(plan, null, 1);
}

function trialFigures(data, i) {
  if (!data.timelines[i]) return `<p class="note">${esc(data.roles.no_timelines || "No data over time for this trial.")}</p>`;
  const alone = { data, chosen: {}, servers: new Set([data.trials.server[i]]), cells: [data.trials.cell[i]], rows: [], trials: [i] };
  const figures = [...laneFigures(alone, [i], ""), ...heatFigures(alone, [i])].map((figure, k) => ({ ...figure, id: `trial-${k}` }));
  const missing = absences(alone, [i]).map((text) => `<li>${esc(text)}</li>`).join("");
  return figures.map((figure) => figureHtml(figure, 760)).join("") + (missing ? `<ul class="note">${missing}</ul>` : "");
}

function metricTable(data, i) {
  const rows = Object.values(data.metrics).map((metric) => {
    const value = data.trials.values[metric.name]?.[i] ?? null;
    const text = value === null ? `${NONE} <small>${esc(whyNot(data, metric.name, i))}</small>` : `${shownText(metric, value)} ${esc(metric.shown)}`;
    return `<tr><th scope="row" title="${esc(metric.text)}">${esc(metric.name)}</th><td class="text">${text}</td></tr>`;
  });
  return `<details><summary>All ${rows.length} metrics</summary><table><thead><tr><th scope="col">metric</th><th scope="col" class="text">value</th></tr></thead><tbody>${rows.join("")}</tbody></table></details>`;
}
