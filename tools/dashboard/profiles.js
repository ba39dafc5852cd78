// The figures of two profiles side by side.

function drawProfiles(data) {
  const list = data.profiles.filter((profile) =>
    (!state.device || profile.device === state.device) && (!state.path || profile.path === state.path) &&
    (!state.dtype || profile.dtype === state.dtype));
  if (!list.length) {
    fill(byId("profile-panel"), el("p", {}, data.profiles.length ? "No profile passes the filters. " : "No profile yet. ",
      el("code", {}, "./ladder profile conv3x3 --version 9"), " makes one."));
    return;
  }
  const pick = (key, fallback) => list.find((profile) => profile.file === state[key]) || list[fallback] || list.at(-1);
  const left = pick("left", 0), right = pick("right", list.length - 1);
  const choose = (key, name, value) => {
    const select = el("select", {onchange: () => go({[key]: select.value})}, list.map((profile) =>
      el("option", {value: profile.file, selected: profile === value}, profileName(profile))));
    return el("label", {}, name, select);
  };
  fill(byId("profile-panel"), el("div", {class: "pick"}, choose("left", "Profile", left), choose("right", "beside", right)),
    el("div", {class: "scroll"}, profileTable(unique([left, right]))));
}

const profileName = (profile) => `${profile.path} ${versionName(profile.version)} ${profile.problem}, ${profile.commit}`;

// Kernel by kernel in the order they ran; a version may launch several.
function profileTable(profiles) {
  const count = Math.max(...profiles.map((profile) => profile.kernels.length));
  const rows = [["floor, µs", ...profiles.map((profile) => ({n: micros(profile.floor)}))]];
  for (let at = 0; at < count; ++at) {
    const kernels = profiles.map((profile) => profile.kernels[at]);
    rows.push([el("b", {}, count > 1 ? `kernel ${at + 1}` : "kernel"),
      ...kernels.map((kernel) => ({n: kernel ? el("code", {title: kernel.name}, kernel.name.length > 40 ? `${kernel.name.slice(0, 39)}…` : kernel.name) : ""}))]);
    rows.push(["grid, block", ...kernels.map((kernel) => ({n: kernel ? `${kernel.grid}, ${kernel.block}` : ""}))]);
    for (const name of unique(kernels.flatMap((kernel) => Object.keys(kernel?.figures || {})))) {
      rows.push([spaced(name), ...kernels.map((kernel) => ({n: profileFigure(kernel?.figures[name])}))]);
    }
    rows.push(["stalls", ...kernels.map((kernel) => ({n: (kernel?.stalls || []).slice(0, 4)
      .map((stall) => `${stall.reason} ${percent(stall.share)}`).join(", ")}))]);
  }
  rows.push(["advice", ...profiles.map((profile) => profile.advice.join(" "))]);
  rows.push(["report", ...profiles.map((profile) => profile.report
    ? el("a", {href: encodeURI(profile.report)}, profile.report.split("/").at(-1)) : profile.file)]);
  return table(["", ...profiles.map((profile) => ({n: `${versionName(profile.version)} ${spaced(profile.idea)}`}))], rows,
    {style: "width:auto"});
}

function profileFigure(found) {
  if (!found) return "–";
  if (found.text) return found.text;
  return has(found.value) ? `${figure(found.value)} ${found.unit}`.trim() : "–";
}
