//! The HTTP door of the built daemon: what foreign programs and hostile peers meet, who may do what, and what is answered.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "http/arrays.rs"]
mod arrays;
#[path = "common/certs.rs"]
mod certs;
#[path = "http/client.rs"]
mod client;
#[path = "http/commands.rs"]
mod commands;
#[path = "http/configuration.rs"]
mod configuration;
#[path = "http/curl.rs"]
mod curl;
#[path = "http/events.rs"]
mod events;
#[path = "http/hostile.rs"]
mod hostile;
#[path = "http/images.rs"]
mod images;
#[path = "http/lists.rs"]
mod lists;
#[path = "http/matrix.rs"]
mod matrix;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/page.rs"]
mod page;
#[path = "common/peer.rs"]
mod peer;
#[path = "http/reading.rs"]
mod reading;
#[path = "common/site.rs"]
mod site;
#[path = "http/texts.rs"]
mod texts;
#[path = "http/warnings.rs"]
mod warnings;
#[path = "http/web.rs"]
mod web;
#[path = "common/words.rs"]
mod words;
