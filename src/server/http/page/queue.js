// What waits for room, in order, and why.

import { badge, h, panel, setText } from "./dom.js";
import { count, instanceName, instanceState, mib, retry, shortId, span } from "./format.js";
import { store } from "./store.js";
import { Table, linkTo } from "./table.js";

/** With which of its tries this is, where it has ended before. */
function whyItWaits(row) {
  return [retry(row), row.waits_for].filter(Boolean).join(": ");
}

const COLUMNS = [
  { title: "Position", right: true, value: (row) => row.position ?? 0, show: (row) => count(row.position) },
  { title: "Instance", name: true, value: instanceName, show: (row) => linkTo("instances", row.instance_uuid, shortId(instanceName(row))) },
  { title: "State", fold: true, value: (row) => instanceState(row)[0], show: (row) => badge(...instanceState(row)) },
  { title: "Priority", right: true, value: (row) => row.priority ?? -1, show: (row) => row.priority ?? "–" },
  { title: "Why it waits", long: true, value: whyItWaits, show: whyItWaits },
  { title: "Memory", right: true, value: (row) => row.mem_mb, show: (row) => mib(row.mem_mb) },
  { title: "vCPUs", right: true, value: (row) => row.vcpus, show: (row) => count(row.vcpus) },
  { title: "Waits at most", right: true, fold: true, value: (row) => row.deadline_ms ?? Infinity, show: (row) => (row.deadline_ms === undefined ? "–" : span(row.deadline_ms / 1000)) },
  { title: "", show: (row) => h("a", { href: `#/explain/${encodeURIComponent(row.instance_uuid)}`, text: "explain" }) },
];

export function queue() {
  const table = new Table({
    label: "Queue", columns: COLUMNS, key: (row) => row.instance_uuid, empty: "Nothing waits for room.",
    choose: (row) => (location.hash = `#/instances/${encodeURIComponent(row.instance_uuid)}`),
  });
  const shown = h("span", { class: "quiet number", role: "status" });
  return {
    element: [h("div", { class: "head" }, h("h1", { text: "Queue" }), shown), panel("In the order in which they will be looked at", table.element)],
    update() {
      const all = store.status?.instances.queued ?? store.queue.length;
      setText(shown, all > store.queue.length ? `the first ${count(store.queue.length)} of ${count(all)}` : count(store.queue.length));
      table.set(store.queue, null, store.version);
    },
  };
}
