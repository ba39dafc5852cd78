// What is shown is in the address after #, and nowhere else: a link restores it, Back undoes it.

const FILTERS = ["device", "path", "dtype", "shape", "version"];
const DTYPES = ["fp32", "tf32", "bf16", "fp16"];

const hashText = (state) => {
  const parameters = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) if (value) parameters.set(key, value);
  return "#" + parameters.toString();
};

// A plain #results is a place on the page, not a state.
function stateOf(hash) {
  const text = hash.replace(/^#/, "");
  return text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {at: text};
}

let state = {};

// The address with some of the state changed; the place on the page is not kept.
function link(changes) {
  const next = {...state, at: "", ...changes};
  return hashText(next);
}

function go(changes) {
  location.replace(link(changes));  // a filter is no page of the history; following a link is
}

const kernelName = (series) => `${series.path}|${series.version}|${series.problem}`;
const kernelLink = (series) => link({kernel: kernelName(series), device: series.device, at: "kernel"});

// The series that pass the filters; `without` names filters to leave aside.
function chosen(data, without = []) {
  const wants = (key) => without.includes(key) ? "" : state[key] || "";
  const shapes = wants("shape").startsWith("set:") ? shapesOfSet(data, wants("shape").slice(4)) : null;
  return data.series.filter((series) =>
    (!wants("device") || series.device === wants("device")) &&
    (!wants("path") || series.path === wants("path")) &&
    (!wants("dtype") || series.dtype === wants("dtype")) &&
    (!wants("version") || String(series.version) === wants("version")) &&
    (shapes ? shapes.has(`${layerOf(series)} ${series.shape}`) : !wants("shape") || series.shape === wants("shape")));
}

const layerOf = (series) => series.path.split("/")[0];

function shapesOfSet(data, name) {
  return new Set(Object.entries(data.shapes).flatMap(([layer, sets]) =>
    Object.keys(sets[name] || {}).map((problem) => `${layer} ${problem}`)));
}

// The name that shapes.txt gives a problem, or nothing; of several the last.
function shapeName(data, series) {
  const sets = Object.values(data.shapes[layerOf(series)] || {});
  return sets.map((problems) => problems[series.shape]).filter(Boolean).at(-1) || "";
}

const byDtype = (one, other) => DTYPES.indexOf(one) - DTYPES.indexOf(other) || one.localeCompare(other);

// In the order of shapes.txt, others after them.
function shapeOrder(data, path) {
  const order = Object.values(data.shapes[path.split("/")[0]] || {}).flatMap((problems) => Object.keys(problems));
  const place = new Map(order.map((shape, at) => [shape, at]));
  return (one, other) => (place.get(one) ?? 1e9) - (place.get(other) ?? 1e9) || one.localeCompare(other);
}

const passed = (series) => series.status === "PASS" && series.times;
const ratioOf = (series) =>
  passed(series) && series.baselineTimes ? series.baselineTimes.median / series.times.median : null;

// What a rate counts: the bytes that must move where the whole pass waits for memory, else arithmetic.
const rateUnit = (series) => series.memoryBound ? "GB/s" : "TFLOP/s";
const workOf = (series) => series.memoryBound ? series.bytes / 1e9 : series.flops / 1e12;
const rateOf = (series, seconds = series.times.median) => workOf(series) / seconds;

// Shares of a time: beside the copy bandwidth of the same record, beside a streaming kernel in the same run, beside
// what the card is announced to do.
const shareOfCopy = (series, seconds = series.times.median) =>
  series.memoryBound && series.copy ? series.bytes / series.copy / seconds : null;
const shareOfStreaming = (series, seconds = series.times.median) =>
  series.memoryBound && series.streaming ? series.streaming / seconds : null;
const shareOfLimit = (series) => shareOfCopy(series) ?? series.roofline / series.times.median;
const limitName = (series) => series.memoryBound && series.copy ? "copy bandwidth" : "card's limit";

// Of several libraries those whose plans were fastest.
const libraryNames = (series) => unique(series.filter((one) => one.baseline).map((one) => one.library)).join(" and ");

// The kernel that is looked at closely: the one asked for, else the one most worth a look.
function kernelOf(data) {
  const device = state.device;
  const asked = data.series.find((series) =>
    kernelName(series) === state.kernel && (!device || series.device === device));
  if (asked) return asked;
  const candidates = chosen(data);
  const called = NOTABLE.map((verdict) =>
    candidates.find((series) => series.verdict.status === verdict && passed(series)));
  const fastest = candidates.filter(passed)  // no rate in bytes beats one in arithmetic, or the reverse
    .sort((one, other) => one.memoryBound - other.memoryBound || rateOf(other) - rateOf(one))[0];
  return called.find(Boolean) || fastest || candidates[0] || null;
}

// Sections about one ladder and type show that of the filters, else the kernel's.
function focus(data) {
  const kernel = kernelOf(data);
  if (!kernel) return null;
  const fitting = chosen(data);
  const fits = fitting.includes(kernel) || !fitting.length;
  const pick = fits ? kernel : fitting[0];
  return {device: pick.device, path: pick.path, dtype: pick.dtype};
}

const inFocus = (series, at) => series.device === at.device && series.path === at.path && series.dtype === at.dtype;
