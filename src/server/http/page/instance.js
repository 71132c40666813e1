// One instance: what it has, what became of it, what it wrote.

import { Problem, get, readAll, request } from "./api.js";
import { badge, fill, h, panel, setText } from "./dom.js";
import { clock, count, instanceName, instanceState, mib, retry, shortId, span } from "./format.js";
import { instanceActions } from "./commands.js";
import { keeping, pairs } from "./node.js";
import { mayCommand, store } from "./store.js";
import { linkTo } from "./table.js";

/** Entries of a history that are shown: the latest. */
const MAX_HISTORY = 500;

/** Lines of output that are read at first, and characters that are kept while it is followed. */
const TAIL = 200;
const MAX_OUTPUT = 256 * 1024;

export function instance(id, close) {
  const path = `/v1/instances/${encodeURIComponent(id)}`;
  const title = h("h1", { class: "mono" });
  const state = h("span", { id: "instance-state" });
  const actions = h("div", { class: "actions" });
  const facts = h("div", { class: "body" });
  const timeline = h("ol", { class: "timeline", id: "timeline" });
  const output = outputPart(path);
  const element = h("div", { class: "stack" },
    h("div", { class: "head" }, title, state, h("button", { type: "button", class: "close", "aria-label": "Close", text: "×", on: { click: close } })),
    actions, panel("Instance", facts), panel("History", h("div", { class: "body" }, timeline)), output.element);
  const show = keeping(actions);
  let row = null;
  let drawn = "";
  let reading = false;
  let stale = true;

  async function read() {
    if (reading) return;
    reading = true;
    stale = false;
    try {
      row = (await get(path)).instance;
      const history = await readAll(`${path}/history`, {}, MAX_HISTORY);
      const runs = new Set(history.items.map((row) => row.run).filter(Boolean));
      fill(timeline, history.items.map((row) => moment(row, runs.size > 1)));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 404 && !row) fill(facts, h("p", { class: "note warn", text: problem.words }));
    } finally {
      reading = false;
    }
    draw();
    if (stale) read();
  }

  function draw() {
    setText(title, row ? shortId(instanceName(row)) : shortId(id));
    if (!row) return;
    fill(state, badge(...instanceState(row)));
    show([row.state, row.life, row.node_uuid, mayCommand()], () => instanceActions(row));
    fill(facts, pairs(facts0(row)));
  }

  output.read();
  return {
    element,
    /** Reads again once the list has another row of it. */
    update() {
      const now = JSON.stringify([store.instances.get(id), store.status?.caller]);
      if (now !== drawn) stale = true;
      drawn = now;
      if (stale) read();
    },
    close: output.stop,
  };
}

function facts0(row) {
  const custom = Object.entries(row.resources ?? {}).map(([name, amount]) => [name, count(amount)]);
  const target = store.nodes.get(row.target_node_uuid)?.hostname ?? row.target_node_uuid;
  return [
    ["UUID", h("code", { text: row.instance_uuid })],
    ["Node", row.node_uuid ? linkTo("nodes", row.node_uuid, row.hostname || shortId(row.node_uuid)) : "none"],
    ["Moves to", target ? linkTo("nodes", row.target_node_uuid, target) : null],
    ["Why", row.waits_for || null],
    ["Position", row.position ? `${row.position} in the queue` : null],
    ["Program", row.program ? h("code", { text: row.program }) : null],
    ["Memory", `${mib(row.mem_mb)}${row.mem_used_mb > 0 ? `, ${mib(row.mem_used_mb)} used` : ""}`],
    ["Virtual CPUs", count(row.vcpus)], ["Disk", row.disk_mb > 0 ? mib(row.disk_mb) : null], ...custom,
    ["Priority", row.priority === undefined ? null : String(row.priority)], ["Group", row.group || null],
    ["Tries", row.attempts === undefined ? null : String(row.attempts)], ["Retries", retry(row)], ["Launcher says", row.reported || null],
    ["Restarts", row.progress?.restarts ? restarts(row.progress) : null],
    ["Time limit", row.progress?.time_limit_ms === undefined ? null : `${span((row.progress.time_used_ms ?? 0) / 1000)} used of ${span(row.progress.time_limit_ms / 1000)}`],
    ["Age", row.age_s >= 0 ? span(row.age_s) : null],
    ["Deadline", row.deadline_ms === undefined ? null : `in ${span(row.deadline_ms / 1000)}`],
    ["Run", row.run > 1 ? String(row.run) : null],
    ["Ended", row.ended_at_ms ? clock(row.ended_at_ms) : null],
    ["Could not be started", row.failed || null],
    ["Exit status", row.exit_code === undefined ? null : row.exit_code < 0 ? `signal ${-row.exit_code}` : String(row.exit_code)],
  ];
}

