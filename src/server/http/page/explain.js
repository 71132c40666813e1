// Why a START does not fit, or where it would go. Nothing is started.

import { Problem, get, json, request } from "./api.js";
import { badge, fill, h, panel } from "./dom.js";
import { count, instanceName, mib, nodeName, shortId } from "./format.js";
import { store } from "./store.js";
import { linkTo } from "./table.js";

/** Longest START that is read from a file: what the scheduler takes. */
const MAX_FILE = 256 * 1024;

const EXAMPLE = `start:
  vm_type: process
  requirements:
    mem_mb: 4096
    vcpus: 2
  scheduling:
    require: []
`;

export function explain(id) {
  const text = h("textarea", { id: "start-text", spellcheck: "false", autocapitalize: "off" });
  text.value = EXAMPLE;
  const number = h("input", { type: "number", id: "count", min: "1", max: "10000", value: "1" });
  const file = h("input", { type: "file", id: "file", accept: ".yaml,.yml,.json", on: { change: pickFile } });
  const pick = h("select", { id: "pick", on: { change: () => pickRow(pick.value) } }, h("option", { value: "", text: "a queued instance…" }));
  const result = h("div", { class: "stack", id: "decision", role: "status" }, h("p", { class: "empty", text: "The decision is shown here." }));
  const ask = h("button", { type: "button", class: "main", id: "ask", text: "Where would it go?", on: { click: decide } });
  let offered = "";
  let asked = 0;

  async function pickFile() {
    const [chosen] = file.files;
    if (!chosen) return;
    if (chosen.size > MAX_FILE) return fill(result, note("bad", `The file has more than ${MAX_FILE / 1024} KiB.`));
    const mine = ++asked;
    let read;
    try {
      read = await chosen.text();
    } catch {
      if (mine === asked) fill(result, note("bad", "The file cannot be read."));
      return;
    }
    if (mine !== asked) return;
    text.value = read;
    await decide();
  }

  function pickRow(chosen) {
    const row = store.queue.find((it) => it.instance_uuid === chosen) ?? store.instances.get(chosen);
    if (!row) return;
    text.value = startOf(row);
    explainRow(row);
  }

  /** Why a queued instance waits, by its own START; what the list has of it is not all that it asks for. */
  async function explainRow(row) {
    const mine = ++asked;
    try {
      const { instance } = await get(`/v1/instances/${encodeURIComponent(row.instance_uuid)}`);
      if (mine === asked) fill(result, waitParts(instance));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine === asked) fill(result, note("bad", problem.words));
    }
  }

  /** Asks, and shows the answer unless something else was asked or chosen meanwhile. */
  async function decide() {
    const mine = ++asked;
    ask.disabled = true;
    const type = text.value.trimStart().startsWith("{") ? "application/json" : "application/yaml";
    try {
      const response = await request("POST", `/v1/explain?count=${Number(number.value) || 1}`, { body: text.value, type });
      const { decision, warnings } = await json(response);
      if (mine === asked) fill(result, [warningParts(warnings), decisionParts(decision)]);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine === asked) fill(result, [warningParts(problem.document.warnings), note("bad", problem.words)]);
    } finally {
      ask.disabled = false;
    }
  }

  const field = (label, control) => h("div", { class: "field" }, h("label", { for: control.id, text: label }), control);
  let wanted = id;
  return {
    element: [
      h("div", { class: "head" }, h("h1", { text: "Why does it not fit?" }), h("span", { class: "quiet", text: "A dry run: nothing is claimed or started." })),
      h("div", { class: "columns" },
        panel("START", h("div", { class: "body stack" },
          h("div", { class: "columns" }, field("Pick a file", file), field("Or why this waits", pick)),
          field("YAML or JSON, as ciaoctl start takes it", text),
          h("div", { class: "head" }, h("label", { for: "count", text: "How many" }), number, h("div", { class: "tools" }, ask)))),
        panel("Decision", h("div", { class: "body" }, result))),
    ],
    update() {
      const rows = store.queue.slice(0, 200);
      const now = rows.map((row) => row.instance_uuid).join();
      if (now !== offered) {
        offered = now;
        const value = pick.value;
        const options = rows.map((row) => h("option", { value: row.instance_uuid, text: `${row.position}: ${shortId(instanceName(row))}, ${mib(row.mem_mb)}, ${count(row.vcpus)} vCPUs` }));
        fill(pick, h("option", { value: "", text: "a queued instance…" }), options);
        pick.value = rows.some((row) => row.instance_uuid === value) ? value : "";
      }
      if (wanted && store.isRead) {
        pick.value = wanted;
        pickRow(wanted);
        wanted = null;
      }
    },
  };
}

