// One node: labels, resources, instances, drain.

import { Problem, get } from "./api.js";
import { badge, fill, h, panel, setText } from "./dom.js";
import { count, instanceName, instanceState, megabytes, mib, nodeName, nodeState, shortId, span } from "./format.js";
import { isDraining, nodeActions } from "./commands.js";
import { mayCommand, store } from "./store.js";
import { linkTo } from "./table.js";

/** Instances that are listed; the list of all instances has the others. */
const MAX_LISTED = 100;

export function node(id, close) {
  const title = h("h1", {});
  const state = h("span", {});
  const actions = h("div", { class: "actions" });
  const body = h("div", { class: "stack" });
  const element = h("div", { class: "stack" },
    h("div", { class: "head" }, title, state, h("button", { type: "button", class: "close", "aria-label": "Close", text: "×", on: { click: close } })),
    actions, body);
  let more = {};
  let drawn = "";
  let reading = false;
  let stale = true;
  const show = keeping(actions);

  function draw() {
    const row = store.nodes.get(id);
    if (!row && !more.node_uuid) return;
    const instances = [...store.instances.values()].filter((it) => it.node_uuid === id);
    const drain = store.drains.get(id);
    const shown = { ...more, ...(row ?? {}) };
    const now = JSON.stringify([shown, drain, instances.map((it) => [it.instance_uuid, it.state, it.life])]);
    show(row ? [row.cordoned, isDraining(row), mayCommand()] : [], () => (row ? nodeActions(row) : []));
    if (now === drawn) return;
    drawn = now;
    setText(title, nodeName(shown));
    fill(state, badge(...nodeState(shown)));
    fill(body, parts(shown, instances, drain));
  }

  /** Reads what the list does not have. What it has is of the list, which is newer. */
  async function read() {
    if (reading) return;
    reading = true;
    stale = false;
    try {
      const { node_uuid, hostname, status, roles, address, connected_s, lost_s, reported_s, lease_ms, failures, capabilities, certificate_ends_at_s } = (await get(`/v1/nodes/${encodeURIComponent(id)}`)).node;
      more = { node_uuid, hostname, status, roles, address, connected_s, lost_s, reported_s, lease_ms, failures, capabilities, certificate_ends_at_s };
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 404) {
        setText(title, shortId(id));
        fill(actions);
        fill(body, h("p", { class: "note warn", text: "No such node is known." }));
      }
    } finally {
      reading = false;
    }
    draw();
  }

  let version = -1;
  return {
    element,
    update() {
      if (store.version !== version) stale = true;
      version = store.version;
      draw();
      if (stale) read();
    },
  };
}

/** Shows buttons, and other ones only once `key` is another: a button that is being used stays. */
export function keeping(element) {
  let shown;
  return (key, buttons) => {
    const now = JSON.stringify(key);
    if (now === shown) return;
    shown = now;
    fill(element, buttons());
  };
}

function parts(row, instances, drain) {
  return [
    row.fault ? h("p", { class: "note warn", text: `It takes no work: ${row.fault}` }) : null,
    drainPart(row, drain),
    panel("Resources", h("div", { class: "body" }, resources(row))),
    panel("Labels", h("div", { class: "body" }, labels(row.labels ?? {}))),
    panel(`Instances (${count(row.instances)})`, instanceList(instances)),
    panel("Connection", h("div", { class: "body" }, pairs([
      ["UUID", h("code", { text: row.node_uuid })],
      ["Roles", row.roles], ["Address", row.address || "–"], ["Connected", span(row.connected_s)],
      ["Lost for", row.lost_s === undefined ? null : span(row.lost_s)],
      ["Last report", row.reported_s === undefined ? null : `${span(row.reported_s)} ago`],
      ["Lease", row.lease_ms === undefined ? null : span(row.lease_ms / 1000)],
      ["Certificate", row.certificate_ends_at_s === undefined ? null : endOf(row.certificate_ends_at_s - Date.now() / 1000)],
      ["Failures", row.failures || null], ["Announces", row.capabilities?.join(", ") || null],
    ]))),
  ];
}

/** When a certificate ends that lasts so many seconds more, or that it has ended. */
function endOf(left) {
  return left > 0 ? `ends in ${span(left)}` : `ended ${span(-left)} ago`;
}

/** Pairs of a name and a text or an element; those without one are left out. */
export function pairs(all) {
  return h("dl", { class: "rows" }, all.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) =>
    [h("dt", { text: name }), h("dd", {}, value)]));
}

function drainPart(row, drain) {
  if (!row.drain && (!drain || !row.cordoned)) return null;
  if (!drain) return h("p", { class: "note", id: "drain", text: `Drain: ${row.drain}` });
  const over = !isDraining(row);
  const ended = drain.ended ?? 0;
  const words = `Drain ${drain.state}: ${drain.moved - ended} of ${drain.total} moved, ${ended ? `${ended} ended, ` : ""}${drain.moving} on their way, ${drain.left} left.`;
  const stuck = (drain.misfits ?? []).map((it) => h("li", {}, linkTo("instances", it.instance_uuid, it.name || shortId(it.instance_uuid)), `: ${it.detail}`));
  // What a check found is listed below: its detail would say it twice.
  const detail = drain.state === "checking" && stuck.length ? "" : drain.detail;
  return h("div", { class: `note ${drain.state === "done" ? "good" : drain.state === "incomplete" ? "bad" : ""}`, id: "drain" },
    h("p", { text: words }),
    over ? null : h("progress", { max: Math.max(1, drain.total), value: drain.moved, "aria-label": "Instances moved" }),
    detail ? h("p", { text: detail }) : null,
    stuck.length ? h("div", {}, h("p", { text: `${drain.misfit_count ?? stuck.length} fit nowhere else:` }), h("ul", {}, stuck)) : null);
}

function resources(row) {
  const custom = Object.keys(row.resources_total ?? {}).map((name) => [name, `${count(row.resources_free?.[name])} free of ${count(row.resources_total[name])}`]);
  return pairs([
    ["Memory", `${mib(row.mem_free_mb)} free of ${mib(row.mem_total_mb)}`],
    ["Virtual CPUs", `${count(row.vcpus_free)} free, ${count(row.cpus_online)} CPUs online`],
    ["Disk", `${megabytes(row.disk_free_mb)} free of ${megabytes(row.disk_total_mb)}`],
    ["Load", count(row.load)], ...custom,
  ]);
}

function labels(all) {
  const entries = Object.entries(all);
  if (!entries.length) return h("p", { class: "quiet", text: "none" });
  return h("div", { class: "labels" }, entries.map(([key, values]) => h("span", { text: `${key}=${values.join(",")}` })));
}

function instanceList(instances) {
  if (!instances.length) return h("p", { class: "empty", text: "none" });
  const rows = instances.slice(0, MAX_LISTED).map((row) => h("tr", {},
    h("td", {}, linkTo("instances", row.instance_uuid, shortId(instanceName(row)))),
    h("td", {}, badge(...instanceState(row))), h("td", { class: "right", text: mib(row.mem_mb) }), h("td", { class: "right", text: count(row.vcpus) })));
  const head = ["Instance", "State", "Memory", "vCPUs"].map((text, at) => h("th", { scope: "col", class: at > 1 ? "right" : "", text }));
  const more = instances.length > MAX_LISTED ? h("p", { class: "pages", text: `and ${count(instances.length - MAX_LISTED)} more` }) : null;
  return h("div", {}, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))), more);
}
