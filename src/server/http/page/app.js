// The page: which view is shown, the state of the link, and the panel of details.

import { arrays } from "./arrays.js";
import { fill, setText } from "./dom.js";
import { explain } from "./explain.js";
import { count } from "./format.js";
import { history } from "./history.js";
import { instance } from "./instance.js";
import { instances } from "./instances.js";
import { node } from "./node.js";
import { nodes } from "./nodes.js";
import { overview } from "./overview.js";
import { queue } from "./queue.js";
import { onChange, start, store } from "./store.js";

const VIEWS = { overview, nodes, instances, queue, arrays, history, explain };

/** Views that show one row beside the list. */
const DETAILS = { nodes: node, instances: instance };

const main = document.getElementById("main");
const aside = document.getElementById("detail");
let shown = { name: null, id: null, view: null, detail: null };

/** What the address names: a view, and perhaps one row. */
function route() {
  const [, name, id] = location.hash.split("/");
  const isKnown = Object.hasOwn(VIEWS, name ?? "");
  return { name: isKnown ? name : "overview", id: isKnown && id ? decoded(id) : null };
}

/** Part of an address as it is meant, or null where it cannot be read. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

function go() {
  const { name, id } = route();
  const isNew = name !== shown.name || name === "explain" || (name === "history" && id !== shown.id);
  const view = isNew ? VIEWS[name](id) : shown.view;
  if (isNew) {
    fill(main, view.element);
    for (const link of document.querySelectorAll("#views a")) {
      if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${name[0].toUpperCase()}${name.slice(1)} · ciao`;
  }
  if (isNew || id !== shown.id) {
    shown.detail?.close?.();
    const close = () => (location.hash = `#/${name}`);
    const detail = id && DETAILS[name] ? DETAILS[name](id, close) : null;
    aside.hidden = !detail;
    fill(aside, detail ? [detail.element] : []);
    const before = shown.detail && shown.id;
    shown = { name, id, view, detail };
    if (detail) aside.focus({ preventScroll: true });
    else if (before && !isNew) main.querySelector(`a[href="#/${name}/${CSS.escape(encodeURIComponent(before))}"]`)?.focus();
    else if (isNew) scrollTo(0, 0);
  }
  update();
}

function update() {
  const { state, detail } = store.link;
  const words = { live: "live", connecting: "connecting", away: "scheduler away", refused: "not let in" };
  document.getElementById("link").dataset.state = state;
  setText(document.getElementById("link-text"), words[state]);
  const away = document.getElementById("away");
  const why = state === "away"
    ? `The scheduler does not answer; what is shown may be old. This page tries again by itself. (${detail})`
    : state === "refused" ? `This browser may not read: ${detail}` : "";
  away.hidden = !why;
  setText(away, why);
  const role = document.getElementById("role");
  const caller = store.status?.caller;
  role.hidden = !caller;
  if (caller) setText(role, caller.may_command ? "may command" : "read only");
  if (caller) role.title = `certificate: ${caller.role}`;
  const queued = store.status?.instances.queued ?? 0;
  const badge = document.getElementById("queue-count");
  badge.hidden = queued === 0;
  setText(badge, count(queued));
  shown.view?.update(shown.id);
  shown.detail?.update();
}

addEventListener("hashchange", go);
// The address names a view, so the link to the content must leave it as it is.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown.detail && !document.querySelector("dialog[open]")) location.hash = `#/${shown.name}`;
});
onChange(update);
go();
start();
