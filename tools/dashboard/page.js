// Filters, charts and the table's order. What is shown is in the address after #. Blocks of HTML come escaped from Python;
// other words of records go into charts through inert(), since plotly.js reads a few tags.
"use strict";
const STEPS = 2048, BASE = 1e-10, FILTERS = ["device", "path", "dtype"], MOST_MARKS = 12;  // the first two as in pack.py
const byId = (id) => document.getElementById(id), all = (selector) => [...document.querySelectorAll(selector)];
const unique = (values) => [...new Set(values)];
const fits = (one, wanted) => FILTERS.every((key) => !wanted[key] || one[key] === wanted[key]);
const figure = (value) => Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–";
const micros = (seconds) => figure(seconds ? seconds * 1e6 : NaN);
const signed = (ratio) => `${ratio >= 1 ? "+" : "−"}${Math.abs(100 * (ratio - 1)).toFixed(1)} %`;
const inert = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");
const named = (version) => `v${String(version).padStart(2, "0")}`;
const timed = (one) => one.status === "PASS" && one.cold_seconds;
const work = (one) => one.memoryBound ? one.bytes / 1e9 : one.flops / 1e12;
const colour = (name) => getComputedStyle(document.body).getPropertyValue(`--${name}`).trim();
let data, state = {};
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// Points of a history, from what pack.history() made of them.
function points([records, medians, lows, highs, baselines]) {
  const summed = (list) => { let total = 0; return list.map((difference) => total += difference); };
  const seconds = (step) => step ? BASE * Math.exp(step / STEPS) : null;
  const [record, median, baseline] = [records, medians, baselines].map(summed);
  return record.map((number, at) => ({record: number, median: seconds(median[at]),
    low: seconds(median[at] && median[at] - lows[at]), high: seconds(median[at] && median[at] + highs[at]),
    baseline: seconds(baseline[at])}));
}

const address = (changes) => "#" + new URLSearchParams(
  Object.entries({...state, at: "", ...changes}).filter(([, value]) => value)).toString();
const go = (changes) => location.replace(address(changes)), kernelName = (one) => `${one.path}|${one.version}|${one.problem}`;
const chosen = (without) => data.series.filter((series) => fits(series, {...state, [without]: ""}));

// The kernel asked for, else the one most worth a look.
function kernelOf() {
  const asked = data.series.find((one) => kernelName(one) === state.kernel && one.device === state.device);
  const list = chosen(), rate = (one) => work(one) / one.cold_seconds;
  return asked || ["SLOW", "UNTRUSTED", "FAST"].map((verdict) => list.find((one) => one.verdict === verdict && timed(one)))
    .find(Boolean) || list.filter(timed).sort((one, other) => one.memoryBound - other.memoryBound || rate(other) - rate(one))[0]
    || list[0];
}

function options(select, list, value) {
  if (!list.some(([one]) => one === value)) list.push([value, `${value} (none)`]);
  select.replaceChildren(...list.map(([one, text]) => new Option(text, one)));
  select.value = value;
}

function drawFilters(focus) {
  for (const key of FILTERS) {
    const values = unique(chosen(key).map((series) => series[key])).sort(), select = byId("filters").elements[key];
    const list = values.map((value) => [value, key === "device" ? data.records.find((one) => one.device === value).name : value]);
    select.parentElement.hidden = key === "device" && list.length < 2;
    options(select, key === "device" ? list : [["", "all"], ...list], state[key] || "");
  }
  byId("said-of").innerHTML = data.verdicts[FILTERS.map((key) => state[key] || "").join("|")]
    || "<h1>Nothing passes the filters.</h1>";
  const show = (selector, wanted) => all(selector).forEach((element) =>
    element.hidden = !fits({...wanted, ...element.dataset}, wanted));
  show(".dateline, .standing tbody tr, .heat tbody tr, .search, .of-profile", state);
  show(".of-ladder", focus || {device: "none"});
  byId("no-profile").hidden = !focus || all(".of-profile").some((element) => !element.hidden);
  if (focus) byId("no-profile").lastElementChild.textContent = `./ladder profile ${focus.path} --version ${focus.version}`;
}

function chart(id, label, traces, layout) {
  const line = {gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true};
  byId(id).hidden = !traces.length;
  Object.assign(byId(id), {role: "img", ariaLabel: label});
  if (traces.length) Plotly.react(byId(id), traces, {margin: {l: 10, r: 10, t: 30, b: 10}, paper_bgcolor: "transparent",
    plot_bgcolor: "transparent", font: {color: colour("ink"), family: colour("text"), size: 13}, dragmode: false,
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0}, hoverlabel: {bgcolor: colour("sheet"),
      font: {color: colour("ink")}}, ...layout, xaxis: {...line, ...layout.xaxis}, yaxis: {...line, ...layout.yaxis}},
  {displayModeBar: false, responsive: true});
}

