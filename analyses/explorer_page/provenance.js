// What decided the numbers, and the command that rebuilds the page.

function startProvenance() {
  const list = document.querySelector("#provenance dl");
  const add = (term, text, className = "") => {
    if (text === undefined || text === null || text === "") return;
    list.append(element("dt", { text: term }), element("dd", { text, className }));
  };
  for (const one of runs) {
    const { shown = {} } = one.provenance;
    add("run", one.name);
    add("task", one.task);
    for (const [term, value] of Object.entries(shown)) {
      add(spoken(term), typeof value === "object" && value !== null
        ? Object.entries(value).map(([name, inner]) => `${name} ${inner}`).join(", ") : String(value ?? ""));
    }
  }
  add("rebuild with", content.command, "command");
  document.querySelector("#provenance pre").textContent =
    JSON.stringify(Object.fromEntries(runs.map((one) => [one.name, one.provenance])), null, 1);
  addTools(document.getElementById("provenance"), "births", () => ({
    columns: ["component", "kind", "born", "died", "band_low", "band_high", "peak_step", "peak_effect"],
    rows: [...setting().births.values()].map((row) => Object.values(row)),
  }), null);
}
