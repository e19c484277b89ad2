// Starts the page: title, theme, transport and keys, then every panel.

function startTheme() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const kinds = ["auto", "light", "dark"];
  const show = () => {
    const kind = root.dataset.theme ?? "auto";
    button.textContent = `Theme: ${kind}`;
    button.setAttribute("aria-label", `colours: ${kind}; press for the next`);
  };
  const renew = () => { forgetColours(); change({ theme: (state.theme ?? 0) + 1 }); };
  button.addEventListener("click", () => {
    const next = kinds[(kinds.indexOf(root.dataset.theme ?? "auto") + 1) % kinds.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    show();
    renew();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renew);
  show();
}

function startTransport() {
  const slider = document.getElementById("step"), now = document.getElementById("now");
  const play = document.getElementById("play");
  slider.max = run().steps.length - 1;
  if (run().steps.length <= 60) {
    document.getElementById("ticks").append(...run().steps.map((_, place) => element("option", { value: place })));
  }
  const show = () => {
    slider.value = state.place;
    slider.setAttribute("aria-valuetext", `step ${currentStep()}`);
    const phase = phaseNow();
    now.replaceChildren(`step ${currentStep()}`, element("span", { className: "phase",
      text: ` · ${state.place + 1} of ${run().steps.length}${phase ? ` · ${phase}` : ""}` }));
  };
  slider.addEventListener("input", () => goTo(Number(slider.value)));
  document.getElementById("back").addEventListener("click", () => goTo(state.place - 1));
  document.getElementById("forth").addEventListener("click", () => goTo(state.place + 1));
  play.addEventListener("click", togglePlay);
  addPanel({ update: (changed) => {
    if (changed.has("place")) show();
    if (changed.has("playing")) {
      play.textContent = state.playing ? "Pause" : "Play";
      play.setAttribute("aria-pressed", String(state.playing));
    }
  } });
  show();
}

let player = null;

function togglePlay() {
  clearInterval(player);
  if (state.playing) return change({ playing: false });
  const last = run().steps.length - 1;
  if (state.place === last) goTo(0);
  const pause = Math.max(120, Math.min(700, 14_000 / run().steps.length));
  player = setInterval(() => {
    if (state.place < last) goTo(state.place + 1);
    else togglePlay();
  }, pause);
  return change({ playing: true });
}

function startKeys() {
  const moves = {
    ArrowLeft: () => goTo(state.place - 1), ArrowRight: () => goTo(state.place + 1),
    Home: () => goTo(0), End: () => goTo(run().steps.length - 1),
    " ": togglePlay, Escape: () => change({ node: null, edge: null }),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in moves)) return;
    // Sliders, menus and buttons use these keys themselves.
    const own = event.key === " " ? "input, select, button, summary, .node" : "input, select, textarea";
    if (event.key !== "Escape" && event.target.closest?.(own)) return;
    event.preventDefault();
    moves[event.key]();
  });
}

function startPage() {
  const first = run(), second = runs[1];
  document.getElementById("name").textContent = second ? `${first.name} and ${second.name}` : first.name;
  document.getElementById("subtitle").textContent =
    [spoken(first.task), ...(first.provenance.subtitle ?? []), `${first.steps.length} checkpoints`].join(" · ");
  state.place = first.steps.length - 1;
  Object.assign(state, readView());
  addEventListener("hashchange", () => change(readView()));
  startTheme();
  startTransport();
  startKeys();
  startCircuit();
  startSide();
  startTimeline();
  startHeatmaps();
  startScores();
  startUpdates();
  startCompare();
  startProvenance();
}

startPage();
