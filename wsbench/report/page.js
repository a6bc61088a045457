// Makes the drawings live: each specification is drawn again with tooltips and a legend that can be clicked.
// Where anything fails, the drawing that is already there stays. Expressions are interpreted, never evaluated as code.
"use strict";

const options = { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom" } };

function live(figure) {
  if (figure.dataset.state) return;
  figure.dataset.state = "drawing";
  const drawing = figure.querySelector(".drawing");
  const spec = JSON.parse(figure.querySelector("script").textContent);
  const stage = document.createElement("div");
  stage.className = "live";
  drawing.after(stage);
  spec.width = "container";
  for (const [name, data] of Object.entries(spec.datasets)) spec.datasets[name] = data.rows.map((row) => named(data, row));
  fitLegend(spec, figure.clientWidth);
  vegaEmbed(stage, spec, options).then(
    () => {
      drawing.hidden = true;
      figure.dataset.state = "live";
    },
    (error) => {
      stage.remove();
      figure.dataset.state = "still";
      console.error(error);
    },
  );
}

// Texts are written once, and by their number in the rows.
function named({ fields, texts }, row) {
  return Object.fromEntries(fields.map((field, place) => [field, texts[field] ? texts[field][row[place]] : row[place]]));
}

// A legend wider than its figure would be cut off.
function fitLegend(spec, width) {
  for (const { encoding } of spec.layer) {
    for (const channel of ["color", "fill", "shape", "strokeDash"]) {
      const legend = encoding[channel]?.legend;
      if (legend) legend.columns = Math.max(1, Math.min(legend.columns, Math.floor((legend.columns * width) / 470)));
    }
  }
}

function openEverything() {
  for (const details of document.querySelectorAll("details")) details.open = true;
}

const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) live(entry.target);
  },
  { rootMargin: "600px" },
);
for (const figure of document.querySelectorAll("figure.chart")) seen.observe(figure);
window.addEventListener("beforeprint", openEverything);
