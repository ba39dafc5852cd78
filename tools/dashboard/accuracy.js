// Errors of each version beside the baseline's on the same inputs, and how its checks went.

function drawAccuracy(data) {
  const at = focus(data);
  const shown = chosen(data).filter((series) => at && series.device === at.device && series.path === at.path);
  byId("accuracy-ladder").textContent = at ? `This is ${at.path}, in every type.` : "";
  const groups = new Map();
  for (const series of shown) {
    const key = `${series.version} ${series.dtype}`;
    groups.set(key, [...(groups.get(key) || []), series]);
  }
  const order = ([, one], [, other]) =>
    byDtype(one[0].dtype, other[0].dtype) || one[0].version - other[0].version;
  const rows = [...groups].sort(order).map(([, series]) => accuracyRow(series));
  fill(byId("accuracy-table"), rows.length ? table([
    "version", "type", {n: "largest error"}, {n: "library's"}, {n: "ratio"}, "", {n: "of its bound"},
    {n: "shapes passed"}, "skipped or failed"], rows) : "Nothing passes the filters.");
}

function accuracyRow(series) {
  const largest = (values) => values.filter(has).length ? Math.max(...values.filter(has)) : null;
  const checked = series.filter((one) => one.status !== "SKIP");
  const worst = largest(checked.map((one) => one.error));
  const library = largest(checked.map((one) => one.baselineError));
  const ratio = has(worst) && library ? worst / library : null;
  const meter = el("span", {class: "meter", "aria-hidden": "true"});
  meter.style.width = `${Math.min(2, ratio || 0) * 3}rem`;
  const passes = series.filter((one) => one.status === "PASS").length;
  const others = unique(series.filter((one) => one.status !== "PASS").map((one) => `${one.status}: ${one.reason}`));
  return [`${versionName(series[0].version)} ${spaced(series[0].idea)}`, series[0].dtype,
    {n: tiny(worst)}, {n: tiny(library)}, {n: has(ratio) ? `× ${figure(ratio)}` : "–"}, ratio ? meter : "",
    {n: percent(largest(checked.map((one) => one.worst)))}, {n: `${passes} of ${series.length}`}, others.join("; ")];
}
