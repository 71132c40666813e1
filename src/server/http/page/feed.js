// What all tabs of a browser share: one stream of events, the status, and samples of it over time. It runs in a worker
// where there are shared ones, else in the page.

import { get, isBehind } from "./api.js";

/** Events that the scheduler tells. */
const EVENTS = [
  "node_connected", "node_disconnected", "drain_progress", "instance_placed", "instance_queued", "instance_state",
  "instance_stopped", "instance_deleted", "start_failure", "delete_failure", "command_failure", "attach_volume_failure",
  "concentrator_instance_added",
];

/** Pause between two looks at the status. */
const LOOK_MS = 2000;

/** The same after something happened. */
const LOOK_SOON_MS = 300;

/** How long events are gathered before tabs are told of them. */
const GATHER_MS = 100;

/** Events of one gathering: beyond that tabs read everything again. */
const MAX_GATHERED = 2000;

/** Samples kept: half an hour. */
const MAX_SAMPLES = 900;

/** Events remembered for tabs that are opened later. */
const MAX_RECENT = 100;

/** Events from before the feed began that are told as well. */
const EARLIER = 60;

/** First and longest pause before another try. */
const RETRY_MS = 500;
const RETRY_MAX_MS = 5000;

export class Feed {
  #tell;
  #source = null;
  #last = null;
  #begun = null;
  #retry = RETRY_MS;
  #gathered = [];
  #overflowed = false;
  #gathering = false;
  #looking = null;
  #timer = null;
  #streams = false;
  #dropped = false;
  link = { state: "connecting", detail: "" };
  status = null;
  samples = [];
  recent = [];

  constructor(tell) {
    this.#tell = tell;
  }

  start() {
    this.#look();
  }

  /** All that a new tab has to know. */
  hello() {
    return { kind: "hello", link: this.link, status: this.status, samples: this.samples, recent: this.recent };
  }

  #setLink(state, detail = "") {
    if (this.link.state === state && this.link.detail === detail) return;
    this.link = { state, detail };
    this.#tell({ kind: "link", link: this.link });
  }

  /** Reads the status, and then again. */
  async #look() {
    if (this.#looking) return this.#looking;
    clearTimeout(this.#timer);
    this.#looking = this.#read();
    await this.#looking;
    this.#looking = null;
    const away = this.link.state === "away" || this.link.state === "refused";
    this.#timer = setTimeout(() => this.#look(), away ? this.#retry : LOOK_MS);
  }

  async #read() {
    let status;
    try {
      status = await get("/v1/status");
    } catch (problem) {
      const refused = problem.status === 401 || problem.status === 403;
      this.#setLink(refused ? "refused" : "away", problem.words ?? String(problem));
      this.#retry = Math.min(RETRY_MAX_MS, this.#retry * 1.5);
      this.#close();
      return;
    }
    this.#retry = RETRY_MS;
    this.status = status;
    this.#sample(status);
    this.#tell({ kind: "status", status, sample: this.samples.at(-1) });
    this.#begun ??= status.sequence;
    if (!this.#source) this.#open(this.#last ?? earlier(status.sequence));
    else if (this.#streams) this.#setLink("live");
  }

  #sample(status) {
    const { total, placed, failed } = status.starts;
    // Of two looks in short order the later counts: a rate over less is noise.
    const before = this.samples.at(-2);
    if (before && Date.now() - before.at < LOOK_MS) this.samples.pop();
    const number = (this.samples.at(-1)?.number ?? 0) + 1;
    this.samples.push({ number, at: Date.now(), started: status.started_at_ms, total, placed, failed, queued: status.instances.queued });
    if (this.samples.length > MAX_SAMPLES) this.samples.shift();
  }

  #open(from) {
    const source = new EventSource(`/v1/events?${new URLSearchParams({ from })}`);
    this.#source = source;
    this.#last = from;
    source.addEventListener("open", () => {
      this.#streams = true;
      this.#setLink("live");
      // What the lists showed before the stream was lost may be of another run.
      if (this.#dropped) this.#tell({ kind: "resync" });
      this.#dropped = false;
    });
    source.addEventListener("error", () => {
      this.#close();
      this.#look();
    });
    source.addEventListener("resync", (event) => {
      this.#last = event.lastEventId;
      this.#tell({ kind: "resync" });
      this.#lookSoon();
    });
    for (const name of EVENTS) source.addEventListener(name, (event) => this.#take(name, event));
  }

  #close() {
    if (!this.#source) return;
    this.#source.close();
    this.#source = null;
    this.#streams = false;
    this.#dropped = true;
    this.#setLink("away", "the stream of events has ended");
  }

  #take(name, event) {
    this.#last = event.lastEventId;
    if (this.#gathered.length < MAX_GATHERED) {
      this.#gathered.push({ name, id: event.lastEventId, at: isBehind(event.lastEventId, this.#begun) ? Date.now() : null, data: JSON.parse(event.data) });
    } else {
      this.#overflowed = true;
    }
    if (this.#gathering) return;
    this.#gathering = true;
    setTimeout(() => this.#hand(), GATHER_MS);
  }

  #hand() {
    this.#gathering = false;
    const events = this.#gathered;
    this.#gathered = [];
    this.recent = [...this.recent, ...events].slice(-MAX_RECENT);
    this.#tell({ kind: "events", events });
    if (this.#overflowed) this.#tell({ kind: "resync" });
    this.#overflowed = false;
    this.#lookSoon();
  }

  #lookSoon() {
    if (this.#looking) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#look(), LOOK_SOON_MS);
  }
}

/** A place some events before this one. */
function earlier(place) {
  const [epoch, sequence] = place.split("-");
  return `${epoch}-${Math.max(0, Number(sequence) - EARLIER)}`;
}
