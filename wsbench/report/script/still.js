// The page as it is before any script runs: the same functions as in the browser, called once when the report is built.

function still(text, width) {
  const data = JSON.parse(text);
  const all = view(data, {});
  const found = { results: resultsHtml(all), trials: trialsHtml(all, null, 0), legend: legendHtml(data, all.servers, "servers"), sections: {} };
  for (const section of sections(all)) {
    found.sections[section.id] = { note: section.note, html: section.figures.map((figure) => figureHtml(figure, figure.lane || figure.kind === "heat" ? 2 * width : width)).join("") };
  }
  const [first] = sections(all)[0].figures;
  found.first = first ? figureHtml({ ...first, id: `${first.id}-first` }, width) : "";
  found.absent = absencesHtml(all);
  return JSON.stringify(found);
}

function absencesHtml(view) {
  const missing = absences(view, view.trials.filter((i) => view.data.timelines[i] && view.data.trials.typical[i]));
  return missing.map((text) => `<li>${esc(text)}</li>`).join("");
}
