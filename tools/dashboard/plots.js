// Chart.js with the page's colours, and the two things it lacks: marked lines and words beside points.

const plots = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function faded(name, share) {
  const [red, green, blue] = colour(name).match(/\w\w/g).map((pair) => parseInt(pair, 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}

// Draws into the canvas of #id; `label` says in words what there is to see.
function plot(id, label, config) {
  const canvas = byId(id).querySelector("canvas");
  plots.get(id)?.destroy();
  canvas.setAttribute("aria-label", label);
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  Chart.defaults.color = colour("soft");
  Chart.defaults.borderColor = colour("line");
  config.options = {animation: false, maintainAspectRatio: false, responsive: true, ...config.options};
  config.plugins = [marks, words];
  plots.set(id, new Chart(canvas, config));
}

const noPlot = (id) => {
  plots.get(id)?.destroy();
  plots.delete(id);
};

// options.plugins.marks.lines: [{x or y, label, dash, colour}], across the whole chart.
const marks = {
  id: "marks",
  afterDatasetsDraw(chart, _, {lines = []}) {
    const {ctx, chartArea: area, scales} = chart;
    ctx.save();
    ctx.font = `11px ${Chart.defaults.font.family}`;
    ctx.rect(area.left, area.top, area.width, area.height);
    ctx.clip();
    lines.forEach((line, at) => {
      ctx.strokeStyle = ctx.fillStyle = line.colour;
      ctx.setLineDash(line.dash || []);
      ctx.beginPath();
      if (line.x !== undefined) {
        const x = scales.x.getPixelForValue(line.x);
        ctx.moveTo(x, area.top);
        ctx.lineTo(x, area.bottom);
        const right = x > area.left + 0.75 * area.width;
        ctx.textAlign = right ? "right" : "left";
        ctx.fillText(line.label, x + (right ? -5 : 5), area.top + 11 + 13 * (at % 3));
      } else {
        const y = scales.y.getPixelForValue(line.y);
        ctx.moveTo(area.left, y);
        ctx.lineTo(area.right, y);
        ctx.textAlign = "right";
        ctx.fillText(line.label, area.right - 4, y - 5);
      }
      ctx.stroke();
    });
    ctx.restore();
  },
};

// A point with a `word` has it written beside it, unless another word is there already.
const words = {
  id: "words",
  afterDatasetsDraw(chart) {
    const {ctx} = chart;
    const taken = [];
    ctx.save();
    ctx.font = `11px ${Chart.defaults.font.family}`;
    ctx.fillStyle = colour("ink");
    ctx.textBaseline = "middle";
    chart.data.datasets.forEach((dataset, at) => dataset.data.forEach((point, index) => {
      if (!point?.word || !chart.isDatasetVisible(at)) return;
      const {x, y} = chart.getDatasetMeta(at).data[index];
      if (taken.some(([left, top]) => Math.abs(left - x) < 28 && Math.abs(top - y) < 11)) return;
      taken.push([x, y]);
      ctx.fillText(point.word, x + 8, y);
    }));
    ctx.restore();
  },
};

const axis = (text, more = {}) => ({title: {display: true, text}, grid: {color: colour("faint")}, ...more});
