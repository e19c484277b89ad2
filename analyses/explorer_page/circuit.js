// The circuit at the cursor, with what is shown of it: threshold, pruned circuit, kind of ablation.

let circuit = null;

function startCircuit() {
  const section = document.getElementById("circuit");
  section.querySelector(".legend").append("cutting it lowered the loss",
    element("span", { className: "bar" }), "raised it", element("span", { className: "ends" }));
  settingChoices(section.querySelector(".choices"));
  viewChoices(section.querySelector(".choices"));
  const frame = section.querySelector(".graph");
  buildCircuit(frame);
  new ResizeObserver(() => {
    if (Math.abs(frame.clientWidth - circuit.width) < 4) return;
    placeGraph(circuit, frame.clientWidth);
  }).observe(frame);
  addTools(section, "circuit", circuitTable, () => circuit.svg);
  addPanel({
    update: (changed) => {
      if (changed.has("setting")) buildCircuit(frame);
      else drawCircuit();
    },
  });
}

function buildCircuit(frame) {
  const { edges, layout } = setting();
  const count = edges.names.length, effects = edges.array("effect");
  // Strong edges lie on top; the order is that of the whole training, so that nothing flickers.
  const peak = edges.names.map((_, item) => {
    let most = 0;
    for (let place = item; place < effects.length; place += count) {
      most = Math.max(most, Math.abs(effects[place]) || 0);
    }
    return most;
  });
  circuit = circuitGraph(frame, layout, edges.names, {
    label: "Circuit graph, layers from bottom to top",
    order: edges.names.map((_, item) => item).sort((a, b) => peak[a] - peak[b]),
    onNode: (node) => change({ node: node === state.node ? null : node, edge: null }),
    onEdge: (edge) => change({ edge: edge === state.edge ? null : edge }),
    tell: (target) => (typeof target === "string" ? aboutNode(target) : aboutEdge(target)),
  });
  drawCircuit();
}

function settingChoices(choices) {
  for (const [name, label] of [["ablation", "ablation"], ["granularity", "nodes"], ["position", "positions"]]) {
    const values = [...new Set(run().settings.map((one) => one[name]))];
    const choice = chooser(label, values.map((value) => [value, value]), setting()[name],
      (value) => chooseSetting(nearestSetting(name, value)));
    const select = choice.querySelector("select");
    select.disabled = values.length < 2;
    choices.append(choice);
    const show = () => {
      select.value = setting()[name];
      for (const option of select.options) option.text = withWhatItChanges(name, option.value);
    };
    addPanel({ update: (changed) => changed.has("setting") && show() });
    show();
  }
}

const SETTING = ["ablation", "granularity", "position"];

// The place of the setting that has a value and else as much as it can of the one that is shown.
function nearestSetting(name, value) {
  const shared = run().settings.map((one) => one[name] !== value ? -1
    : SETTING.filter((key) => one[key] === setting()[key]).length);
  return shared.indexOf(Math.max(...shared));
}

// Not all combinations are measured: a choice says what else it would change.
function withWhatItChanges(name, value) {
  const next = run().settings[nearestSetting(name, value)];
  const others = SETTING.filter((key) => key !== name && next[key] !== setting()[key]);
  return others.length ? `${value} (${others.map((key) => next[key]).join(", ")})` : value;
}

function chooseSetting(place) {
  const next = run().settings[place];
  change({ setting: place, node: nodeOf(next, state.node), edge: next.edges.place.has(state.edge) ? state.edge : null });
}

const TURNS = 1000; // of the threshold slider; its scale is steep, as most effects are small

function viewChoices(choices) {
  const toTurn = () => Math.round(TURNS * (state.threshold / setting().limit) ** (1 / 3));
  const slider = element("input", { type: "range", id: "threshold", min: 0, max: TURNS, step: 1,
    value: toTurn(), "aria-label": "least absolute effect shown" });
  const said = element("output", { for: "threshold" });
  slider.addEventListener("input", () =>
    change({ threshold: setting().limit * (Number(slider.value) / TURNS) ** 3 }));
  const pruned = element("input", { type: "checkbox", id: "pruned" });
  pruned.addEventListener("change", () => change({ pruned: pruned.checked }));
  const own = element("input", { type: "checkbox", id: "own-scale" });
  own.addEventListener("change", () => change({ ownScale: own.checked }));
  const show = () => {
    if (document.activeElement !== slider || toTurn() !== Number(slider.value)) slider.value = toTurn();
    said.textContent = `≥ ${shortNumber(state.threshold)} nats`;
    slider.setAttribute("aria-valuetext", `${shortNumber(state.threshold)} nats`);
    pruned.checked = state.pruned;
  };
  show();
  choices.append(
    element("label", {}, "threshold", slider, said),
    element("label", {}, pruned, "only the circuit"),
    element("label", {}, own, "scale to this checkpoint"));
  addPanel({ update: (changed) => {
    if (["threshold", "pruned", "setting"].some((name) => changed.has(name))) show();
  } });
}

