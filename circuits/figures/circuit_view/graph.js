// The circuit graph as SVG. Elements are made once; a new checkpoint only changes attributes.

const FAINT = 0.16, SOLID = 0.9, ASIDE = 0.045, THIN = 0.6, THICK = 7, SAMPLES = 14, REACH = 7;

function svgElement(kind, attributes, parent) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

// layout: {places, ported, ports}; names: of the edges; hooks: {label, order, onNode, onEdge, tell}.
function circuitGraph(frame, layout, names, hooks) {
  const graph = {
    frame, layout, names, hooks,
    ends: names.map(splitEdge),
    shown: new Uint8Array(names.length),
    usable: new Uint8Array(names.length),
    drawn: names.map(() => ""),
    nodes: new Map(), paths: [], points: [], lit: null,
  };
  graph.svg = svgElement("svg", { class: "circuit", role: "group", "aria-label": hooks.label });
  frame.replaceChildren(graph.svg);
  const order = hooks.order ?? names.map((_, place) => place);
  const lines = svgElement("g", {}, graph.svg);
  for (const place of order) {
    graph.paths[place] = svgElement("path", { "data-edge": names[place], display: "none" }, lines);
  }
  for (const name of Object.keys(layout.places)) graph.nodes.set(name, graphNode(graph, name));
  placeGraph(graph, frame.clientWidth || 600);
  followPointer(graph);
  return graph;
}

function graphNode(graph, name) {
  const node = svgElement("g", {
    class: "node", tabindex: 0, role: "button", "aria-label": `node ${name}`,
    "aria-pressed": "false", "data-node": name,
  }, graph.svg);
  svgElement("rect", {}, node);
  svgElement("text", {}, node).textContent = name;
  if (graph.layout.ported.includes(name)) {
    for (const port of Object.keys(graph.layout.ports)) {
      svgElement("circle", { r: 6, "data-port": port }, node);
      svgElement("text", { class: "port", "data-port": port }, node).textContent = port;
    }
  }
  const choose = () => graph.hooks.onNode?.(name);
  node.addEventListener("click", (event) => { event.stopPropagation(); choose(); });
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      choose();
    }
  });
  return node;
}

// Positions depend on the width alone, never on the effects.
function placeGraph(graph, width) {
  const geometry = graphGeometry(graph.layout, width);
  graph.width = width;
  const { svg } = graph;
  svg.setAttribute("width", geometry.width);
  svg.setAttribute("height", geometry.height);
  svg.style.minWidth = `${geometry.width}px`;
  graph.ends.forEach((edge, place) => {
    const curve = edgeCurve(geometry, graph.layout, edge);
    graph.paths[place].setAttribute("d", curvePath(curve));
    graph.points[place] = curvePoints(curve, SAMPLES);
  });
  for (const [name, node] of graph.nodes) {
    const [x, y] = geometry.place(graph.layout.places[name]);
    const [box, label, ...ports] = node.children;
    const { wide, half } = geometry;
    for (const [key, value] of Object.entries({
      x: x - wide, y: y - half, width: 2 * wide, height: 2 * half,
    })) box.setAttribute(key, value);
    label.setAttribute("x", x);
    label.setAttribute("y", y);
    for (const port of ports) {
      const [px, py] = [x + geometry.shift(port.dataset.port), y + geometry.drop];
      port.setAttribute(port.tagName === "circle" ? "cx" : "x", px);
      port.setAttribute(port.tagName === "circle" ? "cy" : "y", py);
    }
  }
}

