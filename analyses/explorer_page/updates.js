// Weight updates: every cosine, its course with the bands of chance and momentum; curvature; and
// how much of the circuit stays from checkpoint to checkpoint.

const updatesView = { group: "model" };

function startUpdates() {
  const table = run().tables.cosines;
  const [matrix, course] = ["cosines", "course"].map((name) => document.getElementById(name));
  if (!table?.length) {
    absent(matrix, "cosines", "Weight updates were not compared.");
    absent(course, "cosines", "Weight updates were not compared.");
  } else startCosines(matrix, course, table);
  startCurvature();
  startOverlap();
}

function startCosines(matrix, course, table) {
  const groups = [...new Set(table.column("group"))];
  if (!groups.includes(updatesView.group)) [updatesView.group] = groups;
  const mine = () => table.rows().filter((row) => row.group === updatesView.group);
  // A checkpoint lies in the last update to start at or before it.
  const span = updateSpan(mine());
  const starts = [...new Set(mine().flatMap((row) => [row.step, row.step + row.lag * span]))];
  const first = plotPanel(matrix.querySelector(".plot"), {
    figure: () => cosineMatrix(mine()),
    at: (place) => String(Math.max(...starts.filter((start) => start <= run().steps[place]))),
    onPoint: (point) => goTo(nearestPlace(Number(point.x))),
  });
  const second = plotPanel(course.querySelector(".plot"), {
    figure: () => cosineCourse(mine(), course),
    at: (place) => run().steps[place],
    onPoint: (point) => goTo(nearestPlace(point.x)),
  });
  matrix.querySelector(".choices").append(chooser("weights of", groups.map((one) => [one, one]), updatesView.group,
    (value) => { updatesView.group = value; first.refresh(); second.refresh(); }));
  const keep = () => ({ columns: table.names, rows: mine().map((row) => table.names.map((name) => row[name])) });
  addTools(matrix, "update-cosines", keep, () => first.drawn && first.plot);
  addTools(course, "update-cosine-course", keep, () => second.drawn && second.plot);
}

function updateSpan(rows) {
  const known = run().provenance.update_span;
  if (known) return Number(known);
  const starts = [...new Set(rows.map((row) => row.step))].sort((a, b) => a - b);
  return starts.length > 1 ? starts[1] - starts[0] : 1;
}

function cosineMatrix(rows) {
  const span = updateSpan(rows), cosine = new Map();
  const starts = new Set();
  for (const row of rows) {
    const later = row.step + row.lag * span;
    starts.add(row.step).add(later);
    cosine.set(`${row.step} ${later}`, row.cosine).set(`${later} ${row.step}`, row.cosine);
  }
  const sorted = [...starts].sort((a, b) => a - b);
  const z = sorted.map((one) => sorted.map((other) => (one === other ? 1 : cosine.get(`${one} ${other}`) ?? null)));
  return squareFigure(sorted.map(String), z, divergingScale(), [-1, 1], "cosine of the updates from %{x} and from %{y}<br>%{z:.4f}<extra></extra>");
}

function squareFigure(steps, z, colorscale, [zmin, zmax], hovertemplate) {
  return {
    data: [{ type: "heatmap", x: steps, y: steps, z, zmin, zmax, colorscale, hovertemplate, hoverongaps: false,
      colorbar: { thickness: 10, outlinewidth: 0 } }],
    layout: plotLayout({ xaxis: { ...stepAxis(steps), title: { text: "step", standoff: 6 } }, yaxis: { ...stepAxis(steps), title: { text: "step" } } }),
  };
}

function stepAxis(steps) {
  return { type: "category", nticks: 12, showgrid: false, zeroline: false, range: [-0.5, steps.length - 0.5],
    categoryorder: "array", categoryarray: steps };
}

function cosineCourse(rows, section) {
  const lag = Math.min(...rows.map((row) => row.lag));
  const mine = rows.filter((row) => row.lag === lag), x = mine.map((row) => row.step);
  const theme = colours(), momentum = run().tables.momentum?.rows().find((row) => row.lag === lag)?.momentum;
  section.querySelector(".note").textContent = `Cosine with the next update (lag ${lag}); shaded: 95 % by chance, each weight's sign being random.`;
  const data = [
    bandTrace(x, mine.map((row) => -row.sign_band), mine.map((row) => row.sign_band), theme.neutral,
      { name: "chance, 95 %", showlegend: true, fillcolor: `${theme.neutral}88` }),
    { x, y: mine.map((row) => row.cosine), type: "scatter", mode: "lines+markers", name: plain(updatesView.group), line: lineLook(0), marker: { size: 5 },
      hovertemplate: "%{y:.4f}<extra></extra>" },
  ];
  if (Number.isFinite(momentum)) {
    data.push({ x: [x[0], x.at(-1)], y: [momentum, momentum], type: "scatter", mode: "lines", name: "momentum alone",
      line: { color: LINES[1], width: 1.5, dash: "dash" }, hovertemplate: "momentum alone %{y:.4f}<extra></extra>" });
  }
  return { data, layout: plotLayout({ hovermode: "x", xaxis: { title: { text: "step at which the earlier update starts", standoff: 6 } }, yaxis: { title: { text: "cosine" } } }) };
}

function startCurvature() {
  const section = document.getElementById("curvature"), table = run().tables.curvature;
  if (!table?.length) return absent(section, "curvature", "Curvature was not computed; ask for it with --curvature.");
  const panel = plotPanel(section.querySelector(".plot"), {
    figure: () => curvatureFigure(table),
    at: (place) => run().steps[place],
    onPoint: (point) => goTo(nearestPlace(point.x)),
  });
  return addTools(section, "curvature", () => wholeTable(table), () => panel.drawn && panel.plot);
}

function curvatureFigure(table) {
  const data = [["lambda_max", "largest eigenvalue"], ["lambda_min", "smallest eigenvalue"]].map(([name, label], place) => ({
    x: Array.from(table.column("step")), y: Array.from(table.column(name)), type: "scatter", mode: "lines+markers", name: label, line: lineLook(place),
    error_y: { array: Array.from(table.column(`${name}_residual`)), thickness: 1 }, hovertemplate: `${label} %{y:.4g}<extra></extra>`,
  }));
  return { data, layout: plotLayout({ hovermode: "x", xaxis: { title: { text: "training step", standoff: 6 } } }) };
}

function startOverlap() {
  const section = document.getElementById("overlap"), table = run().tables.overlap;
  if (!table?.length) return absent(section, "overlap", "The overlap of circuits was not measured.");
  const panel = plotPanel(section.querySelector(".plot"), {
    figure: () => overlapFigure(table.rows()),
    at: (place) => String(run().steps[place]),
    onPoint: (point) => goTo(nearestPlace(Number(point.x))),
  });
  return addTools(section, "circuit-overlap", () => wholeTable(table), () => panel.drawn && panel.plot);
}

function overlapFigure(rows) {
  const steps = [...new Set(rows.flatMap((row) => [row.step_a, row.step_b]))].sort((a, b) => a - b).map(String);
  const shares = new Map();
  for (const row of rows) {
    shares.set(`${row.step_a} ${row.step_b}`, row.jaccard).set(`${row.step_b} ${row.step_a}`, row.jaccard);
  }
  const z = steps.map((one) => steps.map((other) => (one === other ? 1 : shares.get(`${one} ${other}`) ?? null)));
  return squareFigure(steps, z, sequentialScale(), [0, 1], "steps %{x} and %{y}<br>%{z:.3f} in common<extra></extra>");
}
