//! The Placement API of the built daemon: every route, its forms by version, faults, tokens, and OpenStack's own client.
//!
//! The test with that client needs `openstack` with `osc-placement`. Where they are missing the test says so and passes,
//! unless `CIAO_REQUIRE_OPENSTACK=1`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "placement/client.rs"]
mod client;
#[path = "placement/groups.rs"]
mod groups;
#[path = "placement/guests.rs"]
mod guests;
#[path = "placement/hostile.rs"]
mod hostile;
#[path = "placement/mounted.rs"]
mod mounted;
#[path = "placement/openstack.rs"]
mod openstack;
#[path = "common/peer.rs"]
mod peer;
#[path = "placement/reading.rs"]
mod reading;
#[path = "placement/refusing.rs"]
mod refusing;
#[path = "common/site.rs"]
mod site;
#[path = "placement/texts.rs"]
mod texts;
#[path = "common/words.rs"]
mod words;