const rule = (x, text, dash, name) => ({
  shape: {type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: {dash, width: 1.2, color: colour(name)}},
  annotation: {x, y: 1, yref: "paper", text: inert(text), showarrow: false, xanchor: "left", yanchor: "top",
    textangle: 90, font: {size: 11, color: colour(name)}},
});

function drawLadder(focus) {
  const {rows, lead, label} = data.bars.find((one) => fits(one, {...focus}));
  byId("ladder-lead").textContent = lead;
  byId("ladder-plot").style.height = `${7 + 2.2 * rows.length}rem`;
  const short = byId("ladder").clientWidth < 600;
  const trace = (name, at, alpha) => ({type: "bar", orientation: "h", name, x: rows.map((row) => row[at]),
    y: rows.map(([idea]) => inert(short ? idea.split(" ")[0] : idea)), marker: {color: colour("fast") + alpha},
    hovertemplate: `%{y}: %{x:.3g} ${name}<extra></extra>`});
  chart("ladder-plot", `Speed of ${rows.map(([name, cold]) => `${name} ${figure(cold)}`).join(", ")}: ${label}`,
    [trace("cold", 1, ""), trace("warm", 2, "66")].filter(({x}) => x.some(Number.isFinite)),
    {xaxis: {title: {text: label}, rangemode: "tozero"}, yaxis: {autorange: "reversed"},
      shapes: label.startsWith("times") ? [rule(1, "", "dash", "ink").shape] : []});
}

function drawKernel(series) {
  const siblings = data.series.filter((one) => one.device === series.device && one.path === series.path);
  const list = siblings.map((one) => [kernelName(one), `${named(one.version)} ${one.problem}`]);
  options(byId("kernel-pick"), list, kernelName(series));
  byId("kernel-head").innerHTML = series.html;
  byId("history-notes").innerHTML = series.notes;
  byId("copy").onclick = () => navigator.clipboard.writeText(series.command).then(() => byId("copy").textContent = "Copied");
}

function drawHistory(series) {
  const list = points(series.history), place = new Map(list.map((one, at) => [one.record, at]));
  const broken = new Set(series.changes.filter(([, breaks]) => breaks).map(([record]) => place.get(record)));
  const record = (at) => data.records[list[at].record], keys = ["median", "low", "high", "baseline"];
  const drawn = list.flatMap((point, at) => [...(broken.has(at) ? [{x: at - 0.5, words: ""}] : []), {...point, x: at,
    words: inert(`${record(at).commit}, ${record(at).created.slice(0, 16)}: ${micros(point.median)} µs (${micros(point.low)} `
      + `to ${micros(point.high)}) ${at === list.length - 1 ? series.verdict : ""}`)}]);
  const x = drawn.map((one) => one.x), last = list.at(-1);
  const [median, low, high, baseline] = keys.map((key) => drawn.map((one) => one[key] ? one[key] * 1e6 : null));
  const newest = colour(["SLOW", "UNTRUSTED"].includes(series.verdict) ? "slow" : "fast"), blue = colour("fast");
  const marks = [...series.steps.map(([number, before, after]) => rule(place.get(number) - 0.5, signed(after / before), "dash",
    after > before ? "slow" : "fast")), ...series.changes.filter(([, breaks], at) => breaks || at < MOST_MARKS)
    .map(([number, , names]) => rule(place.get(number) - 0.5, names, "dot", "soft"))];
  const every = Math.ceil(list.length / Math.max(2, byId("kernel").clientWidth / 110));
  const tickvals = list.map((_, at) => at).filter((at) => at % every === 0);
  chart("history-plot", `${list.length} records, the newest ${micros(last.median)} µs, ${series.steps.length} steps`, [
    {x, y: median, text: drawn.map((one) => one.words), name: "median, cold, and its 95 % interval", mode: "lines+markers",
      error_y: {symmetric: false, array: high.map((value, at) => value - median[at]), width: 0, thickness: 4,
        arrayminus: low.map((value, at) => median[at] - value), color: `${blue}66`}, line: {color: blue},
      hovertemplate: "%{text}<extra></extra>", marker: {size: list.length > 40 ? 3 : 8,
        color: x.map((at) => at === list.length - 1 ? newest : blue)}},
    {x, y: baseline, name: inert(series.baseline || "library"), mode: "lines+markers", line: {dash: "dot", width: 1,
      color: colour("soft")}, visible: Math.abs(Math.log(last.median / last.baseline)) < Math.log(1.6) || "legendonly"},
  ], {yaxis: {title: {text: "µs, cold"}}, xaxis: {tickvals, ticktext: tickvals.map((at) => inert(record(at).commit)),
    range: [-0.5, list.length - 0.5]}, shapes: marks.map((one) => one.shape), annotations: marks.map((one) => one.annotation)});
}

