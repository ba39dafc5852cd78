// Puts the data, the address and the sections together.

const KEPT_THEME = "ladder-theme";
const SECTIONS = [drawStrip, drawHeat, drawLadder, drawKernel, drawRoofline, drawAccuracy, drawProfiles, drawTable];

function prepareFilters(data) {
  const form = byId("filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const key of FILTERS) {
    form.elements[key].addEventListener("change", (event) => go({[key]: event.target.value}));
  }
  byId("clear").addEventListener("click", () => 
    go({path: "", dtype: "", shape: "", version: "", verdict: "", kernel: ""}));
}

function drawFilters(data) {
  const form = byId("filters");
  const values = (key) => unique(chosen(data, [key]).map((series) => String(series[key])));
  const options = {
    device: values("device").map((slug) => [slug, data.records.find((record) => record.device === slug).name]),
    path: [["", "all"], ...values("path").map((path) => [path, path])],
    dtype: [["", "all"], ...values("dtype").sort(byDtype).map((dtype) => [dtype, dtype])],
    version: [["", "all"],
      ...values("version").sort((one, other) => one - other).map((version) => [version, versionName(version)])],
    shape: shapeOptions(data),
  };
  for (const key of FILTERS) {
    const wanted = state[key] || "";
    const list = options[key];
    if (!list.some(([value]) => value === wanted)) list.push([wanted, `${wanted} (none)`]);
    fill(form.elements[key], list.map(([value, text]) => el("option", {value}, text)));
    form.elements[key].value = wanted;
    if (key === "device") form.elements[key].parentElement.hidden = list.length < 2;
  }
  byId("shown").textContent = `${chosen(data).length} of ${data.series.length} kernels`;
}

function shapeOptions(data) {
  const here = chosen(data, ["shape"]);
  const present = new Set(here.map((series) => `${layerOf(series)} ${series.shape}`));
  const sets = unique(Object.values(data.shapes).flatMap((layer) => Object.keys(layer)))
    .filter((name) => [...shapesOfSet(data, name)].some((shape) => present.has(shape)));
  const layers = unique(here.map(layerOf));
  const sorted = layers.flatMap((layer) => unique(here.filter((series) => layerOf(series) === layer)
    .map((series) => series.shape)).sort(shapeOrder(data, layer)));
  return [["", "all"], ...sets.map((name) => [`set:${name}`, `set ${name}`]),
    ...unique(sorted).map((shape) =>
        [shape, `${shapeName(data, here.find((series) => series.shape === shape))} ${shape}`.trim()])];
}

function prepareTheme(redraw) {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem(KEPT_THEME); } catch { return null; } };
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme === "dark" ? "light" : "dark";
    button.setAttribute("aria-pressed", String(theme === "dark"));
    button.setAttribute("aria-label", `Switch to ${button.textContent} colours`);
  };
  const current = () => kept() || (system.matches ? "dark" : "light");
  show(current());
  button.addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem(KEPT_THEME, theme); } catch { /* it then lasts as long as the page */ }
    show(theme);
    redraw();
  });
  system.addEventListener("change", () => { show(current()); redraw(); });
}

async function start() {
  const data = await unpack();
  if (!data.series.length) {
    prepareTheme(() => {});
    document.documentElement.classList.add("on");
    return;
  }
  window.ladder = data;  // for whoever opens the console
  const newestDevice = data.records.at(-1).device;
  const draw = () => {
    state = {device: newestDevice, ...stateOf(location.hash)};
    drawFilters(data);
    for (const section of SECTIONS) section(data);
    if (state.at) byId(state.at)?.scrollIntoView();
    document.body.dataset.shown = location.hash;
    document.body.dataset.drawn = Math.round(performance.now());  // milliseconds since the page was asked for
  };
  document.documentElement.classList.add("on");
  prepareTheme(() => SECTIONS.forEach((section) => section(data)));
  prepareFilters(data);
  prepareTable(data);
  for (const anchor of document.querySelectorAll("nav a")) {
    anchor.addEventListener("click", (event) => {
      event.preventDefault();
      const at = anchor.hash.slice(1);
      if (state.at === at) byId(at).scrollIntoView();
      else location.replace(link({at}));
    });
    anchor.dataset.at = anchor.hash.slice(1);
  }
  addEventListener("hashchange", draw);
  draw();
}

start().catch((error) => {
  say("This page could not read its own data: " + error.message);
  throw error;
});
