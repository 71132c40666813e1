// What has ended, the latest first: how, when, what it took. Read from the record on disk, page by page.

import { Problem, get } from "./api.js";
import { badge, h, setText } from "./dom.js";
import { clock, count, instanceName, mib, shortId, span } from "./format.js";
import { Table, linkTo } from "./table.js";

/** Rows that are read at once. */
const ROWS = 500;

/** Most pages that are read for one look: few rows of each may meet what is asked. */
const MAX_PAGES = 20;

const OUTCOMES = [
  ["", "every outcome"], ["failed", "all that went wrong"], ["succeeded", "succeeded"], ["time_limit", "time limit"], ["oom", "out of memory"],
  ["not_started", "not started"], ["node_lost", "node lost"], ["cut_off", "cut off"], ["preempted", "preempted"], ["stopped", "stopped"],
  ["deleted", "deleted"], ["unknown", "unknown"],
];

const KINDS = { succeeded: "good", failed: "bad", time_limit: "bad", oom: "bad", not_started: "bad", node_lost: "bad", cut_off: "bad", preempted: "hold" };

/** Exit status or signal, or why it never ran. */
function how(row) {
  if (row.failed) return row.failed.replaceAll("_", " ");
  if (row.exit_code === undefined) return "–";
  return row.exit_code < 0 ? `signal ${-row.exit_code}` : `status ${row.exit_code}`;
}

function labels(row) {
  return Object.entries(row.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ");
}

function day(ms) {
  return `${new Date(ms).toLocaleDateString("en-CA")} ${clock(ms)}`;
}

function time(ms) {
  return ms === undefined ? "–" : ms < 1000 ? `${ms} ms` : span(ms / 1000);
}

const COLUMNS = [
  { title: "Instance", name: true, value: instanceName, show: (row) => linkTo("instances", row.instance_uuid, shortId(instanceName(row))) },
  { title: "Outcome", value: (row) => row.outcome, show: (row) => badge(row.outcome.replaceAll("_", " "), KINDS[row.outcome] ?? "") },
  { title: "How", value: how, show: how },
  { title: "Ended", right: true, value: (row) => row.ended_at_ms, show: (row) => day(row.ended_at_ms) },
  { title: "Ran", right: true, value: (row) => row.ran_ms ?? -1, show: (row) => time(row.ran_ms) },
  { title: "CPU", right: true, fold: true, value: (row) => row.cpu_ms ?? -1, show: (row) => time(row.cpu_ms) },
  { title: "Peak", right: true, fold: true, value: (row) => row.peak_kib ?? -1, show: (row) => mib(row.peak_kib === undefined ? undefined : Math.ceil(row.peak_kib / 1024)) },
  { title: "Node", name: true, value: (row) => row.hostname ?? "", show: (row) => (row.node_uuid ? linkTo("nodes", row.node_uuid, row.hostname || shortId(row.node_uuid)) : "–") },
  { title: "Program", name: true, fold: true, value: (row) => row.program ?? "", show: (row) => row.program ?? "" },
  { title: "By", long: true, fold: true, value: (row) => row.by ?? "", show: (row) => row.by ?? "" },
  { title: "Labels", long: true, fold: true, value: labels, show: labels },
  { title: "Why", long: true, fold: true, value: (row) => row.detail ?? "", show: (row) => row.detail ?? "" },
];

/** What has ended; of one array, where one is named. */
export function history(array) {
  let rows = [];
  let next = null;
  let inMemory = false;
  let failure = "";
  let asked = 0;
  let reading = 0; // the question that is read for; 0 for none
  const table = new Table({
    label: "History", columns: COLUMNS, key: (row) => String(row.number), empty: "Nothing that has ended matches.", sort: { at: 3, up: false },
    choose: (row) => (location.hash = `#/instances/${encodeURIComponent(row.instance_uuid)}`),
  });
  const outcome = h("select", { "aria-label": "Outcome", on: { change: again } }, OUTCOMES.map(([value, text]) => h("option", { value, text })));
  const name = h("input", { type: "search", placeholder: "name, or its beginning*", "aria-label": "Name", on: { change: again } });
  const shown = h("span", { class: "quiet number", role: "status" });
  const note = h("p", { class: "note warn", hidden: true });
  const more = h("button", { type: "button", text: "Earlier ones", hidden: true, on: { click: () => read(asked) } });

  function again() {
    rows = [];
    next = null;
    inMemory = false;
    table.first();
    read(++asked);
  }

  /** Reads on until there is something to show, once at a time. An answer to an older question is not shown. */
  async function read(mine) {
    if (reading === mine) return;
    reading = mine;
    more.disabled = true;
    failure = "";
    try {
      const before = rows.length;
      for (let page = 0; page < MAX_PAGES; page += 1) {
        const query = new URLSearchParams({ limit: String(ROWS) });
        if (outcome.value) query.set("state", outcome.value);
        if (name.value) query.set("name", name.value);
        if (array) query.set("array", array);
        if (next) query.set("after", next);
        const answer = await get(`/v1/history?${query}`);
        if (mine !== asked) return;
        rows = rows.concat(answer.items);
        next = answer.next;
        inMemory ||= answer.in_memory;
        if (!next || rows.length - before >= ROWS) break;
      }
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine !== asked) return;
      failure = `What has ended could not be read: ${problem.words}`;
    } finally {
      if (reading === mine) {
        reading = 0;
        more.disabled = false;
      }
    }
    view.update();
  }

  const view = {
    element: [
      h("div", { class: "head" }, h("h1", { text: array ? `History of array ${shortId(array)}` : "History" }), shown, h("div", { class: "tools" }, name, outcome, h("button", { type: "button", text: "Read again", on: { click: again } }))),
      note, h("section", { class: "panel", "aria-label": "What has ended" }, table.element), more,
    ],
    update() {
      setText(shown, `${count(rows.length)}${next ? ", and there are earlier ones" : ""}`);
      const memory = inMemory ? "The scheduler has no state directory that it can read: these ends are in its memory, and lost when it ends." : "";
      note.hidden = !(failure || memory);
      setText(note, failure || memory);
      more.hidden = !next;
      table.set(rows, null, `${asked}/${rows.length}/${failure}`);
    },
  };
  again();
  return view;
}
