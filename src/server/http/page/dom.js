// Elements from code. Text is put in as text: nothing that a peer wrote is ever read as HTML. What is not shown, such as
// the characters that turn the direction of writing around, is put in escaped, as in the log and on a terminal.

/** What is not shown, but the line end and the tabulator: controls, separators of lines and paragraphs, format characters. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A text for people, with what is not shown escaped. */
export function shown(text) {
  const escape = (c) => (c === "\n" || c === "\t" ? c : `\\u{${c.codePointAt(0).toString(16)}}`);
  return String(text ?? "").replace(UNPRINTABLE, escape);
}

/** An element. `props` are attributes; `class`, `text` and `on` (listeners) are what they say. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") element.className = value;
    else if (key === "text") element.textContent = shown(value);
    else if (key === "on") for (const [name, listener] of Object.entries(value)) element.addEventListener(name, listener);
    else if (key === "title" || key === "aria-label") element.setAttribute(key, shown(value));
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...all(children));
  return element;
}

/** An element of a drawing. */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "text") element.textContent = shown(value);
    else element.setAttribute(key, String(value));
  }
  element.append(...all(children));
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
  const words = shown(text);
  if (element.textContent !== words) element.textContent = words;
}

/** Replaces what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...all(children));
}

/** Children in one list: elements, and texts for people. */
function all(children) {
  const there = children.flat(Infinity).filter((child) => child !== undefined && child !== null);
  return there.map((child) => (child instanceof Node ? child : shown(child)));
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
