// The figures of two profiles side by side.

function drawProfiles(data) {
  const list = data.profiles.filter((profile) =>
    (!state.device || profile.device === state.device) && (!state.path || profile.path === state.path) &&
    (!state.dtype || profile.dtype === state.dtype));
  if (!list.length) {
    fill(byId("profile-panel"), el("p", {},
      data.profiles.length ? "No profile passes the filters. " : "No profile yet. ",
      el("code", {}, profileCommand(kernelOf(data))), " makes one."));
    return;
  }
  const pick = (key, fallback) => list.find((profile) => profile.file === state[key]) || list[fallback] || list.at(-1);
  const left = pick("left", 0), right = pick("right", list.length - 1);
  const choose = (key, name, value) => {
    const select = el("select", {onchange: () => go({[key]: select.value})}, list.map((profile) =>
      el("option", {value: profile.file, selected: profile === value}, profileName(profile))));
    return el("label", {}, name, select);
  };
  fill(byId("profile-panel"), el("div", {class: "pick"}, choose("left", "Profile", left),
      choose("right", "beside", right)),
    el("div", {class: "scroll"}, profileTable(unique([left, right]))));
}

function profileCommand(series) {
  return series ? `./ladder profile ${series.path} --version ${series.version}`
    : "./ladder profile <layer>/<pass> --version N";
}

const profileName = (profile) =>
    `${profile.path} ${versionName(profile.version)} ${profile.problem}, ${profile.commit}`;

const FIGURE_NAMES = {
  duration: "duration under the profiler", sm: "SM", dram: "DRAM", l2: "L2", l1: "L1 and shared memory",
  tensor: "tensor pipe", fma: "FMA pipe", issue: "issue slots", occupancy: "occupancy, achieved",
  theoretical_occupancy: "occupancy, theoretical", registers: "registers a thread",
  shared_memory: "shared memory a block",
  spill_bytes: "spilled bytes moved", l2_hit: "L2 hit rate", l1_hit: "L1 hit rate", dram_bytes: "DRAM traffic",
  sm_clock: "SM clock under the profiler", conflict_share: "bank conflicts, share of wavefronts",
};

// A launch may be several kernels: figures are of them all, stalls of the longest.
function profileTable(profiles) {
  const two = profiles.length === 2;
  const last = profiles.at(-1);
  const row = (name, cell) => [name, ...profiles.map((profile) => ({n: cell(profile)})), ...(two ? [""] : []), ""];
  const rows = [row("lower bound", (profile) => has(profile.lower_bound) ? `${micros(profile.lower_bound)} µs` : "–")];
  for (const name of unique(profiles.flatMap((profile) => Object.keys(profile.total)))) {
    const figures = profiles.map((profile) => profile.total[name]);
    if (!figures.some((one) => has(one?.value))) continue;
    const [one, other] = figures.map((figure) => figure?.value);
    rows.push([FIGURE_NAMES[name] || spaced(name), ...figures.map((figure) => ({n: profileFigure(figure)})),
      ...(two ? [{n: one && has(other) ? `× ${figure(other / one)}` : ""}] : []), last.total[name]?.text || ""]);
  }
  const longest = (profile) => profile.kernels.slice().sort((one, other) => other.duration - one.duration)[0];
  rows.push(row("most frequent stalls", (profile) => stacked((longest(profile)?.stalls || []).slice(0, 3)
    .map((stall) => `${spaced(stall.reason)} ${percent(stall.share)}`))));
  rows.push(row("kernels", (profile) => stacked(profile.kernels.flatMap((kernel) => [
    el("code", {title: kernel.name}, shortName(kernel.name)),
    el("small", {}, `${micros(kernel.duration)} µs, grid ${kernel.grid}, block ${kernel.block}`)]))));
  rows.push(row("report", (profile) => profile.report
    ? el("a", {href: encodeURI(profile.report), title: profile.report}, "for Nsight Compute")
    : el("span", {title: profile.file}, "figures only")));
  const heads = ["", ...profiles.map((profile) => ({n: `${versionName(profile.version)} ${spaced(profile.idea)}`})),
    ...(two ? [{n: "change"}] : []), two ? `what ${versionName(last.version)}'s says` : "what it says"];
  return [table(heads, rows), profiles.map((profile) => profile.advice.length ? el("div", {},
    el("h3", {}, `What ${versionName(profile.version)}'s profile suggests`),
    el("ul", {class: "lead"}, profile.advice.map((line) => el("li", {}, line)))) : "")].flat();
}

const stacked = (lines) => el("div", {}, lines.map((line) => el("div", {}, line)));
const shortName = (name) => name.length > 48 ? `${name.slice(0, 47)}…` : name;

function profileFigure(found) {
  if (!has(found?.value)) return "–";
  const {value, unit} = found;
  if (unit === "s") return `${micros(value)} µs`;
  if (unit === "%") return `${figure(value)} %`;
  if (unit === "Hz") return `${(value / 1e6).toFixed(0)} MHz`;
  if (unit.startsWith("bytes")) return value < 1e6 ? bytes(value) : `${figure(value / 1e6)} MB`;
  return Number.isInteger(value) ? value.toLocaleString("en") : figure(value);
}
