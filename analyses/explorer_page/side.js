// The side panel: everything about the selected node, or the strongest edges if none is selected.

const LISTED = 8;

function startSide() {
  const side = document.getElementById("side");
  const fill = () => side.replaceChildren(...(state.node ? nodeParts(state.node) : overviewParts()));
  addPanel({
    update: (changed) => {
      if (["place", "node", "setting", "theme", "threshold", "pruned"].some((name) => changed.has(name))) fill();
    },
  });
  fill();
}

// A part with its own heading and buttons; `body` is an element, which may be an SVG.
function sidePart(title, name, table, body) {
  const part = element("div", { className: "part" },
    element("div", { className: "heading" }, element("h3", { text: title }), element("div", { className: "tools" })), body);
  const svg = body.querySelector?.("svg");
  if (table) addTools(part, name, table, svg ? () => svg : null);
  return part;
}

function overviewParts() {
  return [
    element("p", { className: "empty", text: "Click a node, or reach it with Tab and press Enter, to see what it does." }),
    sidePart(`Strongest edges at step ${currentStep()}`, "strongest-edges", circuitTable,
      edgeList(setting().edges.names.map((_, item) => item), 14)),
    ...attributionPart(null),
  ];
}

function nodeParts(node) {
  const clear = element("button", { type: "button", text: "Clear", onclick: () => change({ node: null }) });
  const title = element("div", { className: "heading" },
    element("h2", { id: "selected", text: node }), clear);
  return [title, ...effectParts(node), ...attentionPart(node), ...edgeParts(node), ...attributionPart(node)];
}

// The attention of a layer with a single head is that head, under another name.
function headOf(node) {
  const layer = /^A(\d+)$/.exec(node)?.[1];
  const heads = layer ? setting().heads.names.filter((name) => name.startsWith(`L${layer}H`)) : [];
  return heads.length === 1 ? heads[0] : node;
}

function effectParts(node) {
  const one = setting(), head = one.heads.place.get(headOf(node));
  if (head === undefined) {
    return [element("p", { className: "note", text: "Its own ablation was not measured; see its edges." })];
  }
  const keys = ["effect", "low", "high"];
  const [effect, low, high] = keys.map((key) => one.heads.at(key, state.place, head));
  const value = element("b", { id: "node-effect", text: signed(effect) });
  value.dataset.value = exact(effect);
  const line = element("p", {}, "Ablating it at this step: ", value, ` nats, ${interval(low, high)}; ${bornText(one, headOf(node))}.`);
  const courses = Object.fromEntries(keys.map((key) => [key, run().steps.map((_, place) => one.heads.at(key, place, head))]));
  const table = () => ({
    columns: ["step", ...keys],
    rows: run().steps.map((step, place) => [step, ...keys.map((key) => courses[key][place])]),
  });
  const body = element("div", {}, courseChart(courses, one.births.get(headOf(node))));
  return [line, sidePart("Effect through training", `${node}-effect`, table, body)];
}

// A small line with its interval; checkpoints are evenly spaced, a click moves the cursor.
function courseChart({ effect, low, high }, birth) {
  const [width, height, left, bottom] = [380, 140, 46, 18];
  const theme = colours(), count = effect.length;
  const known = [...effect, ...low, ...high, 0].filter(Number.isFinite);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  const x = (place) => left + (width - left - 8) * (count > 1 ? place / (count - 1) : 0.5);
  const y = (value) => 8 + (height - bottom - 12) * (1 - (value - least) / (most - least || 1));
  const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "ablation effect at every checkpoint" });
  const points = (values, order) => order.filter((place) => Number.isFinite(values[place]))
    .map((place) => `${x(place).toFixed(1)},${y(values[place]).toFixed(1)}`);
  const order = effect.map((_, place) => place);
  svgElement("polygon", { points: [...points(high, order), ...points(low, [...order].reverse())].join(" "),
    fill: theme.negative, opacity: 0.18 }, svg);
  const rule = (value) => svgElement("line", { x1: left, x2: width - 8, y1: y(value), y2: y(value),
    stroke: theme.neutral, "stroke-width": 1 }, svg);
  rule(0);
  svgElement("polyline", { points: points(effect, order).join(" "), fill: "none", stroke: theme.negative, "stroke-width": 2 }, svg);
  const note = (text, px, py, anchor) => {
    svgElement("text", { x: px, y: py, fill: theme.ink, "font-size": 10, "text-anchor": anchor, "font-family": theme.font }, svg).textContent = text;
  };
  note(shortNumber(Number(most.toPrecision(3))), left - 6, y(most) + 4, "end");
  if (y(least) - y(most) > 24 && Math.abs(y(0) - y(most)) > 12) note("0", left - 6, y(0) + 4, "end");
  note(String(run().steps[0]), x(0), height - 4, "start");
  note(String(run().steps.at(-1)), x(count - 1), height - 4, "end");
  if (birth && Number.isFinite(birth.born)) {
    svgElement("circle", { cx: x(nearestPlace(birth.born)), cy: y(effect[nearestPlace(birth.born)]), r: 4.5,
      fill: "none", stroke: theme.positive, "stroke-width": 1.6 }, svg);
  }
  svgElement("line", { x1: x(state.place), x2: x(state.place), y1: 4, y2: height - bottom, stroke: theme.ink,
    "stroke-width": 1.5, opacity: 0.75, class: "now" }, svg);
  svg.style.cursor = "pointer";
  svg.addEventListener("click", (event) => {
    const box = svg.getBoundingClientRect();
    const share = ((event.clientX - box.left) * (width / box.width) - left) / (width - left - 8);
    goTo(Math.round(share * (count - 1)));
  });
  return svg;
}

