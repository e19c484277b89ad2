// The log of the run: a family of quantities with its reference lines, the z-gap, phases, and where
// the checkpoints are.

const FAMILIES = [
  ["losses", /(loss|_ce)(_|$)/],
  ["KL to each predictor", /^kl_/],
  ["shares", /(_mass|_accuracy|^groups?_\d+)$/],
  ["other quantities", /./],
];
const GAP = "z_gap";
const NARROW = 700; // pixels below which labels have no margin of their own
const timelineView = { family: "losses", steps: "linear" };

function quantities() {
  return run().log.names.filter((name) => name !== "step" && !name.endsWith("_se"));
}

function familyOf(name) {
  return FAMILIES.find(([, pattern]) => pattern.test(name))[0];
}

function inFamily() {
  return quantities().filter((name) => name !== GAP && familyOf(name) === timelineView.family);
}

function startTimeline() {
  const section = document.getElementById("timeline");
  if (!run().log.length) return absent(section, "log", "This run has no log of metrics.");
  const families = FAMILIES.map(([name]) => name)
    .filter((family) => quantities().some((name) => name !== GAP && familyOf(name) === family));
  timelineView.family = families[0];
  const plot = section.querySelector(".plot");
  const panel = plotPanel(plot, {
    figure: timelineFigure,
    at: (place) => onAxis(run().steps[place]),
    onPoint: (point) => goTo(nearestPlace(point.x)),
  });
  const choose = (name) => (value) => { timelineView[name] = value; panel.refresh(); };
  section.querySelector(".choices").append(
    chooser("show", families.map((one) => [one, one]), timelineView.family, choose("family")),
    chooser("steps", [["linear", "linear"], ["log", "logarithmic"]], "linear", choose("steps")));
  addTools(section, "timeline", () => wholeTable(run().log), () => panel.drawn && plot);
  section.querySelector(".note").textContent = run().notes.timeline ?? "";
  const readout = section.querySelector(".readout");
  const tell = () => readout.replaceChildren(...measuresNow());
  addPanel({ update: (changed) => changed.has("place") && tell() });
  tell();
  return panel;
}

// A logarithmic axis has no 0; step 0 stands half-way to the first step after it.
function onAxis(step) {
  if (timelineView.steps === "linear" || step > 0) return step;
  return 0.5 * Math.min(...run().log.column("step").filter((other) => other > 0), 1e9);
}

function timelineFigure() {
  const log = run().log, steps = Array.from(log.column("step"), onAxis);
  const names = inFamily();
  const gap = timelineView.family === "losses" && log.has(GAP);
  const data = names.flatMap((name, place) => logTraces(name, place, steps, "y"));
  if (gap) data.push(...logTraces(GAP, names.length, steps, "y2"));
  data.push(checkpointTicks());
  const width = document.getElementById("timeline").clientWidth, narrow = width < NARROW;
  const levels = referenceLevels(names);
  const layout = plotLayout({
    hovermode: "x", margin: { ...sideMargins(width), t: 24, b: 76 },
    legend: { orientation: "h", y: -0.17, yanchor: "top", x: 0, font: { size: 11 } },
    xaxis: { type: timelineView.steps, title: { text: "training step", standoff: 4 }, anchor: "free", position: 0 },
    yaxis: {
      domain: gap ? [0.34, 1] : [0.06, 1],
      title: { text: timelineView.family === "shares" ? "share" : "nats" },
      type: timelineView.family.startsWith("KL") ? "log" : "linear",
    },
    yaxis3: { domain: [0, 0.035], visible: false, fixedrange: true, range: [-1, 1] },
    shapes: [...phaseBands().shapes, ...levels.map(levelLine)],
    annotations: [...phaseBands().labels, ...levelLabels(levels, names, narrow)],
  });
  if (gap) layout.yaxis2 = { ...layout.yaxis, type: "linear", domain: [0.06, 0.29], title: { text: "z-gap" } };
  if (layout.yaxis.type === "log") {
    // Labels of a logarithmic axis are placed by the logarithm.
    layout.annotations.forEach((label) => { if (label.yref === "y") label.y = Math.log10(label.y); });
  }
  return { data, layout };
}

function logTraces(name, place, steps, axis) {
  const log = run().log, look = lineLook(place), values = Array.from(log.column(name));
  const line = {
    x: steps, y: values, type: "scatter", mode: "lines", name: plain(spoken(name)), yaxis: axis,
    line: name === "train_loss" ? { ...look, width: 1, color: mix(colours().paper, colours().ink, 0.4) } : look,
    hovertemplate: `${plain(spoken(name))} %{y:.4g}<extra></extra>`, connectgaps: true,
  };
  if (!log.has(`${name}_se`)) return [line];
  const errors = log.column(`${name}_se`);
  const known = steps.map((_, row) => row).filter((row) => Number.isFinite(values[row] + errors[row]));
  const side = (sign) => known.map((row) => values[row] + sign * 1.96 * errors[row]);
  return [bandTrace(known.map((row) => steps[row]), side(-1), side(1), look.color, { yaxis: axis }), line];
}

