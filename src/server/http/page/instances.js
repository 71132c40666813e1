// All instances: search, state, node.

import { Problem, readAll } from "./api.js";
import { badge, h, setText } from "./dom.js";
import { clock, count, instanceName, instanceState, mib, shortId, span } from "./format.js";
import { Selection } from "./select.js";
import { store } from "./store.js";
import { Table, linkTo } from "./table.js";

/** Ended ones that are listed: more than the scheduler remembers. */
const MAX_ENDED = 10_000;

const COLUMNS = [
  { title: "Instance", name: true, value: instanceName, show: (row) => linkTo("instances", row.instance_uuid, shortId(instanceName(row))) },
  { title: "State", value: (row) => instanceState(row)[0], show: (row) => badge(...instanceState(row)) },
  { title: "Node", name: true, value: (row) => row.hostname, show: (row) => (row.node_uuid ? linkTo("nodes", row.node_uuid, row.hostname || shortId(row.node_uuid)) : "–") },
  { title: "Program", name: true, fold: true, value: (row) => row.program ?? "", show: (row) => row.program ?? "" },
  { title: "Memory", right: true, value: (row) => row.mem_mb, show: (row) => mib(row.mem_mb) },
  { title: "Used", right: true, fold: true, value: (row) => row.mem_used_mb, show: (row) => mib(row.mem_used_mb) },
  { title: "vCPUs", right: true, value: (row) => row.vcpus, show: (row) => count(row.vcpus) },
  { title: "Priority", right: true, fold: true, value: (row) => row.priority ?? -1, show: (row) => row.priority ?? "–" },
  { title: "Run", right: true, fold: true, value: (row) => row.run ?? 0, show: (row) => row.run ?? "–" },
  { title: "Age", right: true, value: (row) => row.age_s, show: (row) => (row.ended_at_ms ? clock(row.ended_at_ms) : span(row.age_s)) },
];

const STATES = ["", "running", "waiting", "placed", "suspended", "migrating", "in doubt", "lost"];

/** An instance may have ended several times. */
function keyOf(row) {
  return `${row.instance_uuid}/${row.ended_at_ms ?? ""}`;
}

export function instances() {
  let ended = null;
  let failure = "";
  let asked = 0;
  const table = new Table({
    label: "Instances", columns: COLUMNS, key: keyOf, empty: "No instance matches.", sort: { at: 0, up: true },
    choose: (row) => (location.hash = `#/instances/${encodeURIComponent(row.instance_uuid)}`),
  });
  const changed = () => {
    table.first();
    view.update();
  };
  const search = h("input", { type: "search", placeholder: "name, UUID, node, group, program, or mem_mb >= 512", "aria-label": "Search instances", on: { input: changed } });
  const selection = new Selection("/v1/instances", "instance_uuid", changed);
  const state = h("select", { "aria-label": "State", on: { change: chooseState } },
    STATES.map((word) => h("option", { value: word, text: word || "every state" })), h("option", { value: "ended", text: "ended" }));
  const shown = h("span", { class: "quiet number", role: "status" });
  const more = h("p", { class: "note warn", hidden: true });

  async function chooseState() {
    const mine = ++asked;
    ended = null;
    failure = "";
    changed();
    if (state.value === "ended") await readEnded(mine);
  }

  /** Reads those that have ended, the latest first. An answer to an older choice is not shown. */
  async function readEnded(mine) {
    try {
      const { items } = await readAll("/v1/instances", { ended: "true" }, MAX_ENDED);
      if (mine !== asked) return;
      ended = items.sort((one, other) => (other.ended_at_ms ?? 0) - (one.ended_at_ms ?? 0));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine !== asked) return;
      failure = `Those that have ended could not be read: ${problem.words}`;
    }
    changed();
  }

  const view = {
    element: [
      h("div", { class: "head" }, h("h1", { text: "Instances" }), shown, h("div", { class: "tools" }, search, state)),
      more, h("section", { class: "panel", "aria-label": "All instances" }, table.element),
    ],
    update(id) {
      if (id !== undefined) view.id = id;
      const all = ended ?? [...store.instances.values()];
      selection.set(search.value);
      const wanted = ended ? "" : state.value;
      const rows = all.filter((row) => (!wanted || instanceState(row)[0] === wanted || row.state === wanted) && selection.has(row, () => searched(row)));
      setText(shown, rows.length === all.length ? count(all.length) : `${count(rows.length)} of ${count(all.length)}`);
      const cut = `There are more than the ${count(store.instances.size)} instances that are listed here; ciaoctl instances lists all.`;
      const wrong = failure || selection.failure;
      more.hidden = !wrong && (!store.hasMore || state.value === "ended");
      setText(more, wrong || cut);
      const chosen = view.id && all.find((row) => row.instance_uuid === view.id);
      table.set(rows, chosen ? keyOf(chosen) : null, `${store.version}/${asked}/${ended !== null}/${selection.state}`);
    },
  };
  return view;
}

/** What words are looked for in. */
function searched(row) {
  return `${instanceName(row)} ${row.instance_uuid} ${row.hostname} ${row.group ?? ""} ${row.program ?? ""}`;
}
