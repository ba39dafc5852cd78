// The verdicts: counts of what the filters let through, and the kernels that were called by name.

const NAMED = 12;

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
  for (const element of document.querySelectorAll("#standing tbody tr, .dateline")) {
    element.hidden = ["device", "path", "dtype"].some((key) =>
      state[key] && element.dataset[key] && element.dataset[key] !== state[key]);
  }
  document.querySelector("#verdict h1").textContent = headline(shown);
  drawCalled(shown);
}

// As page.py says it of everything, here of what the filters let through.
function headline(shown) {
  const count = (...verdicts) => shown.filter((series) => verdicts.includes(series.verdict.status)).length;
  if (!shown.length) return "Nothing passes the filters.";
  const [slow, untrusted] = [count("SLOW"), count("UNTRUSTED")];
  if (count("FIRST", "UNTIMED") === shown.length) {
    return `Nothing to compare yet: each of the ${many(shown.length, "kernel")} has one record.`;
  }
  if (slow) return `${many(slow, "kernel")} became slower.`;
  return `No kernel became slower${untrusted ? `, ${many(untrusted, "kernel")} cannot be trusted` : ""}.`;
}

function drawCalled(shown) {
  const called = ["SLOW", "UNTRUSTED", "MISSING", "FAST"].flatMap((verdict) => shown
    .filter((series) => series.verdict.status === verdict)
    .sort((one, other) => Math.abs(Math.log(other.verdict.ratio || 1)) - Math.abs(Math.log(one.verdict.ratio || 1))));
  const items = called.slice(0, NAMED).map((series) => el("li", {},
    el("b", {class: series.verdict.status.toLowerCase()}, series.verdict.status), " ",
    el("a", {href: kernelLink(series)}, `${series.path} ${versionName(series.version)} ${series.problem}`), " ",
    series.verdict.ratio ? signed(series.verdict.ratio - 1) : series.verdict.reason));
  if (called.length > NAMED) items.push(el("li", {}, `and ${called.length - NAMED} more, in the table of results`));
  fill(byId("called"), items.length ? el("ul", {}, items) : "");
}

// The verdict in a sentence.
function verdictSentence(series) {
  const {status, ratio, low, high, reason} = series.verdict;
  if (status === "FIRST") return "One record so far: there is nothing to compare it with yet.";
  if (!ratio) return `${status}: ${ended(reason)}`;
  const range = has(low) && has(high) ? ` (99 % interval ${signed(low - 1)} to ${signed(high - 1)})` : "";
  const cycles = series.verdict.cycles_ratio ? `, in cycles ${signed(series.verdict.cycles_ratio - 1)}` : "";
  return `${status}: time ${signed(ratio - 1)}${range}${cycles}. ${ended(reason)}`;
}

const ended = (words) => words && `${words[0].toUpperCase()}${words.slice(1)}.`;
