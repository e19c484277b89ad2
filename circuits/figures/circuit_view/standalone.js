// One circuit on a page of its own or among other figures: threshold, circuit only, isolation.

function startCircuitView(root) {
  const { layout, names, effect, low, high, kept, unit } =
    JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const inside = kept && new Set(kept);
  const limit = Math.max(...effect.map(Math.abs), 0) || 1;
  const view = {
    effect: (place) => effect[place],
    faint: (place) => !(low[place] > 0 || high[place] < 0),
    limit, threshold: 0, kept: null, node: null, edge: null,
  };
  const number = (value) => `${value < 0 ? "−" : "+"}${Number(Math.abs(value).toPrecision(4))}`;
  const show = () => {
    const shown = drawGraph(graph, view);
    root.querySelector("output").textContent = `≥ ${Number(view.threshold.toPrecision(3))} ${unit}`;
    root.querySelector("p").textContent = `${shown} of ${names.length} edges shown; full colour at `
      + `${Number(limit.toPrecision(4))} ${unit}, by the square root; faint: interval contains 0`
      + (view.node ? `; lit: what leads to ${view.node} and what follows from it` : "");
  };
  const graph = circuitGraph(root.querySelector(".graph"), layout, names, {
    label: "Circuit graph, layers from bottom to top",
    order: names.map((_, place) => place).sort((a, b) => Math.abs(effect[a]) - Math.abs(effect[b])),
    onNode: (node) => { view.node = node === view.node ? null : node; show(); },
    tell: (target) => (typeof target === "string" ? target
      : `${names[target]}\n${number(effect[target])} ${unit}, `
        + (low[target] === null ? "no interval" : `95 % ${number(low[target])} to ${number(high[target])}`)),
  });
  const [slider, only] = ["range", "checkbox"].map((kind) => root.querySelector(`input[type=${kind}]`));
  slider.addEventListener("input", () => { view.threshold = limit * (slider.value / 1000) ** 3; show(); });
  only.closest("label").hidden = !inside;
  only.addEventListener("change", () => { view.kept = only.checked ? inside : null; show(); });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && view.node) { view.node = null; show(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetColours(); show(); });
  show();
}

document.querySelectorAll(".circuit-view").forEach(startCircuitView);
