// Arrays: how far each is. Read again and again while they are shown, since no event says how far one is.

import { Problem, get } from "./api.js";
import { badge, h, setText } from "./dom.js";
import { clock, count, shortId } from "./format.js";
import { Table } from "./table.js";

/** Rows that are read at once; there are 4,096 arrays at most. */
const ROWS = 500;

/** Time between two looks, in milliseconds. */
const PAUSE = 3000;

/** What has ended without success. */
function unsuccessful(row) {
  return row.failed + row.not_started + row.unknown + row.deleted;
}

function ended(row) {
  return row.succeeded + unsuccessful(row);
}

/** How those are apart that did not succeed. */
function why(row) {
  const parts = [["failed", row.failed], ["not started", row.not_started], ["unknown", row.unknown], ["deleted", row.deleted]];
  return parts.filter(([, number]) => number > 0).map(([word, number]) => `${count(number)} ${word}`).join(", ") || "–";
}

function state(row) {
  if (row.state !== "ended") return badge(row.state, "hold");
  return unsuccessful(row) > 0 ? badge("ended", "bad") : badge("ended", "good");
}

const COLUMNS = [
  { title: "Array", name: true, value: (row) => row.name ?? row.array_uuid, show: (row) => h("a", { href: `#/history/${encodeURIComponent(row.array_uuid)}`, text: row.name ?? shortId(row.array_uuid) }) },
  { title: "State", value: (row) => row.state, show: state },
  { title: "Ended", right: true, value: (row) => ended(row) / row.elements, show: (row) => `${count(ended(row))} of ${count(row.elements)}` },
  { title: "Running", right: true, value: (row) => row.running, show: (row) => count(row.running) },
  { title: "Waiting", right: true, value: (row) => row.waiting + row.queued, show: (row) => count(row.waiting + row.queued) },
  { title: "Without success", value: unsuccessful, show: why },
  { title: "At most", right: true, fold: true, value: (row) => row.running_max ?? Infinity, show: (row) => (row.running_max === undefined ? "–" : count(row.running_max)) },
  { title: "Priority", right: true, fold: true, value: (row) => row.priority, show: (row) => count(row.priority) },
  { title: "Submitted", right: true, fold: true, value: (row) => row.submitted_at_ms, show: (row) => `${new Date(row.submitted_at_ms).toLocaleDateString("en-CA")} ${clock(row.submitted_at_ms)}` },
];

export function arrays() {
  let rows = [];
  let failure = "";
  let version = 0;
  let reading = false;
  const table = new Table({
    label: "Arrays", columns: COLUMNS, key: (row) => row.array_uuid, empty: "There is no array.", sort: { at: 8, up: false },
    choose: (row) => (location.hash = `#/history/${encodeURIComponent(row.array_uuid)}`),
  });
  const shown = h("span", { class: "quiet number", role: "status" });
  const note = h("p", { class: "note warn", hidden: true });

  async function read() {
    if (reading) return;
    reading = true;
    try {
      const all = [];
      let next = null;
      do {
        const query = new URLSearchParams({ limit: String(ROWS) });
        if (next) query.set("after", next);
        const answer = await get(`/v1/arrays?${query}`);
        all.push(...answer.items);
        next = answer.next;
      } while (next);
      rows = all;
      failure = "";
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      failure = `Arrays could not be read: ${problem.words}`;
    } finally {
      reading = false;
      version += 1;
    }
    show();
  }

  function show() {
    setText(shown, count(rows.length));
    note.hidden = !failure;
    setText(note, failure);
    table.set(rows, null, version);
  }

  const list = h("section", { class: "panel", "aria-label": "How far each array is" }, table.element);
  const timer = setInterval(() => {
    if (!list.isConnected) clearInterval(timer);
    else if (!document.hidden) read();
  }, PAUSE);
  read();
  return {
    element: [
      h("div", { class: "head" }, h("h1", { text: "Arrays" }), shown, h("div", { class: "tools" }, h("button", { type: "button", text: "Read again", on: { click: read } }))),
      note, list,
    ],
    update: show,
  };
}
