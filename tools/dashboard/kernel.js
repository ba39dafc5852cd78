// One kernel on one problem: its figures, its history, and its newest two records beside each other.

const MOST_MARKS = 12;  // beyond that, one card after another of the same kind is no news

function drawKernel(data) {
  const series = kernelOf(data);
  if (!series) {
    for (const id of ["kernel-pick", "kernel-head", "history-notes", "ab-notes"]) fill(byId(id));
    for (const id of ["history-plot", "ab-plot"]) noPlot(id);
    return;
  }
  drawPick(data, series);
  fill(byId("kernel-head"), kernelHead(data, series));
  drawHistory(data, series);
  drawAb(data, series);
}

function drawPick(data, series) {
  const siblings = data.series.filter((one) => one.device === series.device && one.path === series.path);
  const choose = (name, options, value, find) => {
    const select = el("select", {"aria-label": name, onchange: () => {
      const found = find(select.value);
      if (found) go({kernel: kernelName(found), device: series.device});
    }}, options.map(([key, text]) => el("option", {value: key, selected: key === value}, text)));
    return el("label", {}, name, select);
  };
  const versions = unique(siblings.map((one) => one.version)).map((version) =>
    [String(version), `${versionName(version)} ${spaced(siblings.find((one) => one.version === version).idea)}`]);
  const dtypes = unique(siblings.filter((one) => one.version === series.version).map((one) => one.dtype)).sort(byDtype);
  const shapes = unique(siblings.filter((one) => one.version === series.version && one.dtype === series.dtype)
    .map((one) => one.shape)).sort(shapeOrder(data, series.path));
  // Whatever the other choices were, the nearest kernel that exists.
  const nearest = (wanted) => {
    const likeness = (one) => Object.entries({...series, ...wanted}).reduce((score, [key, value]) =>
      ["version", "dtype", "shape"].includes(key) && one[key] === value ? score + (key in wanted ? 8 : 1) : score, 0);
    return siblings.slice().sort((one, other) => likeness(other) - likeness(one))[0];
  };
  fill(byId("kernel-pick"),
    choose("Version", versions, String(series.version), (value) => nearest({version: Number(value)})),
    choose("Type", dtypes.map((dtype) => [dtype, dtype]), series.dtype, (value) => nearest({dtype: value})),
    choose("Problem", shapes.map((shape) => [shape, `${shapeName(data, {...series, shape})} ${shape}`.trim()]),
      series.shape, (value) => nearest({shape: value})));
}

function kernelHead(data, series) {
  const {times, baselineTimes} = series;
  const fact = (name, value, small) => el("div", {}, el("dt", {}, name),
      el("dd", {}, value, small ? el("small", {}, small) : ""));
  const good = passed(series);
  const ratio = ratioOf(series);
  const facts = [
    fact("check", series.status, series.reason),
    good && fact("cold", `${micros(times.median)} µs`, `95 %: ${micros(times.low)} to ${micros(times.high)} µs`),
    good && fact("warm", `${micros(times.warm)} µs`, "launches back to back"),
    good && workOf(series) && fact("rate", `${figure(rateOf(series))} ${rateUnit(series)}`, series.memoryBound
      ? series.copy && `${percent(shareOfCopy(series))} of a copy's ${figure(series.copy / 1e9)} GB/s`
      : `${figure(series.bytes / times.median / 1e12)} TB/s of the least bytes`),
    good && has(shareOfStreaming(series)) && fact("of what a streaming kernel takes", percent(shareOfStreaming(series)),
      `a kernel that only moves them: ${micros(series.streaming)} µs`),
    good && series.roofline && fact("of the card's limit", percent(series.roofline / times.median),
      `at least ${micros(series.roofline)} µs`),
    baselineTimes && fact(series.baseline, `${micros(baselineTimes.median)} µs`,
      [series.plan, series.heuristic && `untuned ${micros(series.heuristic)} µs`].filter(Boolean).join(", ")),
    ratio && fact("× library", figure(ratio), whoIsFaster(ratio, series)),
    has(series.error) && fact("error", tiny(series.error),
      has(series.baselineError) ? `library ${tiny(series.baselineError)}` : "library's is unknown"),
    good && times.throttled > 0 && fact("throttled", `${times.throttled} samples`, "the clock had fallen under 75 %"),
  ].filter(Boolean);
  const record = data.records[series.record];
  return [
    el("p", {class: "sentence"}, `${series.path} ${versionName(series.version)} ${spaced(series.idea)}: `,
        verdictSentence(series)),
    el("dl", {class: "facts"}, facts),
    el("div", {class: "command"}, el("pre", {}, el("code", {id: "reproducer"}, series.command)),
      el("button", {type: "button", id: "copy", onclick: () => copy(series.command)}, "Copy")),
    el("p", {class: "dateline"},
        `Does exactly this again, built from commit ${record.commit}. Measured ${when(record)} UTC.`),
  ];
}