// view: {effect(place), faint(place), limit, threshold, kept (a Set of names) or null, node, edge}.
// Returns how many edges are shown.
function drawGraph(graph, view) {
  const { names, shown, usable } = graph;
  let count = 0;
  for (let place = 0; place < names.length; place += 1) {
    const effect = view.effect(place);
    const kept = view.kept === null || view.kept.has(names[place]);
    const large = Math.abs(effect) >= view.threshold;
    shown[place] = kept && large && Number.isFinite(effect) ? 1 : 0;
    usable[place] = shown[place] && !view.faint(place) ? 1 : 0;
    count += shown[place];
  }
  graph.lit = view.node === null ? null : relatives(graph.ends, usable, view.node);
  for (let place = 0; place < names.length; place += 1) paintEdge(graph, view, place);
  for (const [name, node] of graph.nodes) {
    node.classList.toggle("aside", graph.lit !== null && !graph.lit.nodes.has(name));
    node.setAttribute("aria-pressed", String(name === view.node));
  }
  return count;
}

function paintEdge(graph, view, place) {
  const path = graph.paths[place];
  const marked = graph.names[place] === view.edge;
  let look = "";
  if (graph.shown[place]) {
    const effect = view.effect(place);
    const share = effectShare(effect, view.limit);
    let opacity = graph.usable[place] ? SOLID : FAINT;
    if (graph.lit !== null && !graph.lit.edges.has(place)) opacity = ASIDE;
    if (marked) opacity = 1;
    const width = (THIN + (THICK - THIN) * share + (marked ? 2 : 0)).toFixed(1);
    look = `${effectColour(effect, view.limit)} ${width} ${opacity}`;
  }
  if (look === graph.drawn[place] && !marked && !path.classList.contains("marked")) return;
  graph.drawn[place] = look;
  path.classList.toggle("marked", marked);
  if (look === "") {
    path.setAttribute("display", "none");
    return;
  }
  const [stroke, width, opacity] = look.split(" ");
  path.removeAttribute("display");
  path.setAttribute("stroke", stroke);
  path.setAttribute("stroke-width", width);
  path.setAttribute("opacity", opacity);
}

// The nearest shown edge within reach of the pointer; thin lines are hard to hit exactly.
function nearestEdge(graph, x, y) {
  let best = -1, least = REACH * REACH;
  for (let place = 0; place < graph.names.length; place += 1) {
    if (!graph.shown[place]) continue;
    if (graph.lit !== null && !graph.lit.edges.has(place)) continue;
    const points = graph.points[place];
    for (let n = 0; n + 3 < points.length; n += 2) {
      const distance = squareToSegment(x, y, points, n);
      if (distance < least) [least, best] = [distance, place];
    }
  }
  return best;
}

function squareToSegment(x, y, points, n) {
  const [ax, ay] = [points[n], points[n + 1]];
  const [bx, by] = [points[n + 2] - ax, points[n + 3] - ay];
  const along = ((x - ax) * bx + (y - ay) * by) / (bx * bx + by * by || 1);
  const t = Math.max(0, Math.min(1, along));
  return (x - ax - t * bx) ** 2 + (y - ay - t * by) ** 2;
}

function sharedTip() {
  const known = document.querySelector("body > .tip");
  if (known) return known;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  return tip;
}

function followPointer(graph) {
  const tip = sharedTip();
  const under = (event) => {
    const box = graph.svg.getBoundingClientRect();
    return nearestEdge(graph, event.clientX - box.left, event.clientY - box.top);
  };
  const hide = () => { tip.hidden = true; };
  graph.svg.addEventListener("pointermove", (event) => {
    const node = event.target.closest?.(".node")?.dataset.node ?? null;
    const place = node === null ? under(event) : -1;
    if (node === null && place < 0) return hide();
    tip.textContent = graph.hooks.tell(node === null ? place : node);
    tip.hidden = tip.textContent === "";
    const { offsetWidth, offsetHeight } = tip;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - offsetHeight - 8)}px`;
    return undefined;
  });
  graph.svg.addEventListener("pointerleave", hide);
  graph.svg.addEventListener("click", (event) => {
    const place = under(event);
    if (place >= 0) graph.hooks.onEdge?.(graph.names[place]);
    else graph.hooks.onNode?.(null);
  });
}
