// Numbers and names as text.

function signed(value, digits = 4) {
  if (!Number.isFinite(value)) return "not measured";
  const text = Math.abs(value) < 1e-12 ? "0" : shortNumber(Math.abs(value), digits);
  return `${value < 0 && text !== "0" ? "−" : "+"}${text}`;
}

function shortNumber(value, digits = 4) {
  if (!Number.isFinite(value)) return "not measured";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e-4 && size < 1e6 ? String(Number(value.toPrecision(digits))) : value.toExponential(2);
}

function interval(low, high) {
  return Number.isFinite(low) && Number.isFinite(high)
    ? `95 % ${signed(low)} to ${signed(high)}` : "no interval";
}

// The shortest decimal that is the same float32, so that a table shows no false digits.
function exact(value) {
  if (typeof value !== "number") return value;
  if (Math.fround(value) !== value || Number.isInteger(value)) return value;
  for (let digits = 6; digits < 10; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

// Plotly reads labels as a small part of HTML.
function plain(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function spoken(name) {
  return String(name).replaceAll("_", " ");
}

function element(kind, properties = {}, ...children) {
  const { className, text, ...attributes } = properties;
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function chooser(label, options, value, choose) {
  const select = element("select", { onchange: () => choose(select.value) });
  for (const [key, text] of options) {
    select.append(element("option", { value: key, text, selected: key === value }));
  }
  return element("label", {}, label, select);
}

// A table of texts; a row is {cells, chosen}, a cell a text, an element or {text, number}.
function simpleTable(headings, rows) {
  const head = headings.map((heading) => element("th", {
    text: heading.text ?? heading, scope: "col", className: heading.number ? "number" : "",
  }));
  const body = rows.map(({ cells, chosen }) => {
    const made = cells.map((cell) => {
      if (cell instanceof Node) return element("td", { className: cell.dataset.cell ?? "" }, cell);
      const number = typeof cell === "object";
      return element("td", { text: number ? cell.text : cell, className: number ? "number" : "" });
    });
    return element("tr", { className: chosen ? "chosen" : "" }, ...made);
  });
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...body));
}

function effectBar(value, limit) {
  const bar = element("span", { className: "bar" });
  bar.dataset.cell = "bars";
  bar.style.width = `${(100 * Math.min(Math.abs(value) / (limit || 1), 1)).toFixed(1)}%`;
  bar.style.background = value < 0 ? "var(--negative)" : "var(--positive)";
  return bar;
}
