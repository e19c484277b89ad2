// What is being looked at. Every panel hears of a change once a frame; the address keeps the view.

const state = {
  place: 0, setting: 0, node: null, edge: null, threshold: 0, pruned: false, playing: false,
};
const panels = [];
let waiting = null;

function run() {
  return runs[0];
}

function setting() {
  return run().settings[state.setting];
}

function currentStep() {
  return run().steps[state.place];
}

// A panel: {update(changed)}; `changed` has the names of what changed.
function addPanel(panel) {
  panels.push(panel);
}

function change(part) {
  const changed = Object.keys(part).filter((name) => part[name] !== state[name]);
  if (!changed.length) return;
  Object.assign(state, part);
  if (waiting === null) {
    waiting = new Set();
    requestAnimationFrame(() => {
      const names = waiting;
      waiting = null;
      for (const panel of panels) panel.update(names);
      rememberView();
    });
  }
  changed.forEach((name) => waiting.add(name));
}

function nearestPlace(step) {
  let best = 0;
  run().steps.forEach((saved, place) => {
    if (Math.abs(saved - step) < Math.abs(run().steps[best] - step)) best = place;
  });
  return best;
}

function goTo(place) {
  change({ place: Math.max(0, Math.min(run().steps.length - 1, place)) });
}

// #step=4000&node=L0H3&edge=...&threshold=0.05&circuit=1&view=zero/head/all
function readView() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const found = { node: null, edge: null, threshold: 0, pruned: asked.get("circuit") === "1" };
  if (/^\d+$/.test(asked.get("step") ?? "")) found.place = nearestPlace(Number(asked.get("step")));
  const view = run().settings.findIndex((one) => settingName(one) === asked.get("view"));
  found.setting = Math.max(view, 0);
  const chosen = run().settings[found.setting];
  found.node = nodeOf(chosen, asked.get("node"));
  if (chosen.edges.place.has(asked.get("edge"))) found.edge = asked.get("edge");
  const threshold = Number(asked.get("threshold"));
  if (threshold > 0) found.threshold = threshold;
  return found;
}

// With the heads of a layer merged, the node of a head is its layer's attention.
function nodeOf(one, name) {
  const merged = name?.replace(/^L(\d+)H\d+$/, "A$1");
  return [name, merged].find((known) => Object.hasOwn(one.layout.places, known)) ?? null;
}

function rememberView() {
  const kept = { step: currentStep() };
  if (state.setting) kept.view = settingName(setting());
  if (state.node) kept.node = state.node;
  if (state.edge) kept.edge = state.edge;
  if (state.threshold) kept.threshold = Number(state.threshold.toPrecision(4));
  if (state.pruned) kept.circuit = 1;
  const address = `#${new URLSearchParams(kept)}`;
  if (address !== location.hash) history.replaceState(null, "", address);
}

function settingName(one) {
  return `${one.ablation}/${one.granularity}/${one.position}`;
}
