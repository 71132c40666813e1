// Commands, for those whose certificate may give them: each asks first, and says what became of it.

import { command } from "./api.js";
import { h, toast } from "./dom.js";
import { count, instanceName, nodeName, shortId } from "./format.js";
import { mayCommand, store, touch } from "./store.js";

/** How long a command waits for its outcome before it is followed by its events alone. */
const WAIT = "wait=15s";

/** Asks whether something is meant; what was filled in, or null. */
function ask({ title, text, act, danger, fields = [] }) {
  return new Promise((resolve) => {
    const done = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    const inputs = fields.map(({ name, label, control }) => {
      control.id = `ask-${name}`;
      control.name = name;
      return h("div", { class: "field" }, h("label", { for: control.id, text: label }), control);
    });
    const values = () => Object.fromEntries(fields.map(({ name, control }) => [name, control.value.trim()]));
    const dialog = h("dialog", { "aria-labelledby": "ask-title", on: { cancel: (event) => { event.preventDefault(); done(null); } } },
      h("div", { class: "body" }, h("h2", { id: "ask-title", text: title }), h("p", { text }), inputs),
      h("div", { class: "foot" },
        h("button", { type: "button", text: "Cancel", on: { click: () => done(null) } }),
        h("button", { type: "button", class: danger ? "main danger" : "main", id: "ask-yes", text: act, on: { click: () => done(values()) } })));
    document.body.append(dialog);
    dialog.showModal();
    (inputs.length ? fields[0].control : dialog.querySelector(".foot button")).focus();
  });
}

/** Asks, sends, says what became of it. */
async function carryOut(question, what, send) {
  const values = await ask(question);
  if (!values) return;
  try {
    const answer = await send(values);
    toast(answer.status === 202 ? `${what}: under way` : `${what}: done`, "good");
  } catch (problem) {
    toast(`${what}: ${problem.words ?? problem}`, "bad");
  }
}

function button(text, question, what, send, kind = "") {
  return h("button", { type: "button", class: kind, text, "data-command": text.toLowerCase(), on: { click: () => carryOut({ act: text, ...question() }, what, send) } });
}

/** What can be done with an instance as it is. */
export function instanceActions(row) {
  if (!mayCommand() || row.state === "ended") return [];
  const id = row.instance_uuid;
  const name = shortId(instanceName(row));
  const path = `/v1/instances/${encodeURIComponent(id)}`;
  const post = (verb) => async (values) => {
    const body = Object.fromEntries(Object.entries(values).filter(([, value]) => value));
    const answer = await command("POST", `${path}/${verb}?${WAIT}`, body);
    touch({ instance: id, node: row.node_uuid });
    return answer;
  };
  const suspended = row.life === "suspended" || row.life === "suspending";
  const actions = [];
  if (row.state === "running" && !suspended) {
    actions.push(button("Suspend", () => ({ title: `Suspend ${name}?`, text: "It keeps its memory and disk, and gives its virtual CPUs free." }), `suspend ${name}`, post("suspend")));
  }
  if (suspended) {
    actions.push(button("Resume", () => ({ title: `Resume ${name}?`, text: "It goes on where it was suspended, if there is room." }), `resume ${name}`, post("resume")));
  }
  if (row.state === "running") {
    const question = () => ({ title: `Migrate ${name}?`, text: "It moves to another node.", fields: [{ name: "target_node_uuid", label: "To", control: targets(row) }] });
    actions.push(button("Migrate", question, `migrate ${name}`, post("migrate")));
  }
  const remove = async () => {
    const forget = row.state === "lost" ? "forget=true&" : "";
    const answer = await command("DELETE", `${path}?${forget}${WAIT}`);
    touch({ instance: id, node: row.node_uuid });
    return answer;
  };
  const text = row.state === "lost"
    ? "Its node is lost: it is taken from the list although it may still run there."
    : "It ends for good, and what it has in memory and on local disk is lost.";
  actions.push(button("Delete", () => ({ title: `Delete ${name}?`, text, danger: true }), `delete ${name}`, remove, "danger"));
  return actions;
}

/** Other nodes that take work. */
function targets(row) {
  const nodes = [...store.nodes.values()].filter((node) => node.node_uuid !== row.node_uuid && node.status === "READY" && !node.cordoned);
  const options = nodes.slice(0, 200).map((node) => h("option", { value: node.node_uuid, text: nodeName(node) }));
  return h("select", {}, h("option", { value: "", text: "any node that fits" }), options);
}

/** What can be done with a node as it is. */
export function nodeActions(row) {
  if (!mayCommand()) return [];
  const id = row.node_uuid;
  const name = nodeName(row);
  const post = (verb) => async (values) => {
    const deadline = values.deadline ? { deadline: values.deadline } : {};
    const answer = await command("POST", `/v1/nodes/${encodeURIComponent(id)}/${verb}`, verb === "drain" ? deadline : undefined);
    touch({ node: id });
    return answer;
  };
  const actions = [];
  if (row.cordoned) {
    actions.push(button("Uncordon", () => ({ title: `Uncordon ${name}?`, text: "It gets new instances again." }), `uncordon ${name}`, post("uncordon")));
  } else {
    actions.push(button("Cordon", () => ({ title: `Cordon ${name}?`, text: "It gets no new instances; those it has stay." }), `cordon ${name}`, post("cordon")));
  }
  if (isDraining(row)) {
    actions.push(button("Abort drain", () => ({ title: `End the drain of ${name}?`, text: "What has moved stays where it is; the node stays cordoned." }), `end of the drain of ${name}`, post("abort-drain")));
  } else {
    const control = h("input", { type: "text", placeholder: "none, or such as 10m" });
    const question = () => ({
      title: `Drain ${name}?`, text: `The node is cordoned and its ${count(store.nodes.get(id)?.instances)} instances move to others.`, danger: true,
      fields: [{ name: "deadline", label: "Deadline", control }],
    });
    actions.push(button("Drain", question, `drain of ${name}`, post("drain"), "danger"));
  }
  return actions;
}

/** Whether instances are being moved from a node. */
export function isDraining(row) {
  const progress = store.drains.get(row.node_uuid);
  return progress ? progress.state === "moving" : Boolean(row.drain);
}