function whoIsFaster(ratio, series) {
  if (Math.abs(ratio - 1) < 0.01) return "the same";
  return ratio > 1 ? "we are faster" : `${series.library} is faster`;
}

function drawHistory(data, series) {
  const points = series.history;
  byId("history-plot").hidden = points.length === 1;
  drawHistoryNotes(data, series);
  if (points.length === 1) {
    noPlot("history-plot");
    return;
  }
  const place = new Map(points.map((point, at) => [point.record, at]));
  const changes = series.changes.map(([record, breaks, names]) => ({x: place.get(record) - 0.5, breaks, names}))
    .filter((one) => series.changes.length <= MOST_MARKS || one.names !== "card");
  const line = (value) => points.flatMap((point, at) => [
    ...(changes.some((one) => one.breaks && one.x === at - 0.5) ? [{x: at - 0.5, y: NaN}] : []),
    {x: at, y: value(point) === null ? NaN : value(point) * 1e6, point},
  ]);
  const few = points.length <= 40;
  const named = (change) => change.breaks || changes.length <= MOST_MARKS;
  const plain = {pointRadius: 0, borderWidth: 0, pointHitRadius: 0};
  const steps = series.steps.map(([record, before, after]) =>
    ({x: place.get(record) - 0.5, label: signed(after / before - 1), dash: [6, 4],
        colour: colour(after > before ? "slow" : "fast")}));
  plot("history-plot", `${points.length} records of ${series.path} ${versionName(series.version)} ${series.problem}, ` +
    `the newest ${micros(series.times?.median)} microseconds, ${many(steps.length, "step")}`, {
    type: "line",
    data: {datasets: [
      {label: "interval", data: line((point) => point.low), ...plain, fill: false},
      {label: "95 % interval", data: line((point) => point.high), ...plain, fill: "-1",
          backgroundColor: faded("fast", 0.2)},
      {label: "median, cold", data: line((point) => point.median), borderColor: colour("fast"),
        backgroundColor: colour("fast"), borderWidth: 2, pointRadius: few ? 3.5 : 0, pointHitRadius: 8},
      {label: series.baseline || "library", data: line((point) => point.baseline), borderColor: colour("soft"),
        backgroundColor: colour("soft"), borderWidth: 1, borderDash: [2, 2], pointRadius: few ? 2 : 0,
        pointStyle: "rectRot",
        hidden: !comparable(points)},
    ]},
    options: {
      interaction: {mode: "x", intersect: false},
      scales: {
        x: axis("", {type: "linear", min: -0.5, max: points.length - 0.5, 
          afterBuildTicks: (scale) => wholeTicks(scale, points.length),
          ticks: {maxRotation: 0, callback: (at) => points[at] ? recordTick(data.records[points[at].record]) : ""}}),
        y: axis("µs, cold", {grace: "15%"}),
      },
      plugins: {
        legend: {align: "start", labels: {boxWidth: 14, boxHeight: 10, filter: (item) => item.text !== "interval"}},
        marks: {lines: [...steps, ...changes.map((one) =>
          ({x: one.x, label: named(one) ? one.names : "", dash: [1, 3], colour: colour("soft")}))]},
        tooltip: {filter: (item) => item.datasetIndex >= 2 && has(item.parsed.y), callbacks: {
          title: (items) => items.length ? recordTitle(data.records[items[0].raw.point.record]) : "",
          label: (item) => historyLabel(item),
        }},
      },
    },
  });
}

// Far from the library, its line would press the kernel's own flat; a click on its name shows it.
function comparable(points) {
  const {median, baseline} = points.at(-1);
  return Boolean(median && baseline) && Math.abs(Math.log(median / baseline)) < Math.log(1.6);
}

