// Undoes pack.py: base64, deflate, then JSON, float32 columns or the histories' byte planes.

const STEPS = 2048;
const BASE = 1e-10;
const NOTHING = 0xFFFF;

async function inflated(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The model with each series' `history` and `samples` put back in place, and its record's copy bandwidth.
async function unpack() {
  const [text, planes, floats] = await Promise.all(
    ["packed-data", "packed-histories", "packed-samples"].map(inflated));
  const data = JSON.parse(new TextDecoder().decode(text));
  const histories = unpackHistories(planes, data.points);
  const samples = unpackSamples(new Float32Array(floats.buffer), data.sampleCounts);
  data.series.forEach((series, at) => {
    series.at = at;
    series.history = histories[at];
    series.samples = samples[at];
    series.copy = data.records[series.record].copy;
  });
  return data;
}

// Five planes of two bytes and one of one, of all series' points in a row.
function unpackHistories(bytes, counts) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const word = (plane, at) => bytes[2 * plane * total + at] | bytes[(2 * plane + 1) * total + at] << 8;
  const difference = (plane, at) => {
    const folded = word(plane, at);
    return folded & 1 ? -(folded + 1 >> 1) : folded >> 1;
  };
  const seconds = (step) => step === NOTHING ? null : BASE * Math.exp(step / STEPS);
  let at = 0;
  return counts.map((count) => {
    let record = 0, median = 0, baseline = 0;
    const points = [];
    for (const end = at + count; at < end; ++at) {
      record = record + difference(0, at) & 0xFFFF;
      median = median + difference(1, at) & 0xFFFF;
      baseline = baseline + difference(4, at) & 0xFFFF;
      const timed = median !== NOTHING;
      points.push({
        record, median: seconds(median), baseline: seconds(baseline), status: bytes[10 * total + at],
        low: timed ? seconds(median - word(2, at)) : null, high: timed ? seconds(median + word(3, at)) : null,
      });
    }
    return points;
  });
}

// All series' times, then all their clocks; of each series the older record first.
function unpackSamples(floats, counts) {
  const total = counts.flat().reduce((sum, count) => sum + count, 0);
  let at = 0;
  return counts.map((ofSeries) => ofSeries.map((count) => {
    const begin = at;
    at += count;
    return {seconds: floats.subarray(begin, at), clocks: floats.subarray(total + begin, total + at)};
  }));
}
