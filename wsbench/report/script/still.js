// The page before any script runs: the same functions as in the browser, called once when the report is built.

const MOST_LINES = 120; // in all panels of a kind; the live page draws the rest

function still(text, width) {
  const data = JSON.parse(text);
  const every = view(data, {});
  const all = { ...every, panels: Math.max(1, Math.min(MOST_PANELS, Math.floor(MOST_LINES / data.servers.length))) };
  const [first] = sections(all)[0].figures;
  return JSON.stringify({
    ...stillParts(all, all.servers, width),
    results: resultsHtml(all),
    trials: trialsHtml(all, null, 0),
    first: first ? figureHtml(firstFigure(first), width) : "",
  });
}

// The page of a load: one trial, whose lines are kinds of latency. The load itself is the first "server" and no line.
function stillLoad(text, width) {
  const data = JSON.parse(text);
  return JSON.stringify(stillParts(view(data, {}), [...data.servers.keys()].slice(1), width));
}

function stillParts(all, keys, width) {
  const drawn = (section) => ({ note: section.note, html: section.figures.map((figure) => figureHtml(figure, figure.lane ? 2 * width : width)).join("") });
  return {
    sections: Object.fromEntries(sections(all).map((section) => [section.id, drawn(section)])),
    legend: legendHtml(all.data, keys, `${all.data.roles.each}s`),
    shapes: shapeDefinitions(),
    absent: absencesHtml(all),
  };
}

function absencesHtml(view) {
  const missing = absences(view, view.trials.filter((i) => view.data.timelines[i] && view.data.trials.typical[i]));
  return missing.map((text) => `<li>${esc(text)}</li>`).join("");
}

// For tests: every figure of the page as a value.
function allFigures(text) {
  return JSON.stringify(sections(view(JSON.parse(text), {})).flatMap((section) => section.figures));
}
