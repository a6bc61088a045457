// The page before any script runs: the same functions as in the browser, called once when the report is built.

const MOST_LINES = 120; // in all panels of a kind; the live page draws the rest

function still(text, width) {
  const data = JSON.parse(text);
  const every = view(data, {});
  const all = { ...every, panels: Math.max(1, Math.min(MOST_PANELS, Math.floor(MOST_LINES / data.servers.length))) };
  const found = { results: resultsHtml(all), trials: trialsHtml(all, null, 0), legend: legendHtml(data, all.servers, "servers"), sections: {} };
  for (const section of sections(all)) {
    found.sections[section.id] = { note: section.note, html: section.figures.map((figure) => figureHtml(figure, figure.lane ? 2 * width : width)).join("") };
  }
  const [first] = sections(all)[0].figures;
  found.first = first ? figureHtml(firstFigure(first), width) : "";
  found.shapes = shapeDefinitions();
  found.absent = absencesHtml(all);
  return JSON.stringify(found);
}

function absencesHtml(view) {
  const missing = absences(view, view.trials.filter((i) => view.data.timelines[i] && view.data.trials.typical[i]));
  return missing.map((text) => `<li>${esc(text)}</li>`).join("");
}

// For tests: every figure of the page as a value.
function allFigures(text) {
  return JSON.stringify(sections(view(JSON.parse(text), {})).flatMap((section) => section.figures));
}
