// The map of all nodes: a cell each, drawn on a canvas, for the pointer and for the keyboard.

import { h, say, setText, shown as escaped } from "./dom.js";
import { byName, count, nodeName, nodeState, percent, share, shareOf } from "./format.js";
import { claimsOf, store } from "./store.js";

/** Sides of a cell, in pixels: with more nodes they are smaller. */
const MIN_CELL = 5;
const MAX_CELL = 26;

/** Nodes up to which cells are large enough for names, and the size of these: as wide as fills the line. */
const MAX_NAMED = 120;
const NAMED_WIDTH = 100;
const NAMED_HEIGHT = 30;

/** Units of 10⁶ bytes in a MiB: nodes report disk in the former, instances ask for it in the latter. */
const DISK_UNIT = 1.048576;

/** What cells may be coloured by; the cluster's custom resources come after these. */
const MEASURES = {
  memory: (row) => shareOf(claimsOf(row.node_uuid).mem, row.mem_free_mb),
  vcpus: (row) => shareOf(claimsOf(row.node_uuid).vcpus, row.vcpus_free),
  disk: (row) => shareOf(claimsOf(row.node_uuid).disk * DISK_UNIT, row.disk_free_mb),
};

/** The map that is shown: a view has one at most. */
let shown = null;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.redraw());

export class NodeMap {
  #choose;
  #rows = [];
  #cursor = -1;
  #selected = null;
  #columns = 1;
  #cell = { width: MAX_CELL, height: MAX_CELL };
  #height;
  #isNamed = false;
  #version = -1;
  #drawn = "";

