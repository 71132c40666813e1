//! Every limit of the server, with its default and the reason for it.
//!
//! A limit of the wire format is
//! in `proto_frames::limits`, one of the core in `sched_core::Config`, one of HTTP requests in [`super::http`]; what
//! peers can make grow is listed in `docs/explanation/security.md`. A limit that flags can set is a field of
//! [`ServerLimits`].

use std::sync::Arc;
use std::time::Duration;

use proto_frames::Term;

use super::schedulers::{HandOver, Schedulers};
use super::store::HistoryLimits;
use crate::net::fence::Fence;

/// Port of the scheduler, as the original's.
pub const DEFAULT_PORT: u16 = 8888;

/// Port of the HTTP door, where one is opened without saying which.
pub use crate::net::address::DEFAULT_HTTP_PORT;

/// Handshakes (TLS and CONNECT) under way at once. More connections wait before theirs rather than being cut off in the
/// middle: an original client that is cut after TLS never comes back. A second's work of two processors.
pub const MAX_HANDSHAKES: usize = 1280;

/// How many percent of the places for handshakes one source (an IPv4 address, an IPv6 network of 64 bits) may have:
/// 1024 of [`MAX_HANDSHAKES`], which keeps the processors busy where all launchers are behind one address. The others
/// stay free for other sources whatever that one does.
pub const HANDSHAKE_SHARE: u8 = 80;

/// Connections that may wait for their first byte or for a place, for each place: 10 240 by default, a cluster of which
/// all launchers come back at once. One costs its socket and about 2 KiB. Beyond that, one of the source that has most
/// has to leave.
pub const WAITING_PER_PLACE: usize = 8;

/// How long a connection may wait for a place after its first byte: no client waits longer for its handshake.
pub const MAX_WAIT_FOR_PLACE: Duration = Duration::from_secs(60);

/// Under pressure: how long a connection may stay without its first byte. A client sends it at once, so this is a round
/// trip, with three losses of a packet (200 ms each).
pub const PRESSED_FIRST_BYTE: Duration = Duration::from_secs(1);

/// Under pressure: how long a handshake may take, if nothing has come from its peer for [`PRESSED_SILENCE`]. It takes
/// milliseconds, and at most three round trips.
pub const PRESSED_HANDSHAKE: Duration = Duration::from_secs(3);

/// Under pressure: a handshake that has taken too long is ended only if its peer has sent nothing for this time, so
/// that a scheduler that is slow itself does not end all of them.
pub const PRESSED_SILENCE: Duration = Duration::from_secs(1);

/// How long a peer may take for its first byte, and then for its TLS handshake.
pub const TLS_DEADLINE: Duration = Duration::from_secs(10);

/// How long a peer may take from TLS to its whole CONNECT (the original's figure).
pub const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// Open files kept back from connections: listeners, logs, the state directory, standard streams.
pub const RESERVED_FILES: u64 = 64;

/// Connections the kernel may hold that were not accepted yet, per listening address. `net.core.somaxconn` may lower
/// it.
pub const ACCEPT_BACKLOG: u32 = 4096;

/// First pause after accepting failed, as it does when files run out; doubles up to [`MAX_ACCEPT_PAUSE`].
pub const MIN_ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Longest pause after accepting failed.
pub const MAX_ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of a controller's or operator's frames, and of the answers to them, that may be queued: some 8 000 STARTs, a
/// few milliseconds of work.
pub const CONTROLLER_BUDGET: usize = 4 * 1024 * 1024;

/// Bytes of any other peer's frames that may be queued: five STATS of a node with 200 instances, so that a controller
/// which reads nothing until its deadline does not keep launchers waiting.
pub const LAUNCHER_BUDGET: usize = 256 * 1024;

/// Bytes that may be queued for an operator because of what others do: some 40 000 placements. They are charged to
/// no sender, so that no peer waits for an operator; one that is further behind is disconnected.
pub const MAX_UNCHARGED_OPERATOR: usize = 16 * 1024 * 1024;

/// Bytes that may be queued for a controller that has stalled, charged to no sender any more, and answers that no one
/// in particular caused. Beyond it is disconnected. 150 000 nodes lost at once, or 1 000 STATS of 200 instances.
pub const MAX_UNCHARGED_CONTROLLER: usize = 64 * 1024 * 1024;

