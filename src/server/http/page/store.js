// What this tab knows: lists that were read once, and rows read again when an event says that they have changed.

import { Problem, get, isBehind, readAll } from "./api.js";
import { connect } from "./link.js";
import { instanceName, shortId } from "./format.js";

/** Rows of lists that a tab keeps. */
const MAX_NODES = 100_000;
const MAX_INSTANCES = 20_000;
const MAX_QUEUE = 2_000;

/** Rows read one by one; when more have changed the whole list is read. */
const MAX_SINGLE = 24;

/** Pause between two rounds of reading. */
const ROUND_MS = 400;

/** What no event tells, such as measured use, is read again so often, and never more than a small part of the time. */
const REFRESH_MS = 8_000;
const REFRESH_SHARE = 25;

/** Samples of the status over time. */
const MAX_SAMPLES = 900;

/** Lines of activity. */
const MAX_ACTIVITY = 200;

const NODE_FIELDS = [
  "node_uuid", "hostname", "status", "mem_total_mb", "mem_free_mb", "disk_total_mb", "disk_free_mb", "cpus_online",
  "vcpus_free", "load", "instances", "labels", "resources_total", "resources_free", "fault", "cordoned", "drain", "roles",
].join(",");

export const store = {
  link: { state: "connecting", detail: "" },
  status: null,
  samples: [],
  nodes: new Map(),
  instances: new Map(),
  /** Whether the scheduler has more instances than are kept here. */
  hasMore: false,
  queue: [],
  activity: [],
  /** Progress of drains by node. */
  drains: new Map(),
  isRead: false,
  /** Counts what was read, so that a view knows that something is new. */
  version: 0,
};

const NOTHING = { mem: 0, vcpus: 0, disk: 0 };
const UNKNOWN = { mem: NaN, vcpus: NaN, disk: NaN };

const listeners = new Set();
const changed = { nodes: new Set(), instances: new Set(), queue: false, all: true };
let readAt = { nodes: null, instances: null };
let round = null;
/** How long the latest round took that read all lists. */
let roundMs = 0;
let sums = null;
let drawing = false;

/** Calls `listener` at the next frame after something has changed. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function mayCommand() {
  return store.status?.caller?.may_command === true;
}

/** Reads a node or an instance again now. */
export function touch({ node, instance }) {
  if (node) changed.nodes.add(node);
  if (instance) changed.instances.add(instance);
  changed.queue = true;
  soon(0);
}

export function start() {
  connect(take);
  refresh();
}

function draw({ rows = false } = {}) {
  if (rows) {
    store.version += 1;
    sums = null;
  }
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const listener of listeners) listener();
  });
}

/** What instances have claimed of a node; NaN where not all instances are kept here. */
export function claimsOf(id) {
  if (store.hasMore) return UNKNOWN;
  sums ??= claims();
  return sums.get(id) ?? NOTHING;
}

/** What instances have claimed of each node. One that is suspended has given its processors free. */
function claims() {
  const all = new Map();
  for (const row of store.instances.values()) {
    if (!row.node_uuid) continue;
    const sum = all.get(row.node_uuid) ?? { mem: 0, vcpus: 0, disk: 0 };
    sum.mem += Math.max(0, row.mem_mb);
    sum.disk += Math.max(0, row.disk_mb);
    if (row.life !== "suspended") sum.vcpus += Math.max(0, row.vcpus);
    all.set(row.node_uuid, sum);
  }
  return all;
}

function take(message) {
  switch (message.kind) {
    case "hello":
      store.samples = [...message.samples];
      for (const event of message.recent) note(event);
      forget();
      setLink(message.link);
      store.status = message.status ?? store.status;
      break;
    case "link":
      setLink(message.link);
      break;
    case "status":
      store.status = message.status;
      store.samples = [...store.samples.filter((sample) => sample.number !== message.sample.number), message.sample].slice(-MAX_SAMPLES);
      break;
    case "events":
      for (const event of message.events) {
        note(event);
        mark(event);
      }
      soon();
      break;
    case "resync":
      forget();
      soon(0);
      break;
  }
  draw();
}

/** Events may have been missed: what only they tell is unknown, and all lists are read again. */
function forget() {
  store.drains.clear();
  changed.all = true;
}

function setLink(link) {
  const isBack = link.state === "live" && store.link.state !== "live";
  store.link = link;
  if (isBack) {
    forget();
    soon(0);
  }
}

/** Which rows an event is about. */
function mark({ name, id, data }) {
  const instance = data.instance_uuid;
  const node = data.node_uuid || store.instances.get(instance)?.node_uuid;
  if (name === "drain_progress") store.drains.set(data.node_uuid, data);
  if (node && isBehind(id, readAt.nodes)) changed.nodes.add(node);
  if (data.target_node_uuid) changed.nodes.add(data.target_node_uuid);
  if (instance && isBehind(id, readAt.instances)) changed.instances.add(instance);
  if (instance) changed.queue = true;
}

