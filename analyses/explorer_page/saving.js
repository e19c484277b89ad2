// Copying and downloading: the table behind a figure as CSV, the view as SVG or PNG.

function csvText({ columns, rows }) {
  const field = (value) => {
    const text = typeof value === "number" && !Number.isFinite(value) ? "" : String(exact(value) ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
}

// `table` gives {columns, rows}; `picture` gives the plot or the SVG to save, or null.
function addTools(section, name, table, picture) {
  const tools = section.querySelector(".tools");
  const button = (text, title, act) => {
    const made = element("button", { type: "button", text, title, "aria-label": `${name}: ${title}` });
    made.addEventListener("click", async () => {
      const said = await act();
      made.textContent = said ?? text;
      setTimeout(() => { made.textContent = text; }, 1500);
    });
    tools.append(made);
  };
  button("Copy", "copy the table as CSV", () => copyText(csvText(table())));
  button("CSV", "download the table", () => saveBlob(
    new Blob([csvText(table())], { type: "text/csv" }), fileName(name, "csv")));
  if (!picture) return;
  button("SVG", "download the picture as SVG", () => savePicture(picture(), name, "svg"));
  button("PNG", "download the picture as PNG", () => savePicture(picture(), name, "png"));
}

function wholeTable(table) {
  return { columns: table.names, rows: table.rows().map((row) => Object.values(row)) };
}

function gridTable(grid, index) {
  const quantities = ["effect", "low", "high"];
  const rows = run().steps.flatMap((step, place) => grid.names.map((name, item) =>
    [step, name, ...quantities.map((quantity) => grid.at(quantity, place, item))]));
  return { columns: ["step", index, ...quantities], rows };
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return "not allowed";
  }
  return "copied";
}

function fileName(name, ending) {
  const safe = `${run().name}-${name}`.replaceAll(/[^A-Za-z0-9._-]+/g, "-");
  return `${safe}.${ending}`;
}

function saveBlob(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function savePicture(picture, name, format) {
  if (!picture) return "nothing drawn";
  if (!(picture instanceof SVGElement)) {
    const { offsetWidth: width, offsetHeight: height } = picture;
    const address = await Plotly.toImage(picture, { format, width, height, scale: 2 });
    saveBlob(addressBlob(address), fileName(name, format));
    return undefined;
  }
  const blob = new Blob([standaloneSvg(picture)], { type: "image/svg+xml" });
  saveBlob(format === "svg" ? blob : await rastered(picture), fileName(name, format));
  return undefined;
}

function addressBlob(address) {
  const [head, body] = [address.slice(0, address.indexOf(",")), address.slice(address.indexOf(",") + 1)];
  if (!head.includes("base64")) {
    return new Blob([decodeURIComponent(body)], { type: head.slice(5).split(";")[0].split(",")[0] });
  }
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  return new Blob([bytes], { type: head.slice(5).split(";")[0] });
}

// A copy that looks the same without the page's styles.
function standaloneSvg(svg) {
  const copy = svg.cloneNode(true);
  const inherited = ["fill", "stroke", "stroke-width", "font-family", "font-size", "font-weight",
    "text-anchor", "dominant-baseline", "opacity", "stroke-dasharray"];
  const [from, to] = [svg, copy].map((one) => one.querySelectorAll("*"));
  from.forEach((original, place) => {
    const style = getComputedStyle(original);
    for (const name of inherited) to[place].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.style.background = colours().paper;
  return new XMLSerializer().serializeToString(copy);
}

async function rastered(svg) {
  const [width, height] = ["width", "height"].map((side) => Number(svg.getAttribute(side)));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standaloneSvg(svg))}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * width, height: 2 * height });
  const pen = canvas.getContext("2d");
  pen.fillStyle = colours().paper;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
