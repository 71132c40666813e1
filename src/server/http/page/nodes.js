// All nodes: the map, and the same as a table.

import { badge, h, panel, setText } from "./dom.js";
import { count, megabytes, mib, nodeName, nodeState } from "./format.js";
import { NodeMap, legend } from "./map.js";
import { Selection } from "./select.js";
import { store } from "./store.js";
import { Table, linkTo } from "./table.js";

const COLUMNS = [
  { title: "Node", name: true, value: nodeName, show: (row) => linkTo("nodes", row.node_uuid, nodeName(row)) },
  { title: "Status", value: (row) => nodeState(row)[0], show: (row) => badge(...nodeState(row)) },
  { title: "Instances", right: true, value: (row) => row.instances, show: (row) => count(row.instances) },
  { title: "Memory free", right: true, value: (row) => row.mem_free_mb, show: (row) => `${mib(row.mem_free_mb)} of ${mib(row.mem_total_mb)}` },
  { title: "vCPUs free", right: true, value: (row) => row.vcpus_free, show: (row) => count(row.vcpus_free) },
  { title: "CPUs", right: true, fold: true, value: (row) => row.cpus_online, show: (row) => count(row.cpus_online) },
  { title: "Disk free", right: true, fold: true, value: (row) => row.disk_free_mb, show: (row) => megabytes(row.disk_free_mb) },
  { title: "Load", right: true, fold: true, value: (row) => row.load, show: (row) => count(row.load) },
  { title: "Labels", fold: true, show: (row) => labels(row) },
];

/** A node's labels as `key=value`. */
function labels(row) {
  return Object.entries(row.labels ?? {}).map(([key, values]) => `${key}=${values.join(",")}`).join(" ");
}

export function nodes() {
  const choose = (row) => (location.hash = `#/nodes/${encodeURIComponent(row.node_uuid)}`);
  const map = new NodeMap({ choose, height: 420 });
  const table = new Table({ label: "Nodes", columns: COLUMNS, key: (row) => row.node_uuid, choose, empty: "No node matches.", sort: { at: 0, up: true } });
  const changed = () => {
    table.first();
    view.update();
  };
  const search = h("input", { type: "search", placeholder: "name, status, label = value", "aria-label": "Filter nodes", on: { input: changed } });
  const selection = new Selection("/v1/nodes", "node_uuid", changed);
  const failure = h("p", { class: "note warn", role: "status", hidden: true });
  const shown = h("span", { class: "quiet number", role: "status" });
  const view = {
    element: [
      h("div", { class: "head" }, h("h1", { text: "Nodes" }), shown, h("div", { class: "tools" }, search, map.select)),
      failure,
      panel("Map", h("div", { class: "body" }, map.element, legend())),
      h("section", { class: "panel", "aria-label": "All nodes" }, table.element),
    ],
    update(id) {
      if (id !== undefined) view.id = id;
      selection.set(search.value);
      failure.hidden = !selection.failure;
      setText(failure, selection.failure);
      const all = [...store.nodes.values()];
      const rows = all.filter((row) => selection.has(row, () => searched(row)));
      setText(shown, rows.length === all.length ? `${count(all.length)}` : `${count(rows.length)} of ${count(all.length)}`);
      const version = `${store.version}/${selection.state}`;
      map.set(rows, view.id, version);
      table.set(rows, view.id, version);
    },
  };
  return view;
}

/** What words are looked for in. */
function searched(row) {
  return `${row.hostname} ${row.node_uuid} ${nodeState(row)[0]} ${row.status} ${labels(row)}`;
}
