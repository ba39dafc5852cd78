// The ladder of one layer: how fast each version is, what it changed, and what that bought.

function drawLadder(data) {
  const at = focus(data);
  const all = at ? chosen(data, ["version"]).filter((series) => inFocus(series, at)) : [];
  const rungs = unique(all.map((series) => series.version)).sort((one, other) => one - other)
    .map((version) => rungOf(data, at, version, all));
  if (!rungs.length) {
    byId("ladder-lead").textContent = "Nothing passes the filters.";
    noPlot("ladder-plot");
    fill(byId("rungs"));
    return;
  }
  const baseline = libraryNames(all);
  const shapes = unique(all.map((series) => series.shape)).length;
  byId("ladder-lead").textContent = `${at.path} in ${at.dtype}, over ${many(shapes, "shape")}. `
    + (baseline ? `A bar that crosses the line at 1 beats the best plan of ${baseline}. ` : "")
    + "Cold: the L2 was overwritten before each launch. Warm: launches back to back.";
  drawRungBars(rungs, baseline);
  fill(byId("rungs"), rungTable(rungs));
}

function rungOf(data, at, version, all) {
  const series = all.filter((one) => one.version === version);
  const timed = series.filter(passed);
  const words = data.ladders[at.path]?.[version] || {};
  return {
    version, series, timed, words, idea: series[0].idea, kernels: series.map((one) => one.kernels).find(Boolean),
    cold: geomean(timed.map((one) => one.times.median)), warm: geomean(timed.map((one) => one.times.warm)),
    rate: sum(timed, workOf) / sum(timed, (one) => one.times.median), unit: rateUnit(series[0]),
    copy: shareOfSum(timed, shareOfCopy), streaming: shareOfSum(timed, shareOfStreaming),
    coldRatio: geomean(timed.map(ratioOf)),
    warmRatio: geomean(timed.map((one) => one.times.warm && one.baselineTimes?.warm / one.times.warm)),
    limit: geomean(timed.map(shareOfLimit)), limitName: limitName(series[0]),
  };
}

const sum = (series, value) => series.reduce((total, one) => total + (value(one) || 0), 0);

// A share of all their times together, of those that have one.
function shareOfSum(series, share) {
  const those = series.filter((one) => has(share(one)));
  if (!those.length) return null;
  return sum(those, (one) => share(one) * one.times.median) / sum(those, (one) => one.times.median);
}

// Beside the baseline where there is one; else beside the card's limit or a copy's bandwidth.
function drawRungBars(rungs, baseline) {
  const label = baseline ? "times the library's speed" : `share of the ${rungs[0].limitName}`;
  const bar = (name, values, background) =>
    ({label: name, data: values, backgroundColor: background, borderColor: colour("ink"), borderWidth: 0,
        maxBarThickness: 14});
  const datasets = baseline
    ? [bar("cold", rungs.map((rung) => rung.coldRatio), colour("fast")),
      bar("warm", rungs.map((rung) => rung.warmRatio), faded("fast", 0.38))]
        .filter(({data}) => data.some(has))  // not every baseline is measured warm
    : [bar("cold", rungs.map((rung) => rung.limit), colour("fast"))];
  byId("ladder-plot").style.height = `${4.5 + 2.3 * rungs.length}rem`;
  plot("ladder-plot", `Speed of versions ${rungs.map((rung) =>
    `${versionName(rung.version)} ${figure(rung.coldRatio ?? rung.limit)}`).join(", ")}: ${label}`, {
    type: "bar",
    data: {labels: rungs.map((rung) => `${versionName(rung.version)} ${spaced(rung.idea)}`), datasets},
    options: {
      indexAxis: "y",
      scales: {x: axis(label, {beginAtZero: true}), y: {grid: {display: false}, ticks: {color: colour("ink")}}},
      plugins: {
        legend: {position: "top", align: "start", labels: {boxWidth: 14, boxHeight: 10}},
        tooltip: {callbacks: {label: (item) => `${item.dataset.label}: ${figure(item.raw)}`}},
        marks: {lines: baseline ? [{x: 1, label: baseline, colour: colour("ink"), dash: [5, 3]}] : []},
      },
    },
  });
}

function rungTable(rungs) {
  const best = Math.max(...rungs.map((rung) => rung.coldRatio || 0));
  const shares = [["of copy", "copy"], ["of a streaming kernel", "streaming"]]
    .filter(([, key]) => rungs.some((rung) => has(rung[key])));
  const rows = rungs.map((rung, at) => {
    const parent = rungs.find((one) => one.version === rung.words.parent) || rungs[at - 1];
    const step = parent && stepOver(parent, rung);
    return [
      el("a", {href: rung.timed.length ? kernelLink(rung.timed[0]) : kernelLink(rung.series[0]),
        class: best > 0 && rung.coldRatio === best ? "best" : ""}, versionName(rung.version)),
      whatChanged(rung),
      {n: micros(rung.cold)}, {n: micros(rung.warm)}, {n: rung.rate ? figure(rung.rate) : "–"},
      ...shares.map(([, key]) => ({n: percent(rung[key])})),
      {n: step ? el("span", {title: `over ${versionName(parent.version)}`,
        class: step > 1.02 ? "fast-word" : step < 0.98 ? "slow-word" : ""}, `× ${figure(step)}`) : ""},
      {n: rung.kernels ? rung.kernels.registers : "–"}, {n: rung.kernels ? bytes(rung.kernels.smem) : "–"},
      {n: rung.kernels ? bytes(rung.kernels.spills) : "–"},
    ];
  });
  return [
    table(["", "what changed", {n: "cold, µs"}, {n: "warm, µs"}, {n: rungs[0].unit},
      ...shares.map(([name]) => ({n: name})), {n: "step"}, {n: "registers"},
      {n: "static smem"}, {n: "spills"}], rows, {class: "rungs"}),
    rungs.some((rung) => rung.kernels) ? "" : el("p", {class: "lead"},
      "Registers, shared memory and spills are in records made by ./ladder record; these are older."),
  ];
}

// Times as fast as the version it was made from, over the shapes that both did.
function stepOver(parent, rung) {
  const before = new Map(parent.timed.map((series) => [series.shape, series.times.median]));
  return geomean(rung.timed.map((series) => before.get(series.shape) / series.times.median));
}

function whatChanged(rung) {
  const {idea, why, needs, spills} = rung.words;
  const skipped = rung.series.filter((series) => series.status === "SKIP");
  const part = (name, text) => text ? el("p", {}, el("b", {}, `${name} `), text) : "";
  return el("div", {class: "what"}, el("p", {}, spaced(rung.idea)), el("p", {class: "lead"}, idea || ""),
    why || needs || skipped.length ? el("details", {}, el("summary", {}, "why it should help"), part("Why", why),
      part("Needs", needs), part("Spills", spills),
      part("Skipped", skipped.map((series) => `${series.shape}: ${series.reason}`).join("; "))) : "");
}
