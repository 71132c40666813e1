//! Two schedulers behind one name, as processes, with etcd and launchers that run real programs: what happens to who
//! waits and to what runs when the leader is killed, stands still and goes on, or is cut off; and when etcd is.
//!
//! Without etcd installed the tests pass, unless `CIAO_REQUIRE_ETCD=1`; likewise those that set clocks, without libfaketime.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../common/certs.rs"]
mod certs;
#[allow(dead_code, reason = "the tests of the HTTP door use the rest")]
#[path = "../http/client.rs"]
mod client;
#[path = "../common/disk.rs"]
mod disk;
#[allow(dead_code, reason = "the tests of the client use the rest")]
#[path = "../../crates/etcd/tests/etcd/world.rs"]
mod etcd;
#[path = "../common/look.rs"]
mod look;
#[path = "../common/peer.rs"]
mod peer;
#[path = "../common/site.rs"]
mod site;
#[path = "../common/supervisors.rs"]
mod supervisors;
#[path = "../common/words.rs"]
mod words;

mod book;
mod clock;
mod clocks;
mod cuts;
mod dev;
mod disks;
mod fail_over;
mod full;
mod gate;
mod hand_over;
mod kept;
mod killed;
mod leases;
mod members;
mod mesh;
mod operators;
mod restored;
mod secure;
mod staged;
mod stalled;
mod world;
