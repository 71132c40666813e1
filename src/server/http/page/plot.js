// A plot of some series over time, as a drawing that also says its latest figures in words.

import { fill, h, setText, svg } from "./dom.js";

const WIDTH = 560;
const HEIGHT = 128;
const LEFT = 38;
const BOTTOM = 18;
const TOP = 8;

/** How far back a plot goes, in minutes: as far as there are samples, and no further. */
const SPANS = [2, 10, 30];

export class Plot {
  #series;
  #format;
  #title;

  /** `series`: {name, value(sample, before)}; the value is null where there is none. */
  constructor({ title, series, format }) {
    this.#title = title;
    this.#series = series;
    this.#format = format;
    this.drawing = svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.figures = series.map(() => h("b", {}));
    this.keys = h("div", { class: "keys" }, series.map((it, i) =>
      h("span", { class: "key" }, h("span", { class: `swatch s${it.color}` }), `${it.name} `, this.figures[i])));
  }

  draw(samples) {
    const now = Date.now();
    const known = (now - (samples[0]?.at ?? now)) / 60_000;
    const minutes = SPANS.find((it) => it >= known) ?? SPANS.at(-1);
    const span = minutes * 60_000;
    const shown = samples.filter((sample) => sample.at > now - span);
    const lines = this.#series.map(({ value }) => points(shown, value));
    const most = nice(Math.max(1, ...lines.flat().map(([, y]) => y)));
    const width = this.drawing.clientWidth || WIDTH;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const x = (at) => LEFT + (1 - (now - at) / span) * (width - LEFT - 6);
    const y = (value) => TOP + (1 - value / most) * (HEIGHT - TOP - BOTTOM);
    const parts = [];
    for (const part of [0, 0.5, 1]) {
      const value = most * part;
      parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - 6, y1: y(value), y2: y(value) }),
        svg("text", { x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end", text: this.#format(value) }));
    }
    for (const [ago, anchor] of [[minutes, "start"], [minutes / 2, "middle"], [0, "end"]]) {
      parts.push(svg("text", { x: x(now - ago * 60_000), y: HEIGHT - 4, "text-anchor": anchor, text: ago ? `−${ago} min` : "now" }));
    }
    lines.forEach((line, i) => {
      if (line.length < 2) return;
      const path = line.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`);
      const color = this.#series[i].color;
      const ends = [`${x(line[0][0]).toFixed(1)},${y(0)}`, `${x(line.at(-1)[0]).toFixed(1)},${y(0)}`];
      parts.push(svg("polygon", { class: `area p${color}`, points: [ends[0], ...path, ends[1]].join(" ") }),
        svg("polyline", { class: `line p${color}`, points: path.join(" ") }));
    });
    fill(this.drawing, parts);
    const latest = lines.map((line) => line.at(-1)?.[1] ?? 0);
    latest.forEach((value, i) => setText(this.figures[i], this.#format(value)));
    const words = this.#series.map(({ name }, i) => `${name} ${this.#format(latest[i])}`);
    this.drawing.setAttribute("aria-label", `${this.#title}: now ${words.join(", ")}; at most ${this.#format(most)}`);
  }
}

function points(samples, value) {
  const found = [];
  samples.forEach((sample, i) => {
    const y = value(sample, samples[i - 1]);
    if (y !== null) found.push([sample.at, y]);
  });
  return found;
}

/** The next figure that is good to read. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 5, 10].find((it) => it * power >= value);
  return step * power;
}

/** How often something was counted in a second, between two samples of one run of the scheduler. */
export function perSecond(key) {
  return (sample, before) => {
    if (!before || before.started + 5000 < sample.started || sample[key] < before[key]) return null;
    const seconds = (sample.at - before.at) / 1000;
    return seconds > 0.2 ? (sample[key] - before[key]) / seconds : null;
  };
}
