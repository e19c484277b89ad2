// Heads x steps and edges x steps. A click moves the cursor and selects what was clicked.

function startHeatmaps() {
  startHeatmap("heads", (name) => ({ node: name }));
  startHeatmap("edges", (name) => ({ edge: name }));
}

function startHeatmap(kind, selects) {
  const section = document.getElementById(kind);
  if (!setting()[kind].names.length) return absent(section, kind, "The heads of this setting were not ablated.");
  const plot = section.querySelector(".plot");
  if (kind === "heads") plot.style.height = `${Math.min(760, 90 + 19 * setting().heads.names.length)}px`;
  const panel = plotPanel(plot, {
    figure: () => (kind === "heads" ? headsFigure() : edgesFigure(section)),
    at: (place) => String(run().steps[place]),
    redraw: ["setting"],
    onPoint: (point) => {
      goTo(run().steps.indexOf(Number(point.x)));
      chooseShown(selects(String(point.y)));
    },
  });
  if (kind === "edges") {
    const all = element("input", { type: "checkbox" });
    all.addEventListener("change", () => { edgesView.all = all.checked; panel.refresh(); });
    section.querySelector(".choices").append(element("label", {}, all, "also edges that never leave their noise band"));
  }
  return addTools(section, `${kind}-over-training`, () => gridTable(setting()[kind], kind.slice(0, -1)),
    () => panel.drawn && plot);
}

function chooseShown(part) {
  if (!part.node) return change(part);
  const node = nodeOf(setting(), part.node);
  return node ? change({ node }) : undefined;
}

function headsFigure() {
  const { heads, births, headLimit } = setting();
  const order = [...heads.names].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return heatmapFigure(heads, order, births, headLimit, { showticklabels: true, dtick: 1 });
}

const edgesView = { all: false };
const FEW_BORN = 4; // with fewer, all edges are shown from the start

function edgesFigure(section) {
  const { edges, births } = setting();
  const born = (name) => births.get(name)?.born ?? NaN;
  const peak = (name) => Math.abs(births.get(name)?.peak_effect ?? 0);
  const first = edges.names.filter((name) => Number.isFinite(born(name)));
  const names = edgesView.all || first.length < FEW_BORN ? edges.names : first;
  const order = [...names].sort((a, b) => {
    const [one, other] = [a, b].map((name) => (Number.isFinite(born(name)) ? born(name) : Infinity));
    return one === other ? peak(b) - peak(a) : one - other;
  });
  const limit = saturation(edges, order);
  section.querySelector(".note").textContent =
    `Effect of cutting each edge, earliest born on top; ${first.length} of ${edges.names.length} edges leave their noise `
    + `band, at the dot, to stay out until the end or until they die. Full colour at ${shortNumber(limit)} nats.`;
  section.querySelector(".plot").style.height = `${Math.min(680, 90 + 15 * order.length)}px`;
  return heatmapFigure(edges, order.reverse(), births, limit,
    order.length > 42 ? { nticks: 24, tickfont: { size: 10 } } : { dtick: 1, tickfont: { size: 10 } });
}

// All but the largest 1 % of the effects shown fit into the scale, so that the others are seen.
function saturation(edges, names) {
  const effects = edges.array("effect"), count = edges.names.length;
  const sizes = new Float32Array(names.length * run().steps.length);
  names.forEach((name, row) => {
    for (let place = 0; place < run().steps.length; place += 1) {
      sizes[row * run().steps.length + place] = Math.abs(effects[place * count + edges.place.get(name)]) || 0;
    }
  });
  sizes.sort();
  return sizes[Math.floor(0.99 * (sizes.length - 1))] || setting().limit;
}

function heatmapFigure(grid, order, births, limit, yaxis) {
  const steps = run().steps, theme = colours();
  const z = order.map((name) => {
    const item = grid.place.get(name);
    return steps.map((_, place) => grid.at("effect", place, item));
  });
  const categories = stepCategories();
  const born = order.filter((name) => Number.isFinite(births.get(name)?.born ?? NaN));
  const marks = order.length > 60
    ? { size: 3, color: theme.ink, opacity: 0.75 }
    : { size: 9, symbol: "circle-open", color: theme.ink, line: { width: 1.5 } };
  return {
    data: [
      { type: "heatmap", x: categories, y: order, z, zmin: -limit, zmax: limit, colorscale: divergingScale(),
        colorbar: { thickness: 10, outlinewidth: 0, title: { text: "nats", side: "right" } },
        hovertemplate: "%{y} at step %{x}<br>%{z:+.4g} nats<extra></extra>" },
      { type: "scatter", mode: "markers", marker: marks, hoverinfo: "skip", showlegend: false,
        x: born.map((name) => String(steps[nearestPlace(births.get(name).born)])), y: born },
    ],
    layout: plotLayout({
      margin: { l: 60, r: 10, t: 8, b: 44 },
      xaxis: { type: "category", title: { text: "checkpoint (step)", standoff: 6 }, nticks: 14, showgrid: false,
        range: [-0.5, steps.length - 0.5], categoryorder: "array", categoryarray: categories },
      yaxis: { type: "category", showgrid: false, zeroline: false, range: [-0.5, order.length - 0.5], categoryorder: "array", categoryarray: order, ...yaxis },
    }),
  };
}
