// Two checkpoints, of one run or of two, side by side, and the difference of their circuits.

const compared = { a: { run: 0, place: 0 }, b: { run: 0, place: 0 } };

function startCompare() {
  const section = document.getElementById("compare");
  compared.b = runs.length > 1 ? { run: 1, place: runs[1].steps.length - 1 } : { run: 0, place: run().steps.length - 1 };
  if (runs.length > 1) compared.a.place = run().steps.length - 1;
  const panel = { section, visible: false, stale: true };
  const choices = section.querySelector(".choices");
  const choose = () => {
    choices.replaceChildren(...["a", "b"].flatMap((side) => sideChoices(side, () => { choose(); refresh(); })));
  };
  const refresh = () => {
    panel.stale = true;
    if (panel.visible) drawCompare(panel);
  };
  choose();
  new IntersectionObserver(([entry]) => {
    panel.visible = entry.isIntersecting;
    if (panel.visible && panel.stale) drawCompare(panel);
  }, { rootMargin: "200px" }).observe(section);
  addPanel({ update: (changed) => {
    if (["theme", "setting", "threshold"].some((name) => changed.has(name))) refresh();
  } });
  addTools(section, "difference", () => differenceTable(), () => section.querySelectorAll("svg.circuit")[2]);
}

function sideChoices(side, done) {
  const mine = compared[side];
  const made = [];
  const choose = (part) => { Object.assign(mine, part); done(); };
  if (runs.length > 1) {
    made.push(chooser(`${side.toUpperCase()}: run`, runs.map((one, place) => [String(place), one.name]), String(mine.run),
      (value) => choose({ run: Number(value), place: Math.min(mine.place, runs[Number(value)].steps.length - 1) })));
  }
  const label = runs.length > 1 ? "step" : `${side.toUpperCase()}: step`;
  const steps = chooser(label, runs[mine.run].steps.map((step, place) => [String(place), String(step)]), String(mine.place),
    (value) => choose({ place: Number(value) }));
  steps.querySelector("select").id = `compare-${side}`;
  made.push(steps);
  if (mine.run === 0) {
    made.push(element("button", { type: "button", text: "take the cursor's step", "aria-label": `take the cursor's step for ${side.toUpperCase()}`,
      onclick: () => choose({ place: state.place }) }));
  }
  return made;
}

// The setting of a run that is like the chosen one, or its first.
function likeSetting(one) {
  return one.settings.find((other) => settingName(other) === settingName(setting())) ?? one.settings[0];
}

function sideView(side) {
  const { run: number, place } = compared[side];
  const one = likeSetting(runs[number]);
  return { one, place, title: `${side.toUpperCase()}: ${runs.length > 1 ? `${runs[number].name}, ` : ""}step ${runs[number].steps[place]}` };
}

// Edges that both have, with the difference and how far it may be off: both half intervals, squared
// and added, as the two are measured apart.
function differences() {
  const [a, b] = ["a", "b"].map(sideView);
  return a.one.edges.names.filter((name) => b.one.edges.place.has(name)).map((name) => {
    const read = ({ one, place }, key) => one.edges.at(key, place, one.edges.place.get(name));
    const half = (view) => (read(view, "high") - read(view, "low")) / 2;
    const difference = read(b, "effect") - read(a, "effect");
    return { name, a: read(a, "effect"), b: read(b, "effect"), difference, error: Math.hypot(half(a), half(b)) };
  });
}

function differenceTable() {
  return {
    columns: ["edge", "effect_a", "effect_b", "difference", "half_interval"],
    rows: differences().map((row) => [row.name, row.a, row.b, row.difference, row.error]),
  };
}

function drawCompare(panel) {
  panel.stale = false;
  const { section } = panel;
  const figures = section.querySelectorAll("figure"), views = ["a", "b"].map(sideView), found = differences();
  const limit = Math.max(views[0].one.limit, views[1].one.limit);
  views.forEach((view, place) => {
    figures[place].querySelector("figcaption").textContent = view.title;
    const { edges, layout } = view.one;
    plainGraph(figures[place], layout, edges.names, limit, view.title,
      (item) => edges.at("effect", view.place, item), (item) => isFaint(view.one, view.place, item));
  });
  const sizes = largest(found.map((row) => row.difference)) || 1;
  figures[2].querySelector("figcaption").textContent = `Difference, B less A; full colour at ${shortNumber(sizes)} nats`;
  const names = found.map((row) => row.name);
  if (names.length) {
    plainGraph(figures[2], views[0].one.layout, names, sizes, "Difference",
      (item) => found[item].difference, (item) => !(Math.abs(found[item].difference) > found[item].error));
  }
  const [mineOnly, theirsOnly] = views.map((view) => view.one.edges.names.length - names.length);
  section.querySelector(".note").textContent = "Faint: the difference is within both intervals together. "
    + (mineOnly || theirsOnly ? `${mineOnly} edges are in A alone and ${theirsOnly} in B alone; they have no difference. ` : "")
    + (settingName(views[0].one) === settingName(views[1].one) ? "" : `A is ${settingName(views[0].one)}, B ${settingName(views[1].one)}: not the same measurement.`);
  const top = [...found].sort((x, y) => Math.abs(y.difference) - Math.abs(x.difference)).slice(0, 12);
  section.querySelector(".scroll").replaceChildren(simpleTable(
    ["edge", ...["A", "B", "difference"].map((text) => ({ text, number: true })), ""],
    top.map((row) => ({ cells: [row.name, { text: signed(row.a) }, { text: signed(row.b) },
      { text: `${signed(row.difference)} ± ${shortNumber(row.error)}` }, effectBar(row.difference, sizes)] }))));
}

function plainGraph(figure, layout, names, limit, label, effect, faint) {
  figure.querySelectorAll(".graph").forEach((frame) => {
    const graph = circuitGraph(frame, layout, names, { label, tell: (target) =>
      (typeof target === "string" ? target : `${names[target]}\n${signed(effect(target))} nats`) });
    drawGraph(graph, { effect, faint, limit, threshold: state.threshold, kept: null, node: null, edge: null });
  });
}
