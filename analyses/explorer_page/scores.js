// Mechanism scores through training, agreement of cheap edge scores, and who feeds each reader.

const COMPONENTS = 8;

function startScores() {
  const section = document.getElementById("scores"), table = run().tables.scores;
  if (!table?.length) absent(section, "scores", "No mechanism scores were measured.");
  else startScorePanel(section, table);
  startAgreement();
  startHands();
}

function startScorePanel(section, table) {
  const kinds = [...new Set(table.column("score"))];
  let chosen = kinds[0];
  const plot = section.querySelector(".plot");
  const panel = plotPanel(plot, {
    figure: () => scoreFigure(table.rows().filter((row) => row.score === chosen)),
    at: (place) => run().steps[place],
    onPoint: (point) => goTo(nearestPlace(point.x)),
  });
  section.querySelector(".choices").append(chooser("score", kinds.map((kind) => [kind, spoken(kind)]), chosen,
    (value) => { chosen = value; panel.refresh(); }));
  addTools(section, "mechanism-scores", () => wholeTable(table), () => panel.drawn && plot);
}

function scoreFigure(rows) {
  const groups = Map.groupBy ? Map.groupBy(rows, (row) => row.component) : groupRows(rows, "component");
  const peak = (group) => Math.max(...group.map((row) => Math.abs(row.value) || 0));
  const first = [...groups].sort((a, b) => peak(b[1]) - peak(a[1])).slice(0, COMPONENTS);
  const data = first.flatMap(([component, group], place) => {
    const look = lineLook(place), x = group.map((row) => row.step);
    const known = group.filter((row) => Number.isFinite(row.low + row.high));
    const band = bandTrace(known.map((row) => row.step), known.map((row) => row.low), known.map((row) => row.high), look.color);
    const line = { x, y: group.map((row) => row.value), type: "scatter", mode: "lines+markers", marker: { size: 4 },
      name: plain(component || "whole model"), line: look, hovertemplate: `${plain(component)} %{y:.4g}<extra></extra>` };
    return known.length ? [band, line] : [line];
  });
  return { data, layout: plotLayout({ hovermode: "x", xaxis: { title: { text: "training step", standoff: 6 } }, margin: { l: 56, r: 12, t: 12, b: 70 } }) };
}

function groupRows(rows, column) {
  const groups = new Map();
  for (const row of rows) groups.set(row[column], [...(groups.get(row[column]) ?? []), row]);
  return groups;
}

function startAgreement() {
  const section = document.getElementById("agreement"), table = run().tables.agreement;
  if (!table?.length) return absent(section, "agreement", "No cheap edge scores were compared.");
  const plot = section.querySelector(".plot");
  const panel = plotPanel(plot, {
    figure: () => courseFigure(table.rows(), "method", "spearman", "rank correlation"),
    at: (place) => run().steps[place],
    onPoint: (point) => goTo(nearestPlace(point.x)),
  });
  return addTools(section, "agreement", () => wholeTable(table), () => panel.drawn && plot);
}

function courseFigure(rows, by, value, title) {
  const data = [...groupRows(rows, by)].map(([name, group], place) => ({
    x: group.map((row) => row.step), y: group.map((row) => row[value]), type: "scatter", mode: "lines+markers",
    name: plain(spoken(name)), line: lineLook(place), marker: { size: 4 },
    hovertemplate: `${plain(spoken(name))} %{y:.4g}<extra></extra>`,
  }));
  return { data, layout: plotLayout({ hovermode: "x", xaxis: { title: { text: "training step", standoff: 6 } }, yaxis: { title: { text: title } } }) };
}

function startHands() {
  const section = document.getElementById("hands"), table = run().tables.hands;
  if (!table?.length) return absent(section, "hands", "No reader changed its strongest source, or this was not measured.");
  const rows = table.rows().map((row) => ({
    cells: [
      element("button", { type: "button", className: "link", text: row.step, onclick: () => goTo(nearestPlace(row.step)) }),
      String(row.reader), String(row.before), String(row.after),
    ],
  }));
  section.querySelector(".scroll").append(simpleTable(["step", "reader", "before", "after"], rows));
  return addTools(section, "strongest-sources", () => wholeTable(table), null);
}