/** A line of activity. */
function note({ name, at, data }) {
  const row = store.instances.get(data.instance_uuid);
  const instance = data.instance_uuid ? (row ? instanceName(row) : data.instance_uuid) : "";
  const node = data.hostname || store.nodes.get(data.node_uuid)?.hostname || shortId(data.node_uuid ?? "");
  const detail = data.detail ? `: ${data.detail}` : "";
  const words = {
    node_connected: () => `node ${node} connected`,
    node_disconnected: () => `node ${node} disconnected`,
    drain_progress: () => `drain of ${node}: ${data.state}, ${data.moved} of ${data.total} moved`,
    instance_placed: () => `${shortId(instance)} placed on ${node}`,
    instance_queued: () => `${shortId(instance)} waits at position ${data.position}${detail}`,
    instance_state: () => `${shortId(instance)} is ${data.state}${["gone", "waiting"].includes(data.state) ? "" : detail}`,
    instance_stopped: () => `${shortId(instance)} stopped`,
    instance_deleted: () => `${shortId(instance)} ended${data.exit_code === undefined ? "" : ` with ${data.exit_code}`}`,
    start_failure: () => `${shortId(instance)} not started: ${data.reason}${detail}`,
    delete_failure: () => `${shortId(instance)} not deleted: ${data.reason}`,
    command_failure: () => `${data.command} of ${shortId(instance) || node} failed: ${data.reason}${detail}`,
  }[name];
  const kind = name.endsWith("_failure") ? "bad" : name === "node_disconnected" || name === "instance_queued" ? "warn" : "";
  store.activity.unshift({ at, kind, text: words ? words() : name, instance: data.instance_uuid, node: data.node_uuid });
  store.activity.length = Math.min(store.activity.length, MAX_ACTIVITY);
}

function soon(ms = ROUND_MS) {
  if (round) return;
  round = setTimeout(async () => {
    try {
      await readChanged();
    } catch (problem) {
      // The feed says that the scheduler is away, and then that it is back.
      if (!(problem instanceof Problem)) throw problem;
      changed.all = true;
    } finally {
      round = null;
      const isLive = store.link.state === "live";
      if (isLive && (changed.all || changed.queue || changed.nodes.size || changed.instances.size)) soon();
    }
  }, ms);
}

/** Reads what has changed. What changes meanwhile is read in the next round. */
async function readChanged() {
  const begun = performance.now();
  const { all, queue } = changed;
  const nodes = [...changed.nodes];
  const instances = [...changed.instances];
  Object.assign(changed, { nodes: new Set(), instances: new Set(), queue: false, all: false });
  if (all || nodes.length > MAX_SINGLE) await readNodes();
  else await Promise.all(nodes.map((id) => readOne(store.nodes, MAX_NODES, "node", id, `/v1/nodes/${encodeURIComponent(id)}?fields=${NODE_FIELDS}`)));
  if (all || instances.length > MAX_SINGLE) await readInstances();
  else await Promise.all(instances.map((id) => readOne(store.instances, MAX_INSTANCES, "instance", id, `/v1/instances/${encodeURIComponent(id)}`)));
  if (all || queue) store.queue = (await readAll("/v1/queue", {}, MAX_QUEUE)).items;
  if (all) roundMs = performance.now() - begun;
  store.isRead = true;
  draw({ rows: true });
}

async function readNodes() {
  const read = await readAll("/v1/nodes", { fields: NODE_FIELDS }, MAX_NODES);
  store.nodes = new Map(read.items.map((row) => [row.node_uuid, row]));
  readAt.nodes = read.sequence;
}

async function readInstances() {
  const read = await readAll("/v1/instances", {}, MAX_INSTANCES);
  store.instances = new Map(read.items.map((row) => [row.instance_uuid, row]));
  store.hasMore = read.more;
  readAt.instances = read.sequence;
}

async function readOne(rows, most, key, id, path) {
  try {
    const row = (await get(path))[key];
    if (row.state === "ended") rows.delete(id);
    else if (rows.has(id) || rows.size < most) rows.set(id, row);
    else if (rows === store.instances) store.hasMore = true;
  } catch (problem) {
    if (problem.status !== 404) throw problem;
    rows.delete(id);
  }
}

/** Has what no event tells read in the next round, while the tab is seen. */
function refresh() {
  if (store.isRead && store.link.state === "live" && document.visibilityState === "visible") {
    changed.all = true;
    soon(0);
  }
  setTimeout(refresh, Math.max(REFRESH_MS, roundMs * REFRESH_SHARE));
}
