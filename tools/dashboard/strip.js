// The verdicts: counts of what the filters let through, and the kernels that were called by name.

const NAMED = 12;
const NOTABLE = ["SLOW", "UNTRUSTED", "MISSING", "FAST"];  // the first of them are named
const VERDICTS = [...NOTABLE, "SAME", "AMBIGUOUS"];  // what model.py calls a comparison

function drawStrip(data) {
  const shown = chosen(data);
  for (const tile of document.querySelectorAll(".tile")) {
    const verdict = tile.dataset.verdict;
    const count = shown.filter((series) => series.verdict.status === verdict).length;
    tile.querySelector("b").textContent = count;
    tile.classList.toggle("none", count === 0);
    tile.href = link({verdict: state.verdict === verdict ? "" : verdict, at: "results"});
    mark(tile, state.verdict === verdict);
  }
  for (const element of document.querySelectorAll(".standing tbody tr, .dateline, .search")) {
    element.hidden = ["device", "path", "dtype"].some((key) =>
      state[key] && element.dataset[key] && element.dataset[key] !== state[key]);
  }
  document.querySelector("#verdict h1").textContent = headline(data, shown);
  drawCalled(shown);
}

// As page.py says it of everything, here of what the filters let through.
function headline(data, shown) {
  if (!shown.length) return "Nothing passes the filters.";
  const live = [data.live[state.device]].find((one) => one && (!state.path || one.paths.includes(state.path)));
  const compared = shown.filter((series) => VERDICTS.includes(series.verdict.status));
  if (!live && !compared.length) return "Nothing to compare yet: no kernel here has two records of one card.";
  const day = live ? live.day : data.records[compared[0].record].created.slice(0, 10);
  const count = (verdict) =>
    live ? live.counts[verdict] || 0 : compared.filter((series) => series.verdict.status === verdict).length;
  const [slow, untrusted] = [count("SLOW"), count("UNTRUSTED")];
  if (slow) return `${many(slow, "kernel")} became slower on ${day}.`;
  return `No kernel became slower on ${day}${untrusted ? `, ${many(untrusted, "kernel")} cannot be trusted` : ""}.`;
}

function drawCalled(shown) {
  const called = NOTABLE.flatMap((verdict) => shown
    .filter((series) => series.verdict.status === verdict)
    .sort((one, other) => Math.abs(Math.log(other.verdict.ratio || 1)) - Math.abs(Math.log(one.verdict.ratio || 1))));
  const items = called.slice(0, NAMED).map((series) => el("li", {},
    el("b", {class: series.verdict.status.toLowerCase()}, series.verdict.status), " ",
    el("a", {href: kernelLink(series)}, `${series.path} ${versionName(series.version)} ${series.problem}`), " ",
    series.verdict.ratio ? signed(series.verdict.ratio - 1) : series.verdict.reason));
  const rest = called.slice(NAMED).map((series) => series.verdict.status);
  const counts = NOTABLE.filter((verdict) => rest.includes(verdict))
    .map((verdict) => `${rest.filter((each) => each === verdict).length} ${verdict}`);
  if (rest.length) items.push(el("li", {}, `and ${counts.join(", ")} more, in the table of results`));
  fill(byId("called"), items.length ? el("ul", {}, items) : "");
}

// The verdict in a sentence.
function verdictSentence(series) {
  const {status, ratio, low, high, reason} = series.verdict;
  if (status === "FIRST") return "One record on its card so far: there is nothing to compare it with yet.";
  if (!ratio) return `${status}: ${ended(reason)}`;
  const range = has(low) && has(high) ? ` (99 % interval ${signed(low - 1)} to ${signed(high - 1)})` : "";
  const cycles = series.verdict.cycles_ratio ? `, in cycles ${signed(series.verdict.cycles_ratio - 1)}` : "";
  return `${status}: time ${signed(ratio - 1)}${range}${cycles}. ${ended(reason)}`;
}

const ended = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}.`;