function drawHistoryNotes(data, series) {
  const statuses = ["PASS", "FAIL", "SKIP", "UNTRUSTED"];
  const untimed = series.history.filter((point) => statuses[point.status] !== "PASS");
  const all = [
    ...series.steps.map(([record, before, after]) =>
      `Step at ${data.records[record].commit} (${when(data.records[record])}): `
      + `${micros(before)} to ${micros(after)} µs, ${signed(after / before - 1)}.`),
    ...series.changes.map(([record, , , text]) =>
      `Before ${data.records[record].commit} (${when(data.records[record])}): ${text}.`),
    ...untimed.map((point) => `${statuses[point.status]} at ${data.records[point.record].commit}.`),
  ];
  const notes = all.slice(0, MOST_MARKS);
  if (all.length > notes.length) notes.push(`And ${all.length - notes.length} more.`);
  const only = series.history.length === 1 ? ["One record so far; each further ./ladder record adds a point."] : [];
  fill(byId("history-notes"), el("ul", {class: "lead"}, [...only, ...notes].map((note) => el("li", {}, note))));
}

function wholeTicks(scale, count) {
  const every = Math.max(1, Math.ceil(count / 8));
  scale.ticks = Array.from({length: Math.ceil(count / every)}, (_, at) => ({value: at * every}));
}

const recordTick = (record) => [record.commit, record.created.slice(0, 10)];
const recordTitle = (record) => `${record.commit}, ${when(record)} UTC`;

function historyLabel(item) {
  const {point} = item.raw;
  return item.datasetIndex === 2
    ? `${micros(point.median)} µs (${micros(point.low)} to ${micros(point.high)})`
    : `${item.dataset.label}: ${micros(point.baseline)} µs`;
}

// Shares of the samples that took no longer than x: one rise a sample.
function ecdf(samples) {
  const sorted = Array.from(samples).sort((one, other) => one - other);
  return sorted.flatMap((seconds, at) =>
    [{x: seconds * 1e6, y: at / sorted.length}, {x: seconds * 1e6, y: (at + 1) / sorted.length}]);
}

function drawAb(data, series) {
  const sides = series.samples.map((samples, at) => ({samples, record: data.records[series.timed[at]]}));
  if (!sides.length) {
    noPlot("ab-plot");
    byId("ab-plot").hidden = true;
    fill(byId("ab-notes"), el("p", {class: "lead"}, "It has no time."));
    return;
  }
  byId("ab-plot").hidden = false;
  const two = sides.length === 2;
  const style = [
    {borderColor: colour("soft"), borderDash: [5, 3], borderWidth: 2}, {borderColor: colour("fast"), borderWidth: 2.5}];
  plot("ab-plot", `Distribution of the cold samples of ${sides.map((side) => side.record.commit).join(" and ")}`, {
    type: "line",
    data: {datasets: sides.map((side, at) => ({
      label: `${two ? ["A, before: ", "B, newest: "][at] : ""}${side.record.commit}, ${when(side.record)}`,
      data: ecdf(side.samples.seconds), pointRadius: 0, pointHitRadius: 6, ...style[at + 2 - sides.length]}))},
    options: {
      scales: {x: axis("µs, cold", {type: "linear", grace: "5%"}), y: axis("share of samples", {min: 0, max: 1})},
      plugins: {
        legend: {align: "start", labels: {boxWidth: 22, boxHeight: 0}},
        tooltip: {callbacks: {title: () => "",
          label: (item) => `${percent(item.parsed.y)} took no longer than ${figure(item.parsed.x)} µs`}},
      },
    },
  });
  fill(byId("ab-notes"), abTable(series, sides));
}

function abTable(series, sides) {
  const median = (values) => {
    const sorted = Array.from(values).sort((one, other) => one - other);
    const half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  };
  const cycles = (side) => median(side.samples.seconds.map((seconds, at) => seconds * side.samples.clocks[at]));
  const {verdict} = series;
  const change = (ratio) => ratio ? signed(ratio - 1) : "";
  const two = sides.length === 2;
  const row = (name, value, ratio) =>
    [name, ...sides.map((side) => ({n: value(side)})), ...(two ? [{n: ratio}] : [])];
  return [
    table(["", ...sides.map((side) => ({n: side.record.commit})), ...(two ? [{n: "change"}] : [])], [
      row("time, µs", (side) => micros(median(side.samples.seconds)), change(verdict.ratio)),
      row("cycles, thousand", (side) => figure(cycles(side) / 1e3), change(verdict.cycles_ratio)),
      row("SM clock, MHz", (side) => (median(side.samples.clocks) / 1e6).toFixed(0), ""),
      row("cold samples", (side) => side.samples.seconds.length, ""),
    ], {style: "width:auto"}),
    two && has(verdict.threshold) ? el("p", {class: "lead"},
        `A change counts from ${percent1(verdict.threshold)} on: the `
      + "larger of 1 % and three times this kernel's own noise.") : "",
  ];
}

const percent1 = (share) => `${(100 * share).toFixed(1)} %`;
