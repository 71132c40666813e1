//! The lives of instances in clusters of real processes: the built scheduler, launchers that run real programs, and
//! `ciaoctl`, over real TLS. One file for each of what the scheduler does for an instance once it is placed, and one for
//! what users of other systems would miss.
//!
//! What is decided and why is tried in `tests/sched`, what a launcher does with a process in `tests/launcher`, and what
//! `ciaoctl` prints against a scripted scheduler in `tests/ciaoctl`; here is whether they do it together.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../common/certs.rs"]
mod certs;
#[allow(dead_code, reason = "the tests of the HTTP door use the rest")]
#[path = "../http/client.rs"]
mod client;
#[path = "../common/look.rs"]
mod look;
#[path = "../common/peer.rs"]
mod peer;
#[path = "../common/processes.rs"]
mod processes;
#[path = "../common/site.rs"]
mod site;
#[path = "../common/supervisors.rs"]
mod supervisors;
#[path = "../common/words.rs"]
mod words;

mod arrays;
mod configure;
mod contexts;
mod controllers;
mod crashes;
mod describe;
mod devices;
mod ends;
mod history;
mod http_output;
mod images;
mod instances;
mod killed;
mod launcher_metrics;
mod leases;
mod lists;
mod logs;
mod lost_nodes;
mod moves;
mod names;
mod neighbours;
mod outputs;
mod overcommit;
mod people;
mod priorities;
mod program;
mod queueing;
mod renewal;
mod reruns;
mod results;
mod retries;
mod sets;
mod silence;
mod status;
mod twins;
mod world;