function drawSamples({samples, timed}) {
  const isNewest = (at) => at === samples.length - 1;
  chart("ab-plot", "Distribution of the cold samples", samples.map((side, at) => ({mode: "lines",
    x: [...side].sort((one, other) => one - other), y: side.map((_, rank) => (rank + 1) / side.length),
    name: `${isNewest(at) ? "B, newest" : "A, before"}: ${inert(data.records[timed[at]].commit)}`,
    line: {shape: "hv", color: colour(isNewest(at) ? "fast" : "soft"), dash: isNewest(at) ? "solid" : "dash"}})),
  {xaxis: {title: {text: "µs, cold"}}, yaxis: {title: {text: "share of samples"}, range: [0, 1.02]}});
}

// Arithmetic against intensity; bandwidth against size where the pass waits for memory.
function drawLimits({device, path, dtype, memoryBound}) {
  const series = data.series.filter((one) => fits(one, {device, path, dtype}) && timed(one) && work(one));
  const newest = (key) => data.records.filter((one) => one.device === device && one[key]).at(-1)?.[key];
  const [copy, empty, dram] = ["copy", "empty", "dram"].map(newest), unit = memoryBound ? "GB/s" : "TFLOP/s";
  const bound = series.find((one) => dram && one.roofline_seconds > 1.001 * one.bytes / dram);
  const peak = memoryBound || !bound ? Infinity : bound.flops / bound.roofline_seconds / 1e12;
  const place = (one) => memoryBound ? one.bytes / 1e6 : one.flops / one.bytes;
  byId("limits-lead").textContent = `${path} in ${dtype} waits for ${memoryBound ? "memory"
    : "memory under the slanted roof, for arithmetic under the flat one"}. Up is faster; darker is a later version.`
    + (copy ? ` Copy bandwidth, measured by the timer's calibration: ${figure(copy / 1e9)} GB/s.` : "")
    + (memoryBound && empty ? ` An empty kernel takes ${micros(empty)} µs.` : "");
  const dots = (list, seconds, name, marker) => ({mode: "markers", name: inert(name), marker, x: list.map(place),
    y: list.map((one) => work(one) / seconds(one)), text: list.map((one) => inert(`${named(one.version)} ${one.shape}`)),
    hovertemplate: `${inert(name)}, %{text}: %{y:.3g} ${unit}<extra></extra>`});
  const ends = [Math.min(...series.map(place)) / 2, Math.max(...series.map(place)) * 2];
  const xs = Array.from({length: 40}, (_, at) => ends[0] * (ends[1] / ends[0]) ** (at / 39));
  const roof = (name, rate, y, dash) => !rate ? [] : [{mode: "lines", name, x: xs, y: xs.map(y), hoverinfo: "name",
    line: {dash, width: 1.5, color: colour("soft")}}];
  const limit = (rate) => (at) => memoryBound ? rate / 1e9 : Math.min(peak, rate * at / 1e12);
  const versions = unique(series.map((one) => one.version)).sort((one, other) => one - other);
  const ofLast = (key) => series.filter((one) => one[key] && one.version === versions.at(-1));
  const last = ofLast("baseline_seconds"), streaming = memoryBound ? ofLast("streaming_seconds") : [];
  chart("limits-plot", `Roofline of ${path} ${dtype}`, !series.length ? [] : [
    ...versions.map((version, at) => dots(series.filter((one) => one.version === version), (one) => one.cold_seconds,
      named(version), {size: 8, color: colour("fast"), opacity: 0.25 + 0.75 * (at + 1) / versions.length})),
    ...(streaming.length ? [dots(streaming, (one) => one.streaming_seconds, "streaming kernel",
      {symbol: "x-thin-open", color: colour("soft")})] : []),
    ...(last.length ? [dots(last, (one) => one.baseline_seconds, last[0].library, {symbol: "triangle-up-open", size: 10,
      color: colour("slow")})] : []),
    ...roof("memory, measured", copy, limit(copy), "solid"), ...roof("announced", dram, limit(dram), "dash"),
    ...roof("with an empty kernel's time on top", memoryBound && copy && empty,
      (at) => at / 1e3 / (empty + at * 1e6 / copy), "dot"),
  ], {xaxis: {type: "log", dtick: "D2", title: {text: memoryBound ? "MB that must move" : "operations per byte that must move"}},
    yaxis: {type: "log", dtick: "D2", title: {text: `${unit}, cold`}}});
}

