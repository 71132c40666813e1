// Requests to the scheduler's HTTP API.

/** How long a request that reads may take. */
const READ_TIMEOUT_MS = 20_000;

/** How long a command may take; its `wait` is shorter. */
const COMMAND_TIMEOUT_MS = 60_000;

/** Rows of a page. */
const PAGE_ROWS = 1000;

/** What went wrong, as the scheduler says it. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? `status ${status}`);
    this.status = status;
    this.reason = document.reason ?? "";
    this.field = document.field ?? "";
    this.help = document.help ?? "";
    this.document = document;
  }

  /** All of it, as text. */
  get words() {
    const field = this.field ? `${this.field}: ` : "";
    return `${field}${this.message}${this.help ? ` (${this.help})` : ""}`;
  }
}

/** The answer to a request. Throws a Problem; status 0 is no answer at all. */
export async function request(method, path, { body, type, signal, timeout = READ_TIMEOUT_MS } = {}) {
  const headers = { accept: "application/json" };
  if (method !== "GET") headers["ciao-web"] = "command";
  if (type) headers["content-type"] = type;
  const limit = timeout ? AbortSignal.timeout(timeout) : undefined;
  const signals = [signal, limit].filter(Boolean);
  let response;
  try {
    response = await fetch(path, { method, headers, body, signal: signals.length > 1 ? AbortSignal.any(signals) : signals[0] });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, { detail: "no answer", reason: "away" });
  }
  if (response.ok) return response;
  let document = {};
  try {
    document = await response.json();
  } catch {
    // A status is all there is.
  }
  throw new Problem(response.status, document);
}

/** JSON of a path. */
export async function get(path, options) {
  return json(await request("GET", path, options));
}

/** JSON of an answer. Throws a Problem where it breaks off. */
export async function json(response) {
  try {
    return await response.json();
  } catch {
    throw new Problem(0, { detail: "the answer broke off", reason: "away" });
  }
}

/** Sends a command. */
export async function command(method, path, body) {
  const options = { timeout: COMMAND_TIMEOUT_MS };
  if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), type: "application/json" });
  const response = await request(method, path, options);
  return { status: response.status, ...(await json(response)) };
}

/** All rows of a list, `most` at most: the rows, whether there are more, and behind which event they hold. */
export async function readAll(path, params, most) {
  const items = [];
  let after = null;
  let sequence = null;
  do {
    const query = new URLSearchParams({ ...params, limit: String(Math.min(PAGE_ROWS, most - items.length)) });
    if (after) query.set("after", after);
    const page = await get(`${path}?${query}`);
    sequence ??= page.sequence;
    items.push(...page.items);
    after = page.next;
  } while (after && items.length < most);
  return { items, more: Boolean(after), sequence };
}

/** Whether an event is behind a place: a list that was read there does not show it. */
export function isBehind(event, place) {
  const [epoch, sequence] = event.split("-");
  const [epochThen, sequenceThen] = (place ?? "-0").split("-");
  return epoch !== epochThen || Number(sequence) > Number(sequenceThen);
}
