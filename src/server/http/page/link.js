// The tab's way to the feed: a shared worker, or a feed of its own where there is none.

import { Feed } from "./feed.js";

const WORKER = "/page/worker.js";

/** The one address that may become a script. */
function workerUrl() {
  if (!self.trustedTypes) return WORKER;
  const policy = self.trustedTypes.createPolicy("ciao-page", { createScriptURL: () => WORKER });
  return policy.createScriptURL(WORKER);
}

/** Hands every message of the feed to `take`. */
export function connect(take) {
  const alone = () => {
    const feed = new Feed(take);
    take(feed.hello());
    feed.start();
  };
  if (!("SharedWorker" in self)) return alone();
  let worker;
  try {
    worker = new SharedWorker(workerUrl(), { type: "module", name: "ciao" });
  } catch {
    return alone();
  }
  let heard = false;
  worker.addEventListener("error", () => {
    if (!heard) alone();
    heard = true;
  });
  worker.port.addEventListener("message", ({ data }) => {
    heard = true;
    take(data);
  });
  worker.port.start();
  worker.port.postMessage("hello");
  self.addEventListener("pagehide", () => worker.port.postMessage("bye"));
  self.addEventListener("pageshow", (event) => event.persisted && worker.port.postMessage("hello"));
}