/** A START to go on from: the amounts of an instance. Labels, group and type that it must have are not listed. */
function startOf(row) {
  const requirements = { mem_mb: row.mem_mb, vcpus: row.vcpus, ...(row.disk_mb > 0 ? { disk_mb: row.disk_mb } : {}) };
  const scheduling = { ...(row.resources ? { resources: row.resources } : {}), ...(row.priority === undefined ? {} : { priority: row.priority }) };
  return `${JSON.stringify({ start: { vm_type: "process", requirements, ...(Object.keys(scheduling).length ? { scheduling } : {}) } }, null, 2)}\n`;
}

function note(kind, text) {
  return h("p", { class: `note ${kind}`, text });
}

/** What in a START does not do what it seems to. */
function warningParts(warnings = []) {
  return warnings.map((text) => h("p", { class: "note warn", "data-warning": "" }, h("b", { text: "Warning: " }), text));
}

function waitParts(row) {
  if (row.state !== "waiting") {
    return [h("p", { class: "note good", id: "verdict" }, h("b", { text: "It waits no more." }), ` It is ${row.life || row.state}.`)];
  }
  const parts = [h("p", { class: "note warn", id: "verdict" }, h("b", { text: "It waits." }), row.waits_for ? ` ${row.waits_for}` : "")];
  if (row.never) parts.push(note("warn", "It would not fit even if the nodes were empty: waiting does not help."));
  const nearest = nearestMiss(row.reasons ?? []);
  if (nearest) parts.push(nearest);
  if (row.reasons?.length) parts.push(reasonTable(row.reasons));
  return parts;
}

function decisionParts(decision) {
  const { fits, count: asked } = decision;
  const verdict = fits === asked
    ? asked === 1 ? "It fits." : `All ${count(asked)} fit.`
    : fits === 0 ? (asked === 1 ? "It fits nowhere now." : `None of ${count(asked)} fits now.`) : `${count(fits)} of ${count(asked)} fit.`;
  const parts = [h("p", { class: `note ${fits === asked ? "good" : fits ? "warn" : "bad"}`, id: "verdict" }, h("b", { text: verdict }), decision.detail ? ` ${decision.detail}` : "")];
  if (decision.never) parts.push(note("warn", "It would not fit even if the nodes were empty: waiting does not help."));
  const nearest = nearestMiss(decision.reasons ?? []);
  if (nearest) parts.push(nearest);
  if (decision.reasons?.length) parts.push(reasonTable(decision.reasons));
  if (decision.placements?.length) parts.push(placementTable(decision.placements));
  if (decision.alternates?.length) parts.push(h("p", { text: "Or to, best first:" }), placementTable(decision.alternates));
  return parts;
}

/** The reason that came nearest to being none: the least that is missing. */
function nearestMiss(reasons) {
  const [near] = reasons.filter((it) => it.node_uuid && it.asked > 0 && it.best >= 0)
    .sort((a, b) => (a.asked - a.best) / a.asked - (b.asked - b.best) / b.asked);
  if (!near) return null;
  return h("p", { class: "note", id: "nearest" }, "Nearest miss: ", linkTo("nodes", near.node_uuid, nodeName(near)),
    ` has ${amount(near, near.best)} of the ${amount(near, near.asked)} of ${what(near)} asked for.`);
}

function amount({ reason }, value) {
  if (value === undefined) return "–";
  return reason === "memory" || reason === "disk" ? mib(value) : count(value);
}

function what({ reason, what: more }) {
  return reason === "resource" ? more : reason.replace("_", " ");
}

function tableOf(label, heads, rows) {
  return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "unseen", text: label }),
    h("thead", {}, h("tr", {}, heads.map(([text, right]) => h("th", { scope: "col", class: right ? "right" : "", text })))), h("tbody", {}, rows)));
}

function reasonTable(reasons) {
  const heads = [["Reason"], ["Nodes", true], ["Asked", true], ["Most free", true], ["Largest", true], ["Nearest"]];
  const rows = reasons.map((it) => h("tr", { "data-reason": it.reason },
    h("td", { class: "long" }, `${it.reason.replace("_", " ")}${it.what ? `: ${it.what}` : ""} `, it.never ? badge("never", "bad") : null),
    h("td", { class: "right", text: count(it.nodes) }), h("td", { class: "right", text: amount(it, it.asked) }),
    h("td", { class: "right", text: amount(it, it.best) }), h("td", { class: "right", text: amount(it, it.capacity) }),
    h("td", {}, it.node_uuid ? linkTo("nodes", it.node_uuid, nodeName(it)) : "–")));
  return tableOf("Reasons", heads, rows);
}

function placementTable(placements) {
  const rows = placements.map((it) => h("tr", {}, h("td", {}, linkTo("nodes", it.node_uuid, nodeName(it))), h("td", { class: "right", text: count(it.count) })));
  return tableOf("Where it would go", [["Would go to"], ["How many", true]], rows);
}