// Within its null band where one was measured, else an interval that holds 0.
function isFaint(one, place, item) {
  const { edges } = one;
  const band = one.births.get(edges.names[item]);
  const effect = edges.at("effect", place, item);
  if (band && Number.isFinite(band.band_low) && Number.isFinite(band.band_high)) {
    return effect >= band.band_low && effect <= band.band_high;
  }
  const [low, high] = [edges.at("low", place, item), edges.at("high", place, item)];
  return !(low > 0 || high < 0);
}

// The circuit at a checkpoint: pruned there if that was computed, else what stands out of noise.
function keptEdges(one, place) {
  const pruned = one.circuits.get(place);
  if (pruned) return pruned;
  return new Set(one.edges.names.filter((_, item) => !isFaint(one, place, item)));
}

function limitAt(one, place) {
  if (!state.ownScale) return one.limit;
  const count = one.edges.names.length;
  return largest(one.edges.array("effect").slice(place * count, (place + 1) * count)) || 1;
}

function drawCircuit() {
  const one = setting(), { place } = state;
  const count = one.edges.names.length, effects = one.edges.array("effect");
  const limit = limitAt(one, place);
  const shown = drawGraph(circuit, {
    effect: (item) => effects[place * count + item],
    faint: (item) => isFaint(one, place, item),
    limit,
    threshold: state.threshold,
    kept: state.pruned ? keptEdges(one, place) : null,
    node: state.node,
    edge: state.edge,
  });
  document.querySelector("#circuit .ends").textContent = `full colour at ${shortNumber(limit)} nats, by the square root; faint: within noise`;
  let said = `${shown} of ${count} edges shown`;
  if (state.pruned) {
    said += one.circuits.has(place) ? ", those of the pruned circuit"
      : ", those outside their noise band (no circuit was pruned at this checkpoint)";
  }
  if (state.node) said += `; lit: what leads to ${state.node} and what follows from it, noise left out`;
  if (state.edge) said += `; dashed: ${aboutEdge(one.edges.place.get(state.edge)).replaceAll("\n", ", ")}`;
  document.getElementById("shown").textContent = said;
}

const ranks = new Map();

function rankOf(one, place, item) {
  const key = `${run().settings.indexOf(one)} ${place}`;
  if (!ranks.has(key)) {
    const sizes = one.edges.names.map((_, other) => Math.abs(one.edges.at("effect", place, other)) || 0);
    const rank = new Int32Array(sizes.length);
    sizes.map((_, other) => other).sort((a, b) => sizes[b] - sizes[a])
      .forEach((other, position) => { rank[other] = position + 1; });
    ranks.set(key, rank);
  }
  return ranks.get(key)[item];
}

function bornText(one, component) {
  const row = one.births.get(component);
  if (!row) return "birth not measured";
  if (!Number.isFinite(row.born)) return "never wholly outside its noise band";
  return `born at step ${row.born}${Number.isFinite(row.died) ? `, gone at ${row.died}` : ""}`;
}

function aboutEdge(item) {
  const one = setting(), { place } = state, name = one.edges.names[item];
  const [effect, low, high] = ["effect", "low", "high"].map((key) => one.edges.at(key, place, item));
  return [
    name,
    `${signed(effect)} nats, ${interval(low, high)}`,
    `rank ${rankOf(one, place, item)} of ${one.edges.names.length}, ${bornText(one, name)}`,
    ...(isFaint(one, place, item) ? ["within its noise band"] : []),
  ].join("\n");
}

function aboutNode(name) {
  const head = setting().heads.place.get(headOf(name));
  if (head === undefined) return name;
  const [effect, low, high] = ["effect", "low", "high"].map((key) => setting().heads.at(key, state.place, head));
  return `${name}\nablating it: ${signed(effect)} nats, ${interval(low, high)}\n${bornText(setting(), headOf(name))}`;
}

function circuitTable() {
  const one = setting(), { place } = state;
  const kept = state.pruned ? keptEdges(one, place) : null;
  const rows = one.edges.names.map((name, item) => [
    currentStep(), name, ...["effect", "low", "high"].map((key) => one.edges.at(key, place, item)),
    rankOf(one, place, item), one.births.get(name)?.born ?? NaN, isFaint(one, place, item),
  ]).filter((row) => Math.abs(row[2]) >= state.threshold && (kept === null || kept.has(row[1])));
  rows.sort((a, b) => a[5] - b[5]);
  return { columns: ["step", "edge", "effect", "low", "high", "rank", "born", "within_noise"], rows };
}
