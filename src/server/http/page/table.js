// A table whose rows stay the same elements while they are shown, so that focus and selection stay where they are.

import { fill, h, setText } from "./dom.js";
import { byName } from "./format.js";

/** Rows of a page. */
const PAGE = 100;

/**
 * `columns`: {title, value(row) for sorting, show(row) text or element, right, long, fold}; `key(row)`;
 * `choose(row)` for a row that is clicked; `empty` is said where there are no rows.
 */
export class Table {
  #columns;
  #key;
  #choose;
  #empty;
  #page = 0;
  #sort;
  #rows = [];
  #version;
  #sorted = null;
  #shown = new Map();
  #selected = null;

  constructor({ label, columns, key, choose, empty, sort }) {
    this.#columns = columns;
    this.#key = key;
    this.#choose = choose;
    this.#empty = empty;
    this.#sort = sort ?? { at: -1, up: true };
    this.heads = columns.map((column, at) => this.#head(column, at));
    this.tbody = h("tbody");
    this.none = h("p", { class: "empty", text: empty });
    this.table = h("table", { class: choose ? "choose" : "" },
      h("caption", { class: "unseen", text: label }), h("thead", {}, h("tr", {}, this.heads)), this.tbody);
    this.before = h("button", { type: "button", text: "‹ before", on: { click: () => this.#turn(-1) } });
    this.range = h("span", { class: "number" });
    this.next = h("button", { type: "button", text: "next ›", on: { click: () => this.#turn(1) } });
    this.pages = h("div", { class: "pages", hidden: true }, this.before, this.range, this.next);
    this.element = h("div", {}, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, this.table), this.none, this.pages);
  }

  /** Shows these rows; `version` is another one whenever a row is. */
  set(rows, selected, version) {
    const { at, up } = this.#sort;
    const sorted = `${at}/${up}/${version}`;
    this.#selected = selected;
    this.#version = version;
    if (sorted !== this.#sorted) {
      this.#sorted = sorted;
      this.#rows = at < 0 ? rows : this.#inOrder(rows);
    }
    this.#page = Math.min(this.#page, this.#last());
    this.#draw();
  }

  #inOrder(rows) {
    const { at, up } = this.#sort;
    const { value } = this.#columns[at];
    return [...rows].sort((a, b) => compare(value(a), value(b)) * (up ? 1 : -1));
  }

  /** The last page. */
  #last() {
    return Math.max(0, Math.ceil(this.#rows.length / PAGE) - 1);
  }

  first() {
    this.#page = 0;
  }

  #head(column, at) {
    const title = column.value
      ? h("button", { type: "button", text: column.title, on: { click: () => this.#sortBy(at) } })
      : column.title;
    return h("th", { scope: "col", class: classes(column) }, title);
  }

  #sortBy(at) {
    this.#sort = { at, up: this.#sort.at === at ? !this.#sort.up : true };
    this.set(this.#rows, this.#selected, this.#version);
  }

  #draw() {
    const { at, up } = this.#sort;
    this.heads.forEach((head, i) => {
      if (i === at) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const rows = this.#rows.slice(this.#page * PAGE, (this.#page + 1) * PAGE);
    const shown = new Map();
    // First, so that rows that stay are not moved: an element that is moved loses the focus.
    this.#remove(new Set(rows.map(this.#key)));
    let before = this.tbody.firstChild;
    for (const row of rows) {
      const key = this.#key(row);
      const kept = this.#shown.get(key) ?? this.#make();
      kept.row = row;
      this.#columns.forEach((column, i) => put(kept.cells[i], column.show(row)));
      if (this.#choose) kept.tr.setAttribute("aria-selected", String(key === this.#selected));
      if (kept.tr === before) before = before.nextSibling;
      else this.tbody.insertBefore(kept.tr, before);
      shown.set(key, kept);
    }
    this.#shown = shown;
    this.none.hidden = rows.length > 0;
    setText(this.none, this.#empty);
    this.table.hidden = rows.length === 0;
    this.#drawPages();
  }

  /** Removes the rows that are not among those to be shown. */
  #remove(keys) {
    for (const [key, kept] of this.#shown) if (!keys.has(key)) kept.tr.remove();
  }

  #make() {
    const cells = this.#columns.map((column) => h("td", { class: classes(column) }));
    const kept = { tr: h("tr", {}, cells), cells, row: null };
    if (this.#choose) {
      kept.tr.addEventListener("click", (event) => {
        if (!event.target.closest("button, a, input")) this.#choose(kept.row);
      });
    }
    return kept;
  }

  #drawPages() {
    const last = this.#last();
    this.pages.hidden = last === 0;
    if (last === 0) return;
    const from = this.#page * PAGE + 1;
    const to = Math.min(this.#rows.length, from + PAGE - 1);
    setText(this.range, `${from}–${to} of ${this.#rows.length.toLocaleString("en-GB")}`);
    this.before.disabled = this.#page === 0;
    this.next.disabled = this.#page === last;
  }

  /** Goes on by so many pages. At an end the focus goes to the button that can still be used. */
  #turn(by) {
    this.#page += by;
    this.#draw();
    if (this.next.disabled) this.before.focus();
    else if (this.before.disabled) this.next.focus();
  }
}

function classes(column) {
  return ["right", "long", "fold", "name"].filter((name) => column[name]).join(" ");
}

/** Text, or an element; an element that would look the same is left as it is. */
function put(cell, content) {
  if (!(content instanceof Node)) return setText(cell, String(content ?? ""));
  const old = cell.firstChild;
  if (old && cell.childNodes.length === 1 && old.isEqualNode(content) && !content.dataset.live) return;
  fill(cell, content);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return (Number.isNaN(a) ? -1 : a) - (Number.isNaN(b) ? -1 : b);
  return byName(String(a ?? ""), String(b ?? ""));
}

/** A link to a node or an instance. */
export function linkTo(kind, id, text) {
  return h("a", { href: `#/${kind}/${encodeURIComponent(id)}`, text, title: id });
}
