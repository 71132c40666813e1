// What is typed above a list: words, or an expression, which the scheduler evaluates as it does `selector` of its API.

import { Problem, readAll } from "./api.js";
import { store } from "./store.js";

/** How long an answer is shown before it is asked for again, where the cluster has changed. */
const FRESH_MS = 2_000;

/** How long nothing is typed before it is asked about. */
const TYPED_MS = 250;

/** Most rows that are asked for. */
const MAX_ROWS = 100_000;

/** An expression: a key, and behind it, with a blank between, what it is compared with. */
const EXPRESSION = /^\s*\S+\s+(=|!=|<=?|>=?|(not\s+)?in\b|(not\s+)?exists\b)/;

/** Which rows of a list are shown. */
export class Selection {
  /** `path` is the list's, `key` a field that tells its rows apart, `changed` is called when there is an answer. */
  constructor(path, key, changed) {
    this.path = path;
    this.key = key;
    this.changed = changed;
    this.text = "";
    this.words = [];
    this.keys = null;
    this.failure = "";
    this.asked = 0;
    this.at = 0;
    this.version = -1;
    this.timer = 0;
  }

  /** Takes what is typed. */
  set(text) {
    const isOther = text !== this.text;
    this.text = text;
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!EXPRESSION.test(text)) {
      clearTimeout(this.timer);
      this.asked++;
      this.keys = null;
      this.failure = "";
      return;
    }
    const isStale = store.version !== this.version && performance.now() - this.at > FRESH_MS;
    if (!isOther && !isStale) return;
    clearTimeout(this.timer);
    this.at = performance.now();
    this.version = store.version;
    if (isOther) this.keys = new Set();
    this.timer = setTimeout(() => this.ask(++this.asked), isOther ? TYPED_MS : 0);
  }

  /** Whether a row is shown; `text` is what words are looked for in. */
  has(row, text) {
    if (this.keys) return this.keys.has(row[this.key]);
    return !this.words.length || this.words.every((word) => text().toLowerCase().includes(word));
  }

  /** What tells one choice of rows from another. */
  get state() {
    return `${this.text}/${this.asked}/${this.keys?.size ?? ""}`;
  }

  /** An answer to what was typed before is not shown. */
  async ask(mine) {
    try {
      const { items } = await readAll(this.path, { selector: this.text.trim(), fields: this.key }, MAX_ROWS);
      if (mine !== this.asked) return;
      this.keys = new Set(items.map((row) => row[this.key]));
      this.failure = "";
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine !== this.asked) return;
      this.failure = problem.words;
    }
    this.changed();
  }
}
