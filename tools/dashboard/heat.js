// The table of versions, coloured by their speed beside the library. A cell is a link to the kernel it stands for.

const FULL = Math.log(2);  // twice as fast, or half, has the full colour

function drawHeat(data) {
  const at = focus(data);
  const byShape = state.rows === "shapes";
  const tab = (rows, text) => el("button",
    {type: "button", "aria-pressed": String((rows === "shapes") === byShape), onclick: () => go({rows})}, text);
  fill(byId("heat-view"), tab("", "every ladder"), tab("shapes", at ? `shapes of ${at.path}, ${at.dtype}` : "shapes"));
  const series = chosen(data).filter((one) => !at || one.device === at.device);
  if (!at || !series.length) {
    fill(byId("heat"), "Nothing passes the filters.");
    return;
  }
  fill(byId("heat"), byShape ? shapeHeat(data, at, series.filter((one) => inFocus(one, at))) : ladderHeat(series));
  const current = kernelLink(kernelOf(data));
  for (const cell of byId("heat").querySelectorAll("a")) mark(cell, cell.hash === new URL(current, location).hash);
  drawHeatLegend();
}

function ladderHeat(series) {
  const rows = unique(series.map((one) => `${one.path}|${one.dtype}`)).map((row) => row.split("|"))
    .sort((one, other) => one[0].localeCompare(other[0]) || byDtype(one[1], other[1]));
  const several = unique(series.map((one) => one.path)).length > 1;
  return heatTable(series, several, rows.map(([path, dtype]) => ({
    name: [...breakable(path), " ", el("span", {class: "dtype"}, dtype)], spoken: `${path} ${dtype}`,
    of: series.filter((one) => one.path === path && one.dtype === dtype),
  })).map((row) => ({...row, shapes: unique(row.of.map((one) => one.shape)).length})));
}

function shapeHeat(data, at, series) {
  const shapes = unique(series.map((one) => one.shape)).sort(shapeOrder(data, at.path));
  return heatTable(series, false, shapes.map((shape) => {
    const of = series.filter((one) => one.shape === shape);
    const name = shapeName(data, of[0]);
    return {name: name ? [`${name} `, el("span", {class: "dtype"}, shape)] : [shape], spoken: shape, of};
  }));
}

function heatTable(series, severalLadders, rows) {
  const versions = unique(series.map((one) => one.version)).sort((one, other) => one - other);
  const idea = (version) => severalLadders ? "" : spaced(series.find((one) => one.version === version).idea);
  return el("table", {class: "heat"},
    el("thead", {}, el("tr", {}, el("th", {}), versions.map((version) =>
      el("th", {scope: "col"}, versionName(version), el("small", {}, idea(version)))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, el("th", {scope: "row"}, row.name),
      versions.map((version) => heatCell(row, version, row.of.filter((one) => one.version === version)))))));
}

function heatCell(row, version, series) {
  if (!series.length) return el("td", {});
  const ratios = series.map(ratioOf).filter(has);
  const failed = series.filter((one) => one.status === "FAIL" || one.status === "UNTRUSTED");
  const ambiguous = series.filter((one) => one.verdict.status === "AMBIGUOUS");
  const one = failed[0] || ambiguous[0] || series.find(ratioOf) || series[0];
  if (!ratios.length && !failed.length) return el("td", {}, unopposed(series, one));
  const ratio = geomean(ratios);
  const few = ratio && row.shapes > ratios.length ? `${ratios.length} of ${row.shapes}` : "";  // no figure of the ladder
  const text = (ratio ? figure(ratio) : "") + (failed.length ? ` ✕${failed.length > 1 ? failed.length : ""}` : "")
    + (ambiguous.length ? ` ≈${ambiguous.length > 1 ? ambiguous.length : ""}` : "");
  const share = ratio ? Math.max(-1, Math.min(1, Math.log(ratio) / FULL)) : 0;
  const spoken = [`${row.spoken} ${versionName(version)}`, 
    ratio && `${figure(ratio)} times the library's speed (${libraryNames(series.filter(ratioOf))})`,
    few ? `over ${few} shapes` : `over ${many(ratios.length, "shape")}`, failed.length && `${many(failed.length, "check")} failed`,
    ambiguous.length && `${ambiguous.length} ambiguous`].filter(Boolean).join(", ");
  const cell = el("a", {
    href: kernelLink(one), title: spoken, "aria-label": spoken,
    class: `${ambiguous.length ? "ambiguous " : ""}${failed.length ? "failed" : ""}`.trim(),
  }, text, few && el("small", {}, few));
  cell.style.setProperty("--tint", tint(share));
  return el("td", {}, cell);
}

// Without a baseline the card's limit, or a copy's bandwidth, is what is left to measure by.
function unopposed(series, one) {
  const timed = series.filter(passed);
  if (!timed.length) {
    const word = series.every((each) => each.status === "SKIP") ? "skipped" : "no time";
    return el("span", {class: "blank", title: one.reason}, word);
  }
  const share = geomean(timed.map(shareOfLimit));
  const cell = el("a", {href: kernelLink(timed[0]), title: `no baseline: ${one.baselineReason}`},
    share ? `${percent(share)} of ${shareOfCopy(timed[0]) ? "copy" : "limit"}` : "timed");
  cell.style.setProperty("--tint", tint(0));
  return cell;
}

function tint(share) {
  const side = share >= 0 ? "fast" : "slow";
  return `color-mix(in oklab, var(--${side}) calc(var(--mix) * ${Math.abs(share).toFixed(3)}), var(--faint))`;
}

function drawHeatLegend() {
  const swatch = (style, text) => {
    const box = el("span", {class: "swatch"});
    for (const [key, value] of Object.entries(style)) box.style.setProperty(key, value);
    return el("span", {}, box, text);
  };
  fill(byId("heat-legend"),
    swatch({background: tint(-1)}, "half the library's speed, or less"),
    swatch({background: tint(0)}, "as fast"),
    swatch({background: tint(1)}, "twice as fast, or more"),
    swatch({"background-image": "repeating-linear-gradient(135deg, var(--hatch) 0 2px, transparent 2px 7px)"},
      "≈ as many shapes are too noisy to compare with their last record"),
    swatch({border: "2px solid var(--ink)"}, "✕ a check failed, or a time cannot be"));
}
