// The table that is in the page already: links, sorting, filtering, downloads. Its rows are the series, in their order.

const body = () => document.querySelector("#table tbody");

function prepareTable(data) {
  const rows = [...body().rows];
  rows.forEach((row, at) => {
    data.series[at].row = row;
    const heading = row.cells[0];
    const anchor = el("a", {});
    anchor.append(...heading.childNodes);
    heading.append(anchor);
  });
  document.querySelectorAll("#table thead th").forEach((head, column) => {
    const button = el("button", {type: "button", onclick: () => {
      const [sorted, direction] = (state.sort || "").split(":");
      go({sort: `${column}:${Number(sorted) === column && direction === "up" ? "down" : "up"}`});
    }}, head.textContent);
    fill(head, button);
  });
  const verdicts = unique(data.series.map((series) => series.verdict.status)).sort();
  fill(byId("verdict-filter"), el("option", {value: ""}, "all"),
    verdicts.map((verdict) => el("option", {value: verdict}, verdict)));
  byId("verdict-filter").addEventListener("change", (event) => go({verdict: event.target.value}));
  byId("csv").addEventListener("click", () => download("ladder.csv", "text/csv", csvOf(data)));
  byId("json").addEventListener("click", () =>
    download("ladder.json", "application/json",
      JSON.stringify(inTable(data).map((series) => plain(data, series)), null, 1)));
}

const inTable = (data) => chosen(data).filter((series) => !state.verdict || series.verdict.status === state.verdict);

function drawTable(data) {
  const shown = new Set(inTable(data));
  for (const series of data.series) {
    series.row.hidden = !shown.has(series);
    series.row.cells[0].firstChild.href = kernelLink(series);
  }
  hideEmptyRates(shown);
  byId("counted").textContent = `${shown.size} of ${data.series.length} results`;
  byId("verdict-filter").value = state.verdict || "";
  sortTable(data);
}

// TFLOP/s where everything shown waits for memory, GB/s where nothing does.
function hideEmptyRates(shown) {
  for (const head of document.querySelectorAll("#table th.rate")) {
    head.hidden = ![...shown].some((series) => series.row.cells[head.cellIndex].textContent);
    for (const row of body().rows) row.cells[head.cellIndex].hidden = head.hidden;
  }
}

// Figures by size, words by letters; empty cells last either way.
function sortTable(data) {
  const [column, direction] = (state.sort || "").split(":");
  const order = [...data.series];
  if (column) {
    const text = (series) => series.row.cells[column]?.textContent || "";
    const sign = direction === "down" ? -1 : 1;
    const keys = new Map(order.map((series) => [series, sortKey(text(series))]));
    order.sort((one, other) => {
      const [first, second] = [keys.get(one), keys.get(other)];
      if (first === "" || second === "") return (first === "") - (second === "");
      return sign * (typeof first === "number" && typeof second === "number"
        ? first - second : String(first).localeCompare(String(second), undefined, {numeric: true}));
    });
  }
  body().append(...order.map((series) => series.row));
  document.querySelectorAll("#table thead th").forEach((head, at) => {
    const sorted = String(at) === column;
    head.setAttribute("aria-sort", sorted ? (direction === "down" ? "descending" : "ascending") : "none");
  });
}

const sortKey = (text) => /^[-+]?\d+(\.\d+)?(e[-+]?\d+)?(–.*)?$/.test(text) ? parseFloat(text) : text;

function plain(data, series) {
  const {times, baselineTimes, verdict} = series;
  const record = data.records[series.record];
  return {
    device: series.device, path: series.path, version: series.version, idea: series.idea, problem: series.problem,
    dtype: series.dtype, status: series.status, reason: series.reason, cold_seconds: times?.median ?? null,
    cold_low: times?.low ?? null, cold_high: times?.high ?? null, warm_seconds: times?.warm ?? null,
    flops: series.flops, bytes: series.bytes, copy_bytes_per_s: series.copy, streaming_seconds: series.streaming,
    baseline: series.baseline, baseline_seconds: baselineTimes?.median ?? null, times_library: ratioOf(series),
    roofline_seconds: series.roofline, error: series.error, baseline_error: series.baselineError,
    verdict: verdict.status,
    ratio_to_previous: verdict.ratio ?? null, commit: record.commit, created: record.created, command: series.command,
  };
}

function csvOf(data) {
  const rows = inTable(data).map((series) => plain(data, series));
  const quoted = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet would run what begins like a formula.
    const inert = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(inert) ? `"${inert.replaceAll('"', '""')}"` : inert;
  };
  const heads = Object.keys(rows[0] || {});
  return [heads, ...rows.map((row) => heads.map((head) => row[head]))]
    .map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
}