const rows = () => all("#table tbody tr"), seriesOf = (row) => data.series[row.dataset.at];
function drawTable() {
  const words = (state.find || "").toLowerCase().split(/\s+/).filter(Boolean), list = rows();
  for (const row of list) row.hidden = !fits(seriesOf(row), state) || state.verdict && seriesOf(row).verdict !== state.verdict
    || !words.every((word) => row.dataset.words.toLowerCase().includes(word));
  byId("counted").textContent = `${list.filter((row) => !row.hidden).length} of ${list.length} results`;
  options(byId("verdict-filter"), [["", "all"], ...unique(data.series.map((one) => one.verdict)).sort()
    .map((verdict) => [verdict, verdict])], state.verdict || "");
  if (byId("find") !== document.activeElement) byId("find").value = state.find || "";
  const [column, direction] = (state.sort || "").split(":"), sign = direction === "down" ? -1 : 1;
  const key = (row) => row.cells[column]?.textContent || "", {compare} = new Intl.Collator(undefined, {numeric: true});
  const order = ([one], [other]) => !one || !other ? !one - !other
    : sign * (isNaN(one) || isNaN(other) ? compare(one, other) : one - other);
  const sorted = list.map((row) => [key(row), row]).sort(order).map(([, row]) => row);
  if (column) document.querySelector("#table tbody").append(...sorted);
  all("#table thead th").forEach((head, at) => head.ariaSort = String(at) !== column ? "none"
    : sign < 0 ? "descending" : "ascending");
}
const made = (tag, fields) => Object.assign(document.createElement(tag), fields);
const save = (download, text) => made("a", {href: URL.createObjectURL(new Blob([text])), download}).click();
const listed = () => rows().filter((row) => !row.hidden).map((row) => seriesOf(row).row);
const csv = (list) => [Object.keys(list[0] || {}), ...list.map(Object.values)].map((one) => one.map((value) => {
  const inertText = typeof value === "string" ? value.replace(/^[=+\-@\t\r]/, "'$&") : value ?? "";  // a formula would be run
  return `"${String(inertText).replaceAll('"', '""')}"`;
}).join(",") + "\r\n").join("");

function draw() {
  const text = location.hash.slice(1);
  state = {device: data.records.at(-1).device,
    ...(text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {at: text})};
  const list = chosen(), kernel = kernelOf(), focus = list.includes(kernel) || !list.length ? kernel : list[0];
  for (const part of [drawFilters, drawTable, ...(kernel ? [drawLadder, drawLimits] : [])]) part(focus);
  for (const part of kernel ? [drawKernel, drawHistory, drawSamples] : []) part(kernel);
  if (state.at) byId(state.at)?.scrollIntoView();
  Object.assign(document.body.dataset, {shown: location.hash, drawn: Math.round(performance.now())});
}

function prepare() {
  for (const key of FILTERS) byId("filters").elements[key].onchange = (event) => go({[key]: event.target.value, kernel: ""});
  byId("kernel-pick").onchange = (event) => go({kernel: event.target.value});
  byId("verdict-filter").onchange = (event) => go({verdict: event.target.value});
  byId("find").onchange = () => go({find: byId("find").value});
  byId("find").oninput = () => drawTable(state.find = byId("find").value);
  byId("clear").onclick = () => go({path: "", dtype: "", verdict: "", kernel: "", find: byId("find").value = ""});
  byId("csv").onclick = () => save("ladder.csv", csv(listed()));
  byId("json").onclick = () => save("ladder.json", JSON.stringify(listed(), null, 1));
  for (const anchor of all("nav a")) anchor.onclick = () => location.replace(address({at: anchor.hash.slice(1)})) ?? false;
  rows().forEach((row, at) => row.dataset.at = at);
  all("#table thead th").forEach((head, column) => head.replaceChildren(made("button", {textContent: head.textContent,
    onclick: () => go({sort: `${column}:${state.sort === `${column}:up` ? "down" : "up"}`})})));
}

function showTheme(theme) {
  Object.assign(document.documentElement, {className: "on"}).dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "light" : "dark";
  if (document.body.dataset.drawn) draw();
}

(async () => {
  data = window.ladder = JSON.parse(await unpacked("packed-data"));
  data.series = data.rows.map((row, at) => ({...row, ...data.more[at], row}));
  showTheme(localStorage["ladder-theme"] ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
  byId("theme").onclick = () => showTheme(localStorage["ladder-theme"] = byId("theme").textContent);
  if (!data.series.length) return;
  document.head.append(made("script", {textContent: await unpacked("packed-plotly")}));
  prepare();
  addEventListener("hashchange", draw);
  draw();
})();
