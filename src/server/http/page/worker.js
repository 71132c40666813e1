// The shared worker: one feed for all tabs.

import { Feed } from "./feed.js";

/** Tabs that are told; beyond that the oldest is told no more. */
const MAX_TABS = 64;

const ports = [];
const feed = new Feed((message) => {
  for (const port of ports) port.postMessage(message);
});
feed.start();

function drop(port) {
  const at = ports.indexOf(port);
  if (at >= 0) ports.splice(at, 1);
}

self.addEventListener("connect", (event) => {
  const [port] = event.ports;
  port.addEventListener("message", ({ data }) => {
    drop(port);
    if (data !== "hello") return;
    if (ports.length >= MAX_TABS) ports.shift();
    ports.push(port);
    port.postMessage(feed.hello());
  });
  port.start();
});