  constructor({ choose, height = 320 }) {
    this.#choose = choose;
    this.#height = height;
    this.by = "memory";
    this.canvas = h("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "map of nodes",
      "aria-label": "Map of nodes. Arrow keys go from node to node, Enter shows one. The table of nodes has the same.",
      on: {
        click: (event) => this.#pick(event),
        mousemove: (event) => this.#hover(event),
        mouseleave: () => this.#tell(-1),
        keydown: (event) => this.#key(event),
        blur: () => this.#move(-1),
      },
    });
    this.tip = h("div", { class: "tip", text: "\u00a0" });
    this.partial = h("p", { class: "note warn", hidden: true, text: "There are more instances than this page reads: what they claim of memory, vcpus and disk of each node is not known here." });
    this.element = h("div", { class: "map" }, this.canvas, this.tip, this.partial);
    this.select = h("select", { "aria-label": "Colour of the map", on: { change: () => this.#recolour() } });
    new ResizeObserver(() => this.redraw()).observe(this.element);
    shown = this;
  }

  /** Shows these nodes; `version` is another one whenever a row is. */
  set(rows, selected, version) {
    this.#selected = selected;
    if (this.#version !== version) {
      this.#version = version;
      this.#rows = [...rows].sort((a, b) => byName(a.hostname, b.hostname) || byName(a.node_uuid, b.node_uuid));
      this.#offer();
    }
    const drawn = `${version}/${selected}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.partial.hidden = !store.hasMore;
    this.redraw();
  }

  redraw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const fit = Math.floor(Math.sqrt((width * this.#height) / Math.max(1, this.#rows.length)));
    const side = Math.max(MIN_CELL, Math.min(MAX_CELL, fit));
    this.#isNamed = this.#rows.length <= MAX_NAMED;
    this.#columns = Math.max(1, Math.floor(width / (this.#isNamed ? NAMED_WIDTH : side)));
    this.#cell = this.#isNamed ? { width: width / this.#columns, height: NAMED_HEIGHT } : { width: side, height: side };
    const rows = Math.max(1, Math.ceil(this.#rows.length / this.#columns));
    const height = rows * this.#cell.height;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    const colours = palette();
    const measure = this.#measure();
    this.#rows.forEach((row, at) => this.#drawCell(context, row, at, colours, measure));
    // What tests count.
    this.canvas.dataset.nodes = String(this.#rows.length);
    this.canvas.dataset.width = String(this.#cell.width);
    this.canvas.dataset.height = String(this.#cell.height);
    this.canvas.dataset.columns = String(this.#columns);
    this.canvas.dataset.frames = String(Number(this.canvas.dataset.frames ?? 0) + 1);
  }

  #drawCell(context, row, at, colours, measure) {
    const [x, y] = [(at % this.#columns) * this.#cell.width, Math.floor(at / this.#columns) * this.#cell.height];
    const gap = this.#cell.height > 12 ? 3 : 1;
    const [width, height] = [this.#cell.width - gap, this.#cell.height - gap];
    const [, kind] = nodeState(row);
    const isGone = kind === "bad" || kind === "gone";
    if (this.by === "status") context.fillStyle = colours[kind] ?? colours.gone;
    else context.fillStyle = isGone ? colours[kind] : mix(colours, measure(row));
    const fill = context.fillStyle;
    context.fillRect(x, y, width, height);
    if (this.by !== "status" && kind === "hold") {
      const bar = Math.max(2, Math.min(5, height / 4));
      context.fillStyle = colours.hold;
      context.fillRect(x, y + height - bar, width, bar);
    }
    if (this.#isNamed) {
      context.fillStyle = isLight(fill) ? "#10161c" : "#ffffff";
      context.fillText(escaped(nodeName(row)).slice(0, 15), x + 8, y + height / 2 + 4, width - 14);
    }
    if (row.node_uuid === this.#selected || at === this.#cursor) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, width - 2, height - 2);
    }
  }

  /** The resources that nodes have, as colours to choose. */
  #offer() {
    const custom = new Set();
    for (const row of this.#rows) for (const name of Object.keys(row.resources_total ?? {})) custom.add(name);
    const names = [...Object.keys(MEASURES), ...[...custom].sort().slice(0, 20), "status"];
    if (names.join() === [...this.select.options].map((option) => option.value).join()) return;
    this.select.replaceChildren(...names.map((name) =>
      h("option", { value: name, text: name === "status" ? "by status" : `${name} claimed`, selected: name === this.by })));
  }

  #measure() {
    const name = this.by;
    return MEASURES[name] ?? ((row) => share(row.resources_total?.[name] ?? 0, row.resources_free?.[name]));
  }

  #recolour() {
    this.by = this.select.value;
    this.redraw();
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.#cell.width);
    const row = Math.floor((event.clientY - box.top) / this.#cell.height);
    const at = row * this.#columns + column;
    return column >= 0 && column < this.#columns && at < this.#rows.length ? at : -1;
  }

  #pick(event) {
    const at = this.#at(event);
    if (at >= 0) this.#choose(this.#rows[at]);
  }

  #hover(event) {
    this.#tell(this.#at(event));
  }

  #tell(at) {
    const row = this.#rows[at];
    setText(this.tip, row ? this.#words(row) : "\u00a0");
  }

  #words(row) {
    const [state] = nodeState(row);
    const claimed = Object.entries(MEASURES).map(([name, of]) => `${name} ${percent(of(row))}`);
    return `${nodeName(row)} · ${state} · ${count(row.instances)} instances · ${claimed.join(", ")}`;
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.#columns, ArrowUp: -this.#columns };
    const last = this.#rows.length - 1;
    if (event.key in steps) this.#move(Math.min(last, Math.max(0, this.#cursor + steps[event.key])));
    else if (event.key === "Home") this.#move(0);
    else if (event.key === "End") this.#move(last);
    else if (event.key === "Enter" && this.#rows[this.#cursor]) this.#choose(this.#rows[this.#cursor]);
    else return;
    event.preventDefault();
  }

  #move(at) {
    if (at === this.#cursor) return;
    this.#cursor = at;
    this.#tell(at);
    if (this.#rows[at]) say(this.#words(this.#rows[at]));
    this.redraw();
  }
}

/** What the colours of the map mean. */
export function legend() {
  const key = (swatch, text) => h("span", { class: "key" }, h("span", { class: `swatch ${swatch}` }), text);
  return h("div", { class: "keys" }, key("empty0", "empty"), key("half0", "half"), key("full0", "full"),
    key("hold0", "cordoned, draining"), key("bad0", "lost"), key("gone0", "expected, offline"));
}

/** Colours of the theme, as the page has them now. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const rgb = (name) => [1, 3, 5].map((from) => parseInt(of(name).slice(from, from + 2), 16));
  return {
    scale: [rgb("--cell-empty"), rgb("--cell-half"), rgb("--cell-full")], cache: new Map(),
    good: of("--good"), warn: of("--warn"), bad: of("--bad"), hold: of("--hold"), gone: of("--cell-gone"), text: of("--text"),
  };
}

/** Whether dark text is read well on a colour of the form #rrggbb, which is how a canvas gives colours back. */
function isLight(colour) {
  const [red, green, blue] = [1, 3, 5].map((from) => parseInt(colour.slice(from, from + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140;
}

/** The colour of a share. */
function mix({ scale, cache, gone }, value) {
  if (Number.isNaN(value)) return gone;
  const step = Math.round(value * 50);
  if (!cache.has(step)) {
    const at = (step / 50) * 2;
    const [from, to] = at < 1 ? [scale[0], scale[1]] : [scale[1], scale[2]];
    const part = at < 1 ? at : at - 1;
    const parts = from.map((it, i) => Math.round(it + (to[i] - it) * part));
    cache.set(step, `rgb(${parts.join(" ")})`);
  }
  return cache.get(step);
}