/** How often it was started again on its node, and when it is the next time. */
function restarts({ restarts, last_exit_code, next_try_ms }) {
  const last = last_exit_code === undefined ? "" : `, the latest run ended with ${last_exit_code < 0 ? `signal ${-last_exit_code}` : `status ${last_exit_code}`}`;
  return `${count(restarts)}${last}${next_try_ms === undefined ? "" : `, the next in ${span(next_try_ms / 1000)}`}`;
}

function moment({ at_ms, what, node_uuid, detail, exit_code, why, failed, run }, several) {
  const at = new Date(at_ms);
  const node = node_uuid ? store.nodes.get(node_uuid)?.hostname ?? shortId(node_uuid) : "";
  const status = exit_code === undefined ? "" : `, exit status ${exit_code}`;
  const exit = failed ? `, could not be started: ${failed}` : `${why ? `, ${why.replaceAll("_", " ")}` : ""}${status}`;
  const which = run > 1 || (run && several) ? `, run ${run}` : "";
  return h("li", {},
    h("div", {}, h("b", { text: what }), node ? " on " : "", node ? linkTo("nodes", node_uuid, node) : null, which, exit),
    detail ? h("div", { class: "quiet", text: detail }) : null,
    h("time", { datetime: at.toISOString(), text: at.toLocaleString("en-GB") }));
}

/** What it wrote, and follows. */
function outputPart(path) {
  const text = h("pre", { class: "output", tabindex: "0", "aria-label": "Output" });
  const follow = h("input", { type: "checkbox", id: "follow", on: { change: () => (follow.checked ? read(true) : stop()) } });
  const again = h("button", { type: "button", text: "Read again", on: { click: () => read(false) } });
  let reading = null;

  function stop() {
    reading?.abort();
    reading = null;
  }

  async function read(isFollowed) {
    stop();
    const mine = new AbortController();
    reading = mine;
    text.textContent = "";
    try {
      const query = new URLSearchParams({ tail: String(TAIL), ...(isFollowed ? { follow: "true" } : {}) });
      const response = await request("GET", `${path}/output?${query}`, { signal: mine.signal, timeout: isFollowed ? 0 : undefined });
      await take(response);
      if (!text.textContent) text.textContent = "It has written nothing.";
    } catch (problem) {
      if (!mine.signal.aborted) text.textContent = words(problem);
    }
    if (reading === mine) follow.checked = false;
  }

  async function take(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
      text.textContent = (text.textContent + value).slice(-MAX_OUTPUT);
      if (atEnd) text.scrollTop = text.scrollHeight;
    }
  }

  const tools = [h("label", { for: "follow" }, follow, " follow"), again];
  return { element: panel("Output", h("div", { class: "body" }, text), { tools, id: "output" }), read: () => read(false), stop };
}

/** Why there is no output. */
function words(problem) {
  if (!(problem instanceof Problem)) return "The output has ended in the middle.";
  const isUnknown = problem.status === 501 || problem.reason === "no_such_path";
  return isUnknown ? "This scheduler does not serve output over HTTP; it is in a file of the instance's node." : problem.words;
}
