//! The built launcher with real processes, against a scripted scheduler over real sockets and TLS.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "common/guarded.rs"]
mod guarded;
#[path = "common/messages.rs"]
mod messages;
#[path = "common/processes.rs"]
mod processes;

#[path = "launcher/cgroups.rs"]
mod cgroups;
#[path = "launcher/connections.rs"]
mod connections;
#[path = "launcher/devices.rs"]
mod devices;
#[path = "launcher/features.rs"]
mod features;
#[path = "launcher/files.rs"]
mod files;
#[path = "launcher/identity.rs"]
mod identity;
#[path = "launcher/inherited.rs"]
mod inherited;
#[path = "launcher/kept.rs"]
mod kept;
#[path = "launcher/leases.rs"]
mod leases;
#[path = "launcher/lifecycle.rs"]
mod lifecycle;
#[path = "launcher/limits.rs"]
mod limits;
#[path = "launcher/orphans.rs"]
mod orphans;
#[path = "launcher/pinning.rs"]
mod pinning;
#[path = "launcher/restarts.rs"]
mod restarts;
#[path = "launcher/storage.rs"]
mod storage;
#[path = "launcher/terms.rs"]
mod terms;
#[path = "launcher/volume.rs"]
mod volume;
#[path = "launcher/workloads.rs"]
mod workloads;
#[path = "launcher/world.rs"]
mod world;