function attentionPart(node) {
  const { attention } = run();
  const head = attention?.place.get(headOf(node));
  if (head === undefined) return [];
  const pattern = attention.pattern(state.place, head), { labels } = attention;
  const said = element("p", { className: "note", text: "rows: query, columns: key; mean over sequences" });
  const body = element("div", {}, attentionPicture(pattern, labels, said), said);
  const table = () => ({
    columns: ["step", "head", "query", "key", "attention"],
    rows: pattern.map((share, place) => [currentStep(), node, labels[Math.floor(place / labels.length)],
      labels[place % labels.length], Number(share.toFixed(5))]),
  });
  return [sidePart(`Attention at step ${currentStep()}`, `${node}-attention`, table, body)];
}

function attentionPicture(pattern, labels, said) {
  const size = labels.length, theme = colours(), [left, bottom, side] = [64, 50, 250];
  const canvas = element("canvas", { width: size, height: size });
  const pen = canvas.getContext("2d");
  const stops = theme.sequential;
  pattern.forEach((share, place) => {
    const along = Math.min(share, 0.9999) * (stops.length - 1), stop = Math.floor(along);
    pen.fillStyle = mix(stops[stop], stops[stop + 1], along - stop);
    pen.fillRect(place % size, Math.floor(place / size), 1, 1);
  });
  const svg = svgElement("svg", { width: left + side + 8, height: side + bottom + 4, role: "img", "aria-label": "attention pattern",
    viewBox: `0 0 ${left + side + 8} ${side + bottom + 4}` });
  svgElement("image", { href: canvas.toDataURL(), x: left, y: 2, width: side, height: side,
    style: "image-rendering: pixelated", preserveAspectRatio: "none" }, svg);
  svgElement("rect", { x: left, y: 2, width: side, height: side, fill: "none", stroke: theme.neutral }, svg);
  const every = Math.ceil(size / 20), cell = side / size;
  labels.forEach((label, place) => {
    if (place % every) return;
    const spot = 2 + (place + 0.5) * cell;
    const look = { fill: theme.ink, "font-size": 10, "font-family": theme.font, "text-anchor": "end", "dominant-baseline": "central" };
    const short = label.length > 10 ? `${label.slice(0, 9)}…` : label;
    svgElement("text", { ...look, x: left - 5, y: spot }, svg).textContent = short;
    const [x, y] = [left + spot - 2, side + 8];
    svgElement("text", { ...look, x, y, transform: `rotate(-60 ${x} ${y})` }, svg).textContent = short;
  });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), scale = (left + side + 8) / box.width;
    const key = Math.floor(((event.clientX - box.left) * scale - left) / cell);
    const query = Math.floor(((event.clientY - box.top) * scale - 2) / cell);
    if (key < 0 || query < 0 || key >= size || query >= size) return;
    said.textContent = `${labels[query]} looks at ${labels[key]}: ${shortNumber(pattern[query * size + key])}`;
  });
  return svg;
}

function edgeParts(node) {
  const ends = circuit.ends;
  const of = (side) => setting().edges.names.map((_, item) => item).filter((item) => ends[item][side] === node);
  return [["target", "Strongest edges into it", "in"], ["source", "Strongest edges out of it", "out"]]
    .map(([side, title, name]) => [of(side), title, name])
    .filter(([items]) => items.length)
    .map(([items, title, name]) => sidePart(title, `${node}-edges-${name}`, () => edgesTable(items), edgeList(items, LISTED)));
}

function edgesTable(items) {
  const one = setting(), keys = ["effect", "low", "high"];
  return {
    columns: ["step", "edge", ...keys],
    rows: items.map((item) => [currentStep(), one.edges.names[item], ...keys.map((key) => one.edges.at(key, state.place, item))]),
  };
}

function edgeList(items, count) {
  const one = setting(), { place } = state;
  const size = (item) => Math.abs(one.edges.at("effect", place, item)) || 0;
  const first = [...items].sort((a, b) => size(b) - size(a)).slice(0, count);
  const limit = first.length ? size(first[0]) : 1;
  const rows = first.map((item) => {
    const name = one.edges.names[item], effect = one.edges.at("effect", place, item);
    const link = element("button", { type: "button", className: "link", text: name, title: "mark this edge",
      onclick: () => change({ edge: name === state.edge ? null : name }) });
    const low = one.edges.at("low", place, item), high = one.edges.at("high", place, item);
    return { cells: [link, { text: signed(effect) }, { text: Number.isFinite(low) ? `${signed(low, 2)} to ${signed(high, 2)}` : "" }, effectBar(effect, limit)] };
  });
  return element("div", { className: "scroll" },
    simpleTable(["edge", { text: "nats", number: true }, { text: "95 % interval", number: true }, ""], rows));
}

function attributionPart(node) {
  const table = run().tables.attribution;
  if (!table) return [];
  const own = node && headOf(node);
  const rows = table.rows().filter((row) => row.step === currentStep());
  if (!rows.length) return [];
  rows.sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
  const limit = Math.abs(rows[0].contribution);
  const listed = rows.filter((row, place) => place < LISTED || row.source === own);
  const body = simpleTable(["source", { text: "logits", number: true }, ""], listed.map((row) => ({
    chosen: row.source === own,
    cells: [row.source, { text: signed(row.contribution) }, effectBar(row.contribution, limit)],
  })));
  const all = () => ({ columns: table.names, rows: rows.map((row) => table.names.map((name) => row[name])) });
  return [sidePart("Direct contribution to the answer's logit", "logit-attribution", all, element("div", { className: "scroll" }, body))];
}
