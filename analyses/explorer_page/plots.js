// Plotly panels: drawn when they come into view, never before the first paint; the cursor is a
// line of our own on top, so that moving it redraws nothing.

let plotlyLoading = null;

function loadPlotly() {
  plotlyLoading ??= new Promise((resolve) => {
    // The text may still be on its way from the disk when this script already runs.
    const ready = (act) => (document.readyState === "loading"
      ? document.addEventListener("DOMContentLoaded", act, { once: true }) : act());
    ready(() => requestAnimationFrame(() => setTimeout(() => {
      const script = document.createElement("script");
      script.textContent = document.getElementById("plotly").textContent;
      document.head.append(script);
      resolve();
    }, 0)));
  });
  return plotlyLoading;
}

// figure() gives {data, layout} or null; at(place) gives the cursor's x value, or null.
// `redraw` names the parts of the state whose change needs a new drawing.
function plotPanel(plot, { figure, at = null, redraw = [], onPoint = null }) {
  const panel = { plot, stale: true, visible: false, cursor: null, figure, at, onPoint };
  if (at) {
    panel.cursor = element("div", { className: "cursor", hidden: true });
  }
  new IntersectionObserver(([entry]) => {
    panel.visible = entry.isIntersecting;
    if (panel.visible && panel.stale) drawPlot(panel);
  }, { rootMargin: "300px" }).observe(plot);
  panel.refresh = () => {
    panel.stale = true;
    if (panel.visible) drawPlot(panel);
  };
  addPanel({
    update: (changed) => {
      if (changed.has("theme") || redraw.some((name) => changed.has(name))) panel.refresh();
      else if (changed.has("place")) moveCursor(panel);
    },
  });
  return panel;
}

async function drawPlot(panel) {
  panel.stale = false;
  await loadPlotly();
  const { plot } = panel;
  const figure = panel.figure();
  if (figure === null) return;
  const config = { displaylogo: false, responsive: true, displayModeBar: false };
  await Plotly.react(plot, figure.data, figure.layout, config);
  if (!panel.drawn) {
    panel.drawn = true;
    plot.on("plotly_afterplot", () => moveCursor(panel));
    plot.on("plotly_relayout", () => moveCursor(panel));
    if (panel.onPoint) plot.on("plotly_click", (event) => panel.onPoint(event.points[0]));
    if (panel.cursor) plot.append(panel.cursor);
  }
  moveCursor(panel);
}

function moveCursor(panel) {
  const axes = panel.plot._fullLayout;
  if (!panel.cursor || !axes?.xaxis) return;
  const value = panel.at(state.place);
  const { xaxis } = axes;
  const x = value === null ? NaN : onScreen(xaxis, value);
  const inside = Number.isFinite(x) && x >= -1 && x <= xaxis._length + 1;
  panel.cursor.hidden = !inside;
  if (!inside) return;
  const size = axes._size;
  panel.cursor.style.left = `${xaxis._offset + x}px`;
  panel.cursor.style.top = `${size.t}px`;
  panel.cursor.style.height = `${size.h}px`;
}

// A category is known to its axis by its number.
function onScreen(axis, value) {
  return axis.type === "category" ? axis.c2p(axis._categories.indexOf(value)) : axis.d2p(value);
}

function plotLayout(more = {}) {
  const theme = colours();
  const faint = mix(theme.paper, theme.ink, 0.12);
  const axis = {
    gridcolor: faint, zerolinecolor: mix(theme.paper, theme.ink, 0.3), linecolor: faint,
    automargin: true, fixedrange: false,
  };
  const { xaxis, yaxis, ...rest } = more;
  return {
    font: { family: theme.font, color: theme.ink, size: 12 },
    paper_bgcolor: theme.paper, plot_bgcolor: theme.paper,
    margin: { l: 56, r: 12, t: 12, b: 40 },
    hoverlabel: { bgcolor: theme.paper, bordercolor: theme.neutral, font: { color: theme.ink } },
    legend: { orientation: "h", y: -0.16, yanchor: "top", x: 0, font: { size: 11 } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
    ...rest,
  };
}

// Colours of Okabe and Ito that read on both papers, with dashes once they run out.
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f"];

function lineLook(place) {
  const dashes = ["solid", "dash", "dot", "dashdot"];
  return {
    color: LINES[place % LINES.length], width: 2,
    dash: dashes[Math.floor(place / LINES.length) % dashes.length],
  };
}

function bandTrace(x, low, high, colour, more = {}) {
  const both = [...x, ...Array.from(x).reverse()];
  return {
    x: both, y: [...high, ...Array.from(low).reverse()], type: "scatter", mode: "lines",
    fill: "toself", fillcolor: `${colour}2e`, line: { width: 0 }, hoverinfo: "skip",
    showlegend: false, ...more,
  };
}

// On a surface the middle is the paper; the grey that keeps a thin line visible would be heavy.
function divergingScale() {
  const theme = colours();
  return [[0, theme.negative], [0.5, theme.paper], [1, theme.positive]];
}

function sequentialScale() {
  return colours().sequential.map((colour, place, all) => [place / (all.length - 1), colour]);
}

// Checkpoints evenly spaced and labelled by their step: a category axis of step names.
function stepCategories() {
  return run().steps.map(String);
}

// A panel without data makes room for the others; the foot of the page says why it is missing.
function absent(section, name, fallback) {
  section.hidden = true;
  const title = section.querySelector("h2").textContent;
  document.getElementById("missing").append(
    element("li", { text: `${title}: ${run().absent[name] ?? fallback}` }));
}
