// Unpacks the page's data: typed columns and grids, each only when it is first asked for.

const KINDS = { f4: Float32Array, i4: Int32Array, u2: Uint16Array };

function unpackNumbers(packed) {
  if (packed.kind === "list") return packed.values.map((value) => (value === null ? NaN : value));
  const raw = atob(packed.bytes);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place += 1) bytes[place] = raw.charCodeAt(place);
  return new KINDS[packed.kind](bytes.buffer);
}

function unpackColumn(packed) {
  if (packed.kind !== "codes") return unpackNumbers(packed);
  return Array.from(unpackNumbers(packed.codes), (code) => packed.names[code]);
}

// A table: {names, length, column(name), has(name), rows()}.
function unpackTable(packed) {
  const kept = new Map();
  const names = Object.keys(packed.columns);
  let made = null;
  const table = {
    names,
    length: packed.rows,
    has: (name) => names.includes(name),
    column: (name) => {
      if (!kept.has(name)) kept.set(name, unpackColumn(packed.columns[name]));
      return kept.get(name);
    },
    // Kept once made, as every move of the cursor looks through them.
    rows: () => (made ??= Array.from({ length: packed.rows }, (_, place) =>
      Object.fromEntries(names.map((name) => [name, table.column(name)[place]])))),
  };
  return table;
}

// A grid has one array of [step, name] for each quantity.
function unpackGrid(packed) {
  const count = packed.names.length;
  const kept = {};
  const grid = {
    names: packed.names,
    place: new Map(packed.names.map((name, place) => [name, place])),
    array: (quantity) => (kept[quantity] ??= unpackNumbers(packed[quantity])),
    at: (quantity, step, item) => grid.array(quantity)[step * count + item],
  };
  return grid;
}

function unpackSetting(packed, steps) {
  const setting = {
    ...packed,
    edges: unpackGrid(packed.edges),
    heads: unpackGrid(packed.heads),
    births: new Map(),
    circuits: new Map(),
  };
  for (const row of unpackTable(packed.births).rows()) setting.births.set(row.component, row);
  for (const [step, kept] of Object.entries(packed.circuits)) {
    setting.circuits.set(steps.indexOf(Number(step)), new Set(kept));
  }
  setting.limit = largest(setting.edges.array("effect")) || 1;
  setting.headLimit = largest(setting.heads.array("effect")) || 1;
  return setting;
}

function unpackRun(packed) {
  return {
    ...packed,
    settings: packed.settings.map((setting) => unpackSetting(setting, packed.steps)),
    log: unpackTable(packed.log),
    tables: Object.fromEntries(
      Object.entries(packed.tables).map(([name, table]) => [name, unpackTable(table)])),
    attention: packed.attention && unpackAttention(packed.attention),
  };
}

function unpackAttention(packed) {
  let shares = null;
  const size = packed.labels.length;
  return {
    ...packed,
    place: new Map(packed.heads.map((name, place) => [name, place])),
    // The pattern of one head at one step, rows being queries.
    pattern: (step, head) => {
      shares ??= unpackNumbers(packed.patterns);
      const start = (step * packed.heads.length + head) * size * size;
      return Array.from(shares.slice(start, start + size * size), (share) => share / packed.scale);
    },
  };
}

function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

const content = JSON.parse(document.getElementById("data").textContent);
const runs = content.runs.map(unpackRun);
