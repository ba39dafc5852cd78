// Elements and figures. Text enters the page through textContent alone, so nothing that a record says is ever markup.

function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (![null, undefined, false].includes(value)) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const byId = (id) => document.getElementById(id);

function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
}

// A table of rows of cells; a cell is text, an element, or {n: text} for a figure. The first of a row is its heading.
function table(heads, rows, attributes = {}) {
  const cell = (value, at) => at === 0
    ? el("th", {scope: "row"}, value)
    : value && value.n !== undefined ? el("td", {class: "n"}, value.n) : el("td", {}, value ?? "");
  return el("table", attributes,
    el("thead", {}, el("tr", {}, heads.map((head) => head.n !== undefined
      ? el("th", {scope: "col", class: "n"}, head.n) : el("th", {scope: "col"}, head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))));
}

const has = (value) => value !== null && value !== undefined && Number.isFinite(value);

// Two or three digits that say something.
function figure(value) {
  if (!has(value)) return "–";
  const size = Math.abs(value);
  return size < 0.1 && size > 0 ? String(Number(value.toPrecision(2)))
      : value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

const micros = (seconds) => has(seconds) ? figure(seconds * 1e6) : "–";
const signed = (change) => `${change >= 0 ? "+" : "−"}${Math.abs(100 * change).toFixed(1)} %`;
const percent = (share) => has(share) ? `${(100 * share).toFixed(0)} %` : "–";
const tiny = (value) => has(value) ? value.toExponential(1) : "–";
const versionName = (version) => `v${String(version).padStart(2, "0")}`;
const spaced = (idea) => idea.replaceAll("_", " ");
const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const breakable = (path) => path.split(/(?<=[/_])/).flatMap((part, at) => at ? [el("wbr"), part] : [part]);
const unique = (values) => [...new Set(values)];

function bytes(count) {
  if (!has(count)) return "–";
  return count < 1024 ? `${count} B` : `${figure(count / 1024)} KiB`;
}

function geomean(values) {
  const logs = values.filter((value) => value > 0).map(Math.log);
  return logs.length ? Math.exp(logs.reduce((sum, value) => sum + value, 0) / logs.length) : null;
}

const when = (record) => record.created.slice(0, 16).replace("T", " ");

function mark(element, current) {
  if (current) element.setAttribute("aria-current", "true");
  else element.removeAttribute("aria-current");
}

// For a moment, in a corner; read out by screen readers.
function say(text) {
  const said = byId("said");
  said.textContent = text;
  said.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => said.classList.remove("shown"), 2000);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not every browser gives a page from disk its clipboard
    const area = el("textarea", {class: "skip"});
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
}

function download(name, type, text) {
  const link = el("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
