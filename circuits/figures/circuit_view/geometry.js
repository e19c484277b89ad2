// Where nodes and edges of the circuit graph run, in pixels, from places in node spacings.

const ROOM = 0.65; // node spacings left free on either side

function splitEdge(name) {
  const [source, reader] = name.split("->");
  const [target, port] = reader.split(".");
  return { source, target, port: port ?? null };
}

// Fits the graph into a width: spacings shrink to a floor, below which the frame scrolls.
function graphGeometry(layout, width) {
  const spots = Object.values(layout.places);
  const [xs, ys] = [0, 1].map((axis) => spots.map((spot) => spot[axis]));
  const left = Math.min(...xs), spanX = Math.max(...xs) - left;
  const top = Math.max(...ys), spanY = top - Math.min(...ys);
  const free = spanX + ROOM + Math.max(ROOM, bulge(layout, Math.max(...xs)));
  const dx = Math.min(140, Math.max(50, width / free));
  const dy = Math.min(84, Math.max(46, 700 / (spanY + 1)));
  const half = Math.min(17, dy * 0.22);
  return {
    width: Math.round(dx * free),
    height: Math.round(dy * spanY + 4.2 * half),
    half,
    wide: Math.min(26, dx * 0.4),
    drop: Math.min(23, dy * 0.29),
    place: ([x, y]) => [dx * (x - left + ROOM), dy * (top - y) + 1.6 * half],
    shift: (port) => Math.min(0.24 * dx, 17) * Math.sign(layout.ports[port]),
    bend: (rows, columns) => dx * bendOf(rows, columns),
  };
}

// An edge that stays in its column but skips rows bends aside, by so many node spacings.
function bendOf(rows, columns) {
  return Math.abs(columns) < 0.75 && rows > 1.5 ? 0.3 * Math.min(rows - 1, 4) : 0;
}

// How far the bends of the rightmost column reach beyond it; a curve goes 3/4 of its handles' way.
function bulge(layout, right) {
  const rows = Object.values(layout.places).filter(([x]) => x > right - 0.75).map(([, y]) => y);
  return 0.75 * bendOf(Math.max(...rows) - Math.min(...rows), 0) + 0.15;
}

// The same curve as in the Python figure: vertical at both ends, bent aside where rows are skipped.
function edgeCurve(geometry, layout, edge) {
  const [start, end] = [layout.places[edge.source], layout.places[edge.target]];
  const [x0, y0] = geometry.place(start);
  const [x1, y1] = geometry.place(end);
  const bend = geometry.bend(end[1] - start[1], end[0] - start[0]);
  const foot = edge.port === null ? geometry.half : geometry.drop;
  const from = [x0, y0 - geometry.half];
  const to = [x1 + (edge.port === null ? 0 : geometry.shift(edge.port)), y1 + foot];
  const middle = (from[1] + to[1]) / 2;
  return [from, [from[0] + bend, middle], [to[0] + bend, middle], to];
}

function curvePath(curve) {
  const [from, first, second, to] = curve.map((spot) => spot.map((one) => one.toFixed(1)).join(" "));
  return `M${from}C${first} ${second} ${to}`;
}

function curvePoints(curve, count) {
  const points = new Float32Array(2 * count);
  for (let n = 0; n < count; n += 1) {
    const t = n / (count - 1), s = 1 - t;
    const weights = [s * s * s, 3 * t * s * s, 3 * t * t * s, t * t * t];
    for (let axis = 0; axis < 2; axis += 1) {
      points[2 * n + axis] = weights.reduce((sum, w, k) => sum + w * curve[k][axis], 0);
    }
  }
  return points;
}

// All nodes from which `node` can be reached, or which it reaches, with the edges on the way.
function relatives(ends, usable, node) {
  const lit = new Set(), nodes = new Set([node]);
  for (const [near, far] of [["source", "target"], ["target", "source"]]) {
    const found = new Set([node]), queue = [node];
    while (queue.length) {
      const current = queue.pop();
      ends.forEach((edge, place) => {
        if (edge[near] !== current || !usable[place]) return;
        lit.add(place);
        if (!found.has(edge[far])) {
          found.add(edge[far]);
          queue.push(edge[far]);
        }
      });
    }
    found.forEach((one) => nodes.add(one));
  }
  return { edges: lit, nodes };
}
