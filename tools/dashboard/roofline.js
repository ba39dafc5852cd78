// The roofline: each shape is a column at its arithmetic intensity, climbed from the first version to the last.

function drawRoofline(data) {
  const at = focus(data);
  const drawn = (series) =>
    inFocus(series, at) && passed(series) && (series.flops || series.memoryBound) && series.bytes;
  const all = at ? chosen(data).filter(drawn) : [];
  byId("limits-plot").hidden = !all.length;
  if (!all.length) {
    byId("limits-lead").textContent = "Nothing passes the filters.";
    noPlot("limits-plot");
    fill(byId("limits-legend"));
    return;
  }
  const roofs = roofsOf(data, at, all);
  if (all[0].memoryBound) {
    drawBandwidth(data, at, all, roofs);
    return;
  }
  const intensity = (series) => series.flops / series.bytes;
  const rate = (series, seconds = series.times.median) => series.flops / seconds / 1e12;
  const shapes = unique(all.map((series) => series.shape)).sort(shapeOrder(data, at.path));
  const kernel = kernelOf(data);
  const bold = shapes.includes(kernel?.shape) ? kernel.shape : shapes[0];
  const column = (shape) =>
    all.filter((series) => series.shape === shape).sort((one, other) => one.version - other.version);
  const point = (series, word) => ({x: intensity(series), y: rate(series), series, word});
  const newest = Math.max(...all.map((series) => series.version));
  const baselines = all.filter((series) => series.baselineTimes
      && series.version === column(series.shape).at(-1).version);

  const lowest = Math.min(...all.map((series) => rate(series)));
  const xs = all.map(intensity);
  const left = Math.min(...xs) / 3, right = Math.max(...xs) * 3;
  const ridge = (bandwidth) => roofs.peak ? Math.min(right, roofs.peak / bandwidth) : right;
  const slope = (bandwidth) => [left, ridge(bandwidth)].map((x) => ({x, y: bandwidth * x / 1e12}));
  const line = {pointRadius: 0, pointHitRadius: 0, showLine: true, pointStyle: "line"};
  const datasets = [
    {label: `versions of ${bold}`, data: column(bold).map((series) => point(series, versionName(series.version))),
      borderColor: colour("ink"), backgroundColor: colour("fast"), borderWidth: 1.5, pointRadius: 5, showLine: true},
    ...shapes.filter((shape) => shape !== bold).map((shape) => ({
      label: "", data: column(shape).map((series) => point(series)), borderColor: faded("soft", 0.35), borderWidth: 1,
      backgroundColor: column(shape).map((series) => faded("fast", series.version === newest ? 0.9 : 0.3)),
      pointBorderWidth: 0, pointRadius: column(shape).map((series) => series.version === newest ? 4 : 2.5),
      showLine: true})),
    {label: baselines[0]?.baseline || "", data: baselines.map((series) =>
      ({x: intensity(series), y: rate(series, series.baselineTimes.median), series, baseline: true})),
    borderColor: colour("slow"), backgroundColor: "transparent", borderWidth: 1.5, pointStyle: "triangle",
      pointRadius: 5.5},
    roofs.copy && {label: "memory, measured", data: slope(roofs.copy), borderColor: colour("ink"), borderWidth: 2,
      ...line},
    roofs.dram && {label: "memory, announced", data: slope(roofs.dram), borderColor: colour("soft"), borderWidth: 1,
      borderDash: [3, 3], ...line},
    roofs.peak && {label: "arithmetic, announced", borderColor: colour("soft"), borderWidth: 2, borderDash: [8, 4],
      ...line, data: [ridge(roofs.dram || roofs.copy), right].map((x) => ({x, y: roofs.peak / 1e12}))},
  ].filter(Boolean);
  const fastest = `${figure(roofs.best / 1e12)} TFLOP/s`;
  byId("limits-lead").textContent = `${at.path} in ${at.dtype}. Up is faster; a column is one shape, climbed from the `
    + "first version to the last. What lies under the slanted roof waits for memory, what lies under the flat one for "
    + "arithmetic.";
  plot("limits-plot", `Roofline of ${at.path} ${at.dtype}: ${shapes.length} shapes, the fastest ${fastest}`, {
    type: "scatter",
    data: {datasets},
    options: {
      scales: {
        x: axis("floating-point operations per byte that must move",
          {type: "logarithmic", min: left, max: right, ticks: {callback: plainTick}}),
        y: axis("TFLOP/s, cold", {type: "logarithmic", min: lowest / 1.6, ticks: {callback: plainTick}}),
      },
      plugins: {
        legend: {align: "start", 
          labels: {usePointStyle: true, pointStyleWidth: 14, boxHeight: 6, filter: (item) => item.text}},
        marks: {lines: [{y: roofs.best / 1e12, label: `fastest measured, ${fastest}`, dash: [2, 3],
          colour: colour("soft")}]},
        tooltip: {filter: (item) => item.raw.series, callbacks: {label: rooflineLabel}},
      },
    },
  });
  drawRoofLegend(roofs, at);
}

// Ceilings in FLOP/s and bytes/s, and the seconds of an empty kernel. The peak follows from a result whose roofline is
// arithmetic, not bandwidth.
function roofsOf(data, at, all) {
  const record = data.records.filter((one) => one.device === at.device && one.copy).at(-1);
  const dram = data.records.filter((one) => one.device === at.device && one.dram).at(-1)?.dram;
  const bound = all.find((series) => series.roofline && dram && series.roofline > 1.001 * series.bytes / dram);
  const rates = all.flatMap((series) => [series.flops / series.times.median,
    series.baselineTimes ? series.flops / series.baselineTimes.median : 0]);
  return {copy: record?.copy, empty: record?.empty, dram, peak: bound ? bound.flops / bound.roofline : null,
    best: Math.max(...rates)};
}

function rooflineLabel(item) {
  const {series, baseline} = item.raw;
  const who = baseline ? series.baseline : versionName(series.version);
  return `${who} ${series.shape}: ${figure(item.parsed.y)} TFLOP/s at ${figure(item.parsed.x)} FLOP/B`;
}

function drawRoofLegend(roofs, at) {
  const said = (known, words) => known ? el("span", {}, words) : "";
  fill(byId("limits-legend"),
    said(roofs.copy, `Copy bandwidth, measured by the timer's calibration: ${figure(roofs.copy / 1e12)} TB/s.`),
    said(roofs.dram, `Announced by the driver: ${figure(roofs.dram / 1e12)} TB/s.`),
    said(roofs.peak, `Peak in ${at.dtype} at the highest clock, announced: ${figure(roofs.peak / 1e12)} TFLOP/s.`));
}

function plainTick(value) {
  const digit = Number(value.toPrecision(1)) / 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 5].includes(Math.round(digit)) ? String(Number(value.toPrecision(2))) : "";
}
