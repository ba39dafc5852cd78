// Bandwidth against size, where a pass waits for memory: a line is one version, from the smallest problem to the
// largest.

function drawBandwidth(data, at, all, {copy, dram, empty}) {
  const shapes = unique(all.map((series) => series.shape)).sort(shapeOrder(data, at.path));
  const versions = unique(all.map((series) => series.version)).sort((one, other) => one - other);
  const kernel = kernelOf(data);
  const bold = versions.includes(kernel?.version) && inFocus(kernel, at) ? kernel.version : versions.at(-1);
  const bySize = (of) => of.slice().sort((one, other) => one.bytes - other.bytes || rateOf(one) - rateOf(other));
  const point = (series, seconds = series.times.median, who = versionName(series.version)) =>
    ({x: series.bytes / 1e6, y: rateOf(series, seconds), series, seconds, who});
  const climb = (version) => {
    const points = bySize(all.filter((series) => series.version === version)).map((series) => point(series));
    points.at(-1).word = versionName(version);
    return points;
  };
  // Of a shape's versions the newest: each has the baseline and the streaming kernel of its own run.
  const newest = (wanted) => bySize(shapes.map((shape) =>
    all.filter((series) => series.shape === shape && wanted(series))
      .sort((one, other) => other.version - one.version)[0]).filter(Boolean));
  const baselines = newest((series) => series.baselineTimes);
  const moved = newest((series) => series.streaming);

  const sizes = all.map((series) => series.bytes);
  const left = Math.min(...sizes) / 2, right = Math.max(...sizes) * 2;
  const rates = all.map((series) => rateOf(series));
  const fastest = Math.max(...rates);
  const lowest = Math.min(...rates, ...baselines.map((series) => rateOf(series, series.baselineTimes.median)));
  const line = {pointRadius: 0, pointHitRadius: 0, showLine: true, pointStyle: "line"};
  const level = (rate) => [left, right].map((size) => ({x: size / 1e6, y: rate / 1e9}));
  const datasets = [
    {label: `${versionName(bold)} ${spaced(all.find((series) => series.version === bold).idea)}`, data: climb(bold),
      borderColor: colour("ink"), backgroundColor: colour("fast"), borderWidth: 1.5, pointRadius: 5, showLine: true},
    ...versions.filter((version) => version !== bold).map((version) => ({
      label: "", data: climb(version), borderColor: faded("soft", 0.35), borderWidth: 1,
      backgroundColor: faded("fast", 0.3), pointBorderWidth: 0, pointRadius: 3, showLine: true})),
    baselines.length && {label: libraryNames(baselines),
      data: baselines.map((series) => point(series, series.baselineTimes.median, series.baseline)),
      borderColor: colour("slow"), backgroundColor: "transparent", borderWidth: 1.5, pointStyle: "triangle",
      pointRadius: 5.5},
    moved.length && {label: "streaming kernel",
      data: moved.map((series) => point(series, series.streaming, "streaming kernel of")),
      borderColor: colour("fast"), backgroundColor: "transparent", borderWidth: 1.5, borderDash: [5, 3],
      pointStyle: "rectRot", pointRadius: 4, showLine: true},
    copy && {label: "copy bandwidth, measured", data: level(copy), borderColor: colour("ink"), borderWidth: 2, ...line},
    copy && empty && {label: "with an empty kernel's time on top", data: latencyBound(left, right, copy, empty),
      borderColor: colour("ink"), borderWidth: 1, borderDash: [2, 3], ...line},
    dram && {label: "memory, announced", data: level(dram), borderColor: colour("soft"), borderWidth: 1,
      borderDash: [3, 3], ...line},
  ].filter(Boolean);
  byId("limits-lead").textContent = `${at.path} in ${at.dtype}, which waits for memory: its arithmetic takes less than `
    + "a streaming kernel. Up is faster; a line is one version, from the smallest problem to the largest. Small problems "
    + "are over before the memory is busy; large ones can come near the copy bandwidth.";
  plot("limits-plot", `Bandwidth of ${at.path} ${at.dtype}: ${many(shapes.length, "shape")}, `
    + `the fastest ${figure(fastest)} GB/s` + (copy ? ` of a copy's ${figure(copy / 1e9)}` : ""), {
    type: "scatter",
    data: {datasets},
    options: {
      scales: {
        x: axis("bytes that must move, MB",
          {type: "logarithmic", min: left / 1e6, max: right / 1e6, ticks: {callback: plainTick}}),
        y: axis("GB/s, cold", {type: "logarithmic", min: lowest / 1.6, ticks: {callback: plainTick}}),
      },
      plugins: {
        legend: {align: "start",
          labels: {usePointStyle: true, pointStyleWidth: 14, boxHeight: 6, filter: (item) => item.text}},
        tooltip: {filter: (item) => item.raw.series, callbacks: {label: (item) => bandwidthLabel(item.raw)}},
      },
    },
  });
  const said = (known, words) => known ? el("span", {}, words) : "";
  fill(byId("limits-legend"),
    said(copy, `Copy bandwidth, measured by the timer's calibration: ${figure(copy / 1e9)} GB/s.`),
    said(copy && empty, `An empty kernel takes ${micros(empty)} µs.`),
    said(moved.length, "Streaming kernel: a kernel that reads every input and writes every output once, measured "
      + "in the same run."),
    said(dram, `Announced by the driver: ${figure(dram / 1e9)} GB/s.`));
}

// The most that a time with an empty kernel's in it can show, in GB/s at sizes in MB.
function latencyBound(left, right, copy, empty) {
  const parts = 60;
  return Array.from({length: parts + 1}, (_, at) => left * (right / left) ** (at / parts))
    .map((size) => ({x: size / 1e6, y: size / (empty + size / copy) / 1e9}));
}

function bandwidthLabel({series, seconds, who}) {
  const shares = [["a copy", shareOfCopy(series, seconds)], ["a streaming kernel", shareOfStreaming(series, seconds)]]
    .filter(([, share]) => has(share) && seconds !== series.streaming)
    .map(([of, share]) => `, ${percent(share)} of ${of}`);
  return `${who} ${series.shape}: ${figure(rateOf(series, seconds))} GB/s${shares.join("")}`;
}
