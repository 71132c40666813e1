// The cluster at a glance.

import { fill, h, panel, setText } from "./dom.js";
import { clock, count, mib, megabytes, percent, rate, span } from "./format.js";
import { NodeMap, legend } from "./map.js";
import { Plot, perSecond } from "./plot.js";
import { store } from "./store.js";

export function overview() {
  const tiles = ["Status", "Nodes", "Instances", "Queue", "Starts"].map(tile);
  const meters = h("div", { class: "meters body", id: "meters" });
  const placements = new Plot({
    title: "Placements and failures per second", format: rate,
    series: [{ name: "placements/s", color: 1, value: perSecond("placed") }, { name: "failures/s", color: 2, value: perSecond("failed") }],
  });
  const queue = new Plot({
    title: "Queue length", format: (value) => count(Math.round(value * 10) / 10),
    series: [{ name: "waiting", color: 3, value: (sample) => sample.queued }],
  });
  const map = new NodeMap({ choose: (row) => (location.hash = `#/nodes/${encodeURIComponent(row.node_uuid)}`) });
  const activity = h("ul", { class: "activity", id: "activity" });
  const none = h("p", { class: "empty", text: "Nothing has happened yet." });
  const verdict = h("p", { class: "note", id: "verdict-line", role: "status" });
  const conditions = h("ul", { class: "conditions", id: "conditions" });
  const element = [
    h("h1", { class: "unseen", text: "Overview" }),
    verdict, conditions,
    h("div", { class: "tiles" }, tiles.map((it) => it.element)),
    h("div", { class: "columns wide-left" },
      h("div", { class: "stack" },
        panel("Nodes", h("div", { class: "body" }, map.element, legend()), { tools: [map.select] }),
        h("div", { class: "columns" },
          panel("Starts", h("div", { class: "body" }, placements.drawing), { tools: [placements.keys] }),
          panel("Queue", h("div", { class: "body" }, queue.drawing), { tools: [queue.keys] }))),
      h("div", { class: "stack" },
        panel("Resources", meters),
        panel("Activity", h("div", {}, activity, none)))),
  ];
  let latest = null;
  return {
    element,
    update() {
      map.set([...store.nodes.values()], null, store.version);
      placements.draw(store.samples);
      queue.draw(store.samples);
      if (store.status) drawConditions(verdict, conditions, store.status);
      if (store.status) drawTiles(tiles, store.status);
      if (store.status) drawMeters(meters, store.status.resources);
      none.hidden = store.activity.length > 0;
      if (store.activity[0] === latest) return;
      latest = store.activity[0];
      fill(activity, store.activity.slice(0, 100).map(({ at, kind, text }) =>
        h("li", {}, h("time", { text: at ? clock(at) : "earlier" }), h("span", { class: kind, text, title: text }))));
    },
  };
}

/** What is not well, as the scheduler lists it: what, for how long, what to do. */
function drawConditions(verdict, list, status) {
  const all = status.conditions ?? [];
  const words = all.length ? `not well: ${count(all.length)} ${all.length === 1 ? "problem" : "problems"}` : "all is well";
  setText(verdict, words);
  verdict.className = `note ${all.length ? "warn" : "good"}`;
  fill(list, all.map(({ kind, severity, what, since_s, advice }) => h("li", { "data-kind": kind, "data-severity": severity },
    h("b", { text: what }), since_s === undefined ? "" : ` (for ${span(since_s)})`, advice ? h("div", { class: "quiet", text: advice }) : null)));
}

function tile(title) {
  const value = h("div", { class: "value", id: `tile-${title.toLowerCase()}` });
  const more = h("div", { class: "more" });
  return { element: h("div", { class: "tile" }, h("h3", { text: title }), value, more), value, more };
}

function show({ value, more }, figure, words) {
  setText(value, typeof figure === "number" ? count(figure) : figure);
  value.dataset.value = String(figure);
  setText(more, words);
}

function drawTiles([state, nodes, instances, queue, starts], status) {
  const unwell = status.conditions?.length ?? 0;
  const trouble = status.role === "leaving" ? "leaving" : unwell ? "not well" : "all is well";
  const { configuration } = status;
  const rules = configuration ? `configuration ${configuration.version}` : "no configuration";
  show(state, trouble, `version ${status.version}, up ${span(status.uptime_s)}, ${rules}`);
  const by = Object.entries(status.nodes.by_status).sort(([a], [b]) => a.localeCompare(b));
  show(nodes, status.nodes.total, by.map(([name, number]) => `${count(number)} ${name.toLowerCase()}`).join(", ") || "none yet");
  const { on_nodes, unconfirmed, in_doubt, queued } = status.instances;
  show(instances, on_nodes, `${count(unconfirmed)} not confirmed, ${count(in_doubt)} in doubt`);
  show(queue, queued, queued ? "waiting for room" : "nothing waits");
  const { total, placed, failed } = status.starts;
  show(starts, total, `${count(placed)} placed, ${count(failed)} failed`);
}

/** Names and units of what every cluster has. */
const RESOURCES = [
  ["mem_mb", "Memory", mib],
  ["vcpus", "Virtual CPUs", count],
  ["disk_mb", "Disk", megabytes],
];

function drawMeters(element, resources) {
  const custom = Object.entries(resources.custom).map(([name, total]) => [name, name === "other" ? "Other resources" : name, count, total]);
  const all = [...RESOURCES.map(([key, title, format]) => [key, title, format, resources[key]]), ...custom.slice(0, 20)];
  const keys = all.map(([key]) => key).join();
  if (element.dataset.keys !== keys) {
    element.dataset.keys = keys;
    fill(element, all.map(([key, title]) => meter(key, title)));
  }
  all.forEach(([key, title, format, total], i) => {
    const { capacity, claimed, used } = total;
    const part = (value) => (capacity > 0 ? Math.min(1, Math.max(0, value / capacity)) : 0);
    const [words, track] = element.children[i].children;
    element.children[i].classList.toggle("high", part(claimed) > 0.9);
    const isMeasured = RESOURCES.some(([known]) => known === key);
    const use = isMeasured ? `, ${format(used)} ${key === "vcpus" ? "load" : "used"}` : "";
    setText(words.lastChild, `${format(claimed)} of ${format(capacity)} claimed (${percent(part(claimed))})${use}`);
    element.children[i].dataset.capacity = String(capacity);
    element.children[i].dataset.claimed = String(claimed);
    track.setAttribute("aria-label", `${title}: ${percent(part(claimed))} claimed`);
    track.setAttribute("aria-valuenow", String(Math.round(part(claimed) * 100)));
    track.children[0].style.width = `${part(claimed) * 100}%`;
    track.children[1].style.width = `${isMeasured ? part(used) * 100 : 0}%`;
  });
}

function meter(key, title) {
  return h("div", { class: "meter", "data-resource": key },
    h("div", { class: "words" }, h("b", { text: title }), h("span", { class: "figure" })),
    h("div", { class: "track", role: "meter", "aria-valuemin": "0", "aria-valuemax": "100" },
      h("div", { class: "fill claimed" }), h("div", { class: "fill used" })));
}