/// Bytes that may be queued for all operators and viewers together, whoever caused them: what one controller may have.
/// Beyond it those are disconnected that have most unread, certificate by certificate. So hundreds of sessions that read
/// nothing cost no more than four at [`MAX_UNCHARGED_OPERATOR`].
pub(super) const MAX_UNREAD_LISTENERS: usize = MAX_UNCHARGED_CONTROLLER;

/// The same for all controllers together: a master, and three backups that have all stalled.
pub(super) const MAX_UNREAD_CONTROLLERS: usize = 4 * MAX_UNCHARGED_CONTROLLER;

/// Bytes queued for a launcher that has stalled which are no longer charged to their senders: a controller's whole
/// budget, so that no single stalled launcher holds a controller back. What is beyond stays charged.
pub const MAX_UNCHARGED_LAUNCHER: usize = CONTROLLER_BUDGET;

/// Bytes queued for a launcher from which on it is used only where nothing else fits. A sixteenth of a controller's
/// budget: that many launchers must back up before one controller is slowed down.
pub const HIGH_WATER: usize = 256 * 1024;

/// How long queued frames may take to leave when the scheduler shuts down.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// The limits of a server that can be set. The programs fill it from flags, tests with numbers that are reached
/// quickly. It is read once, when the hub and the gate are made; no limit changes while the daemon runs.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// See [`MAX_HANDSHAKES`].
    pub max_handshakes: usize,
    /// See [`HANDSHAKE_SHARE`].
    pub handshake_share: u8,
    /// See [`TLS_DEADLINE`].
    pub tls_deadline: Duration,
    /// See [`CONNECT_DEADLINE`].
    pub connect_deadline: Duration,
    /// Most connections at once; by default what the open-files limit allows.
    pub max_connections: Option<usize>,
    /// See [`CONTROLLER_BUDGET`].
    pub controller_budget: usize,
    /// See [`LAUNCHER_BUDGET`].
    pub launcher_budget: usize,
    /// See [`HIGH_WATER`].
    pub high_water: usize,
    /// See [`crate::net::peer::PROGRESS_DEADLINE`].
    pub progress_deadline: Duration,
    /// See [`crate::net::peer::STALL_TIME`].
    pub stall_time: Duration,
    /// See [`DRAIN_DEADLINE`].
    pub drain_deadline: Duration,
    /// See [`proto_frames::limits::MAX_PAYLOAD_LEN`].
    pub max_payload: usize,
    /// How much is kept of the ends of instances.
    pub history: HistoryLimits,
    /// Until when it may send, where it is one of several; `None` = always.
    pub fence: Option<Arc<Fence>>,
    /// Under which term it leads, where it is one of several: peers that speak the native encoding are told.
    pub term: Option<Term>,
    /// The schedulers behind its name, where it is one of several.
    pub schedulers: Option<Schedulers>,
    /// How it has another of them lead, where it is one of several.
    pub hand_over: Option<Arc<dyn HandOver>>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            max_handshakes: MAX_HANDSHAKES,
            handshake_share: HANDSHAKE_SHARE,
            tls_deadline: TLS_DEADLINE,
            connect_deadline: CONNECT_DEADLINE,
            max_connections: None,
            controller_budget: CONTROLLER_BUDGET,
            launcher_budget: LAUNCHER_BUDGET,
            high_water: HIGH_WATER,
            progress_deadline: crate::net::peer::PROGRESS_DEADLINE,
            stall_time: crate::net::peer::STALL_TIME,
            drain_deadline: DRAIN_DEADLINE,
            max_payload: proto_frames::limits::MAX_PAYLOAD_LEN,
            history: HistoryLimits::default(),
            fence: None,
            term: None,
            schedulers: None,
            hand_over: None,
        }
    }
}

/// Largest ratio of overcommitment: no machine offers more than this many times what it has.
const MAX_RATIO: f64 = 1000.0;

/// Reads a ratio of overcommitment.
///
/// Used for the configuration's ratios and for the flags that set the same, so that both take the same numbers.
///
/// # Errors
/// What is expected instead, in words.
pub fn parse_ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio <= MAX_RATIO => Ok(ratio),
        _ => Err(format!("expected a number above 0, at most {MAX_RATIO}")),
    }
}
