// Elements from code. Text is put in as text: nothing that a peer wrote is ever read as HTML.

/** An element. `props` are attributes; `class`, `text` and `on` (listeners) are what they say. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = value;
    else if (key === "on") for (const [name, listener] of Object.entries(value)) element.addEventListener(name, listener);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== undefined && child !== null) element.append(child);
  return element;
}

/** An element of a drawing. */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "text") element.textContent = value;
    else element.setAttribute(key, String(value));
  }
  element.append(...children);
  return element;
}

/** A panel with a heading. */
export function panel(title, body, { tools = [], id, level = "h2" } = {}) {
  const heading = h(level, { text: title, id: id && `${id}-title` });
  return h("section", { class: "panel", id, "aria-label": title },
    h("header", {}, heading, tools.length ? h("div", { class: "tools" }, tools) : null),
    body);
}

/** Puts text in if it is another one, so that what reads along is not told the same again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Replaces what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null));
}

export function badge(word, kind = "") {
  return h("span", { class: `badge ${kind}`, text: word });
}

/** Says something to those who listen to the page. */
export function say(text) {
  setText(document.getElementById("said"), text);
}

/** A line about what became of something, for some seconds. */
export function toast(text, kind = "") {
  const toasts = document.getElementById("toasts");
  while (toasts.children.length >= MAX_TOASTS) toasts.firstChild.remove();
  const element = h("div", { class: `toast ${kind}`, text });
  toasts.append(element);
  setTimeout(() => element.remove(), kind === "bad" ? 15_000 : 6_000);
}

/** Lines shown at once. */
const MAX_TOASTS = 5;