function checkpointTicks() {
  return {
    x: run().steps.map(onAxis), y: run().steps.map(() => 0), yaxis: "y3", type: "scatter",
    mode: "markers", name: "checkpoints", showlegend: false,
    marker: { symbol: "line-ns-open", size: 8, color: colours().ink, line: { width: 1 } },
    hovertemplate: "checkpoint %{x}<extra></extra>",
  };
}

// Lines closer than a hundredth of the largest share one label.
function referenceLevels(names) {
  const wanted = new Set(names.flatMap((name) => run().compared[name] ?? []));
  const lines = Object.entries(run().reference_lines)
    .filter(([name, value]) => wanted.has(name) && Number.isFinite(value))
    .sort((a, b) => a[1] - b[1]);
  const near = 0.012 * Math.max(...lines.map(([, value]) => value), 0);
  const levels = [];
  for (const [name, value] of lines) {
    const last = levels.at(-1);
    if (last && value - last.value < near) last.names.push(name);
    else levels.push({ value, names: [name] });
  }
  return levels;
}

function levelName(name) {
  return name === "ln_k" ? "ln K" : spoken(name);
}

function levelLine({ value }) {
  return {
    type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: value, y1: value,
    line: { color: mix(colours().paper, colours().ink, 0.55), width: 1, dash: "dot" },
  };
}

// Labels that would cover each other move apart, from the lowest upwards.
function levelLabels(levels, names, narrow) {
  const values = names.flatMap((name) => Array.from(run().log.column(name))).filter(Number.isFinite);
  const range = Math.max(...values, ...levels.map(({ value }) => value)) - Math.min(...values, 0);
  let last = -Infinity;
  return levels.map(({ value, names: all }) => {
    const height = (value / (range || 1)) * 210 / 1.16; // plotly leaves some room above
    // Inside the plot of a narrow page there is no room to move: one of them has to do.
    if (narrow && height < last + 13) return null;
    const shifted = narrow ? height : Math.max(height, last + 13);
    last = shifted;
    return {
      xref: "paper", x: 1, xanchor: narrow ? "right" : "left", yref: "y", y: value,
      yanchor: narrow ? "bottom" : "middle", yshift: shifted - height, showarrow: false, font: { size: 10.5 },
      text: plain(` ${all.map(levelName).join(", ")} ${shortNumber(value)}`),
    };
  }).filter((label) => label !== null);
}

const LETTER = 6.5; // pixels of a label's letter: no label where its band has no room for it

function phaseBands() {
  const table = run().tables.phases;
  if (!table) return { shapes: [], labels: [] };
  const order = [...new Set(table.column("phase"))];
  const shapes = [], labels = [];
  const end = timelineView.steps === "log" ? (step) => Math.log10(onAxis(step)) : onAxis;
  const ends = [...table.column("start"), ...table.column("end")].map(end);
  const pixels = labelRoom() / (Math.max(...ends) - Math.min(...ends) || 1);
  for (const { phase, start, end: stop } of table.rows()) {
    const colour = phase === "mixed" ? colours().neutral : LINES[order.indexOf(phase) % LINES.length];
    shapes.push({
      type: "rect", layer: "below", xref: "x", yref: "paper", x0: onAxis(start), x1: onAxis(stop),
      y0: 0.06, y1: 1, fillcolor: colour, opacity: 0.11, line: { width: 0 },
    });
    if (pixels * (end(stop) - end(start)) > LETTER * phase.length) labels.push({
      xref: "x", x: (end(start) + end(stop)) / 2, yref: "paper", y: 1, yanchor: "bottom",
      showarrow: false, text: plain(phase), font: { size: 11, color: colours().ink },
    });
  }
  return { shapes, labels };
}

// Width of the plot between its margins.
function labelRoom() {
  const whole = document.getElementById("timeline").clientWidth;
  return whole - sideMargins(whole).l - sideMargins(whole).r;
}

function sideMargins(whole) {
  return { l: 58, r: whole < NARROW ? 12 : 210 };
}

function phaseNow() {
  const rows = run().tables.phases?.rows() ?? [];
  return rows.find(({ start, end }) => start <= currentStep() && currentStep() <= end)?.phase ?? null;
}

// What the diagnostics are at the checkpoint, or, where none were measured, what the log says.
function measuresNow() {
  const step = currentStep(), table = run().tables.diagnostics;
  let rows = table ? table.rows().filter((row) => row.step === step) : [];
  if (!rows.length) {
    const log = run().log, place = log.column("step").indexOf(step);
    rows = place < 0 ? [] : quantities().map((name) => ({
      name, value: log.column(name)[place],
      se: log.has(`${name}_se`) ? log.column(`${name}_se`)[place] : NaN,
    }));
  }
  return rows.filter((row) => Number.isFinite(row.value)).map(({ name, value, se }) => {
    const shown = element("span", {}, element("span", { text: `${levelName(name)} ` }),
      element("b", { text: shortNumber(value) }));
    shown.dataset.measure = name;
    if (Number.isFinite(se)) shown.append(element("span", { text: ` ± ${shortNumber(1.96 * se, 2)}` }));
    return shown;
  });
}
