//! The daemon as its users meet it: the built program, real certificates, real sockets, one test per sentence about it.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../common/certs.rs"]
mod certs;
#[path = "../common/disk.rs"]
mod disk;
#[path = "../common/look.rs"]
mod look;
#[path = "../common/peer.rs"]
mod peer;
#[path = "../common/site.rs"]
mod site;
#[path = "../common/words.rs"]
mod words;

mod admission;
mod audit;
mod backups;
mod binding;
mod boot;
mod burst;
mod burst_of_starts;
mod configuration;
mod controllers;
mod defaults;
mod expiry;
mod flags;
mod foreign;
mod full_disk;
mod gates;
mod hostile;
mod losses;
mod order;
mod placement;
mod privacy;
mod reload;
mod replacement;
mod restart;
mod revocation;
mod scenes;
mod scheduling;
mod slow;
mod texts;
mod traces;
