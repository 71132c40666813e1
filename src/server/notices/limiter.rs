//! How many lines of a class are written in a window of time, and the sum of those that are not. Pure: the time is
//! handed in, lines come out.
//!
//! Each class has a limit of its own: hundreds of dropped claims do not hide the loss of a node. What is not written is
//! counted. For most classes, the sum of a window has a count for each peer that the lines are about, with the first of
//! its lines. For vital classes (connected, left, cut off, master) the sum names *every* peer: one that connects and
//! disconnects as fast as it can has one name in the sum of a window, and no number of peers hides another.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use proto_frames::Uuid;

use super::MAX_LINE_LEN;
use crate::printable::Printable;

/// How long lines are counted before what was not written is summed up.
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// Lines of one class written in a window: as much as a person reads. The core's lock may be held while they are
/// written.
pub(super) const MAX_LINES: u32 = 20;

/// Lines of one vital class, and of commands, written in a window, before the rest is written as names: 27 to a line.
pub(super) const MAX_VITAL_LINES: u32 = 100;

/// Peers by which the lines of one class are summed up in a window; the others are one sum. Each holds a line.
pub(super) const MAX_SUMS: usize = 64;

/// Peers that the sum of one vital class names in a window: more than can do a TLS handshake in that time. Each takes
/// some 60 bytes.
pub(super) const MAX_NAMED: usize = 16_384;

/// Whom a line is about, by which the sum of a window tells what it counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Who {
    /// No peer: it is about the scheduler, or about several.
    NoPeer,
    /// A peer that is, or was, connected. By its UUID, so that connections which follow each other are one.
    Peer(Uuid),
    /// A client that did not get as far as CONNECT, so that no UUID is known.
    Address(IpAddr),
}

/// What a line is about. Each has its own limit. The order, in which most vital ones come first, is that of the sums at
/// the end of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Class {
    /// A peer was let in.
    Connected,
    /// A peer has left, or a lost node was forgotten.
    Left,
    /// A peer's connection failed.
    Ended,
    /// A peer was cut off by the scheduler.
    Cut,
    /// A peer was not let in, or was told to go.
    Refused,
    /// Connections of one UUID that replace each other.
    Twins,
    /// A node was lost, was given up or is not back, or was lost with STARTs in doubt.
    Lost,
    /// A node is short of memory, or something has happened about that.
    Pressure,
    /// A controller became master.
    Master,
    /// A connection whose handshake made no progress was ended, so that others can go on.
    TurnedAway,
    /// A connection was refused because its kind or its certificate has as many as it may.
    Full,
    /// What a controller or an operator asked for.
    Command,
    /// A peer does not read, or reads again.
    Stalled,
    /// A frame that its sender may not send, or not for others.
    NotPermitted,
    /// A frame of a kind that is not known.
    UnknownKind,
    /// A payload that cannot be used.
    Malformed,
    /// A frame for a peer that is not there.
    NoSuchPeer,
    /// A START that failed here.
    Failed,
    /// A binding of a UUID that is not remembered.
    NotBound,
    /// A claim that was dropped.
    Dropped,
    /// Instances whose claims are not known.
    ClaimsUnknown,
    /// A StartFailure that belongs to no START.
    Unmatched,
    /// A batch that was given up.
    Batch,
    /// A configuration that was left out, in part.
    Configuration,
    /// The scheduler refused itself something that must not be.
    Defect,
    /// What was there at the start.
    Restored,
    /// The disk of the state directory.
    Disk,
}

impl Class {
    /// Whether sums name every peer that its lines are about, up to [`MAX_NAMED`].
    pub(super) const fn is_vital(self) -> bool {
        matches!(
            self,
            Self::Connected
                | Self::Left
                | Self::Ended
                | Self::Cut
                | Self::Refused
                | Self::Lost
                | Self::Master
        )
    }

    /// What the field `event` of its lines says.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "peer_connected",
            Self::Left => "peer_left",
            Self::Ended => "peer_connection_failed",
            Self::Cut => "peer_cut_off",
            Self::Refused => "peer_refused",
            Self::TurnedAway => "connection_turned_away",
            Self::Full => "connections_full",
            Self::Twins => "uuid_used_twice",
            Self::Lost => "node_lost",
            Self::Pressure => "node_pressure",
            Self::Master => "master_changed",
            Self::Command => "command_received",
            Self::Stalled => "peer_stalled",
            Self::NotPermitted => "frame_not_permitted",
            Self::UnknownKind => "frame_kind_unknown",
            Self::Malformed => "frame_malformed",
            Self::NoSuchPeer => "peer_not_connected",
            Self::Failed => "start_failed",
            Self::NotBound => "uuid_not_bound",
            Self::Dropped => "claim_dropped",
            Self::ClaimsUnknown => "claims_unknown",
            Self::Unmatched => "failure_unmatched",
            Self::Batch => "batch_given_up",
            Self::Configuration => "configuration_ignored",
            Self::Defect => "transition_refused",
            Self::Restored => "state_restored",
            Self::Disk => "store_state_changed",
        }
    }

    /// What a number of them is.
    const fn words(self) -> &'static str {
        match self {
            Self::Connected => "connections of peers",
            Self::Left => "departures of peers",
            Self::Ended => "failed connections of peers",
            Self::Cut => "peers cut off",
            Self::Refused => "peers refused",
            Self::TurnedAway => "connections ended whose handshake made no progress",
            Self::Full => "connections refused because too many are there",
            Self::Twins => "connections of peers that replace each other",
            Self::Lost => "nodes lost with STARTs in doubt",
            Self::Pressure => "nodes short of memory, or what came of that",
            Self::Master => "promotions of controllers",
            Self::Command => "commands",
            Self::Stalled => "peers that stopped or began to read",
            Self::NotPermitted => "frames not permitted",
            Self::UnknownKind => "frames of unknown kind",
            Self::Malformed => "unusable payloads",
            Self::NoSuchPeer => "frames for peers that are not connected",
            Self::Failed => "STARTs failed",
            Self::NotBound => "bindings of UUIDs not remembered",
            Self::Dropped => "claims dropped",
            Self::ClaimsUnknown => "nodes with instances whose claims are not known",
            Self::Unmatched => "StartFailures without a START",
            Self::Batch => "batches given up",
            Self::Configuration => "parts of configurations left out",
            Self::Defect => "illegal transitions refused",
            Self::Restored => "restorations",
            Self::Disk => "silences of the disk",
        }
    }

    /// A command is written as often as a vital line: each is one deliberate act of a person or a controller.
    const fn max_lines(self) -> u32 {
        if self.is_vital() || matches!(self, Self::Command) {
            MAX_VITAL_LINES
        } else {
            MAX_LINES
        }
    }

    /// How many peers are told apart in the sum of a window.
    const fn max_sums(self) -> usize {
        if self.is_vital() { MAX_NAMED } else { MAX_SUMS }
    }
}

/// The level of a line, and of a sum the highest among its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::server) enum Weight {
    /// It is news.
    News,
    /// An operator should look at it.
    Warning,
}

/// A sum, as one line for the log: in a vital class of all peers or as many as a line has room for, else of one peer or
/// of all further ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summed {
    pub(super) class: Class,
    pub(super) weight: Weight,
    /// The whole line, without what the log puts in front.
    pub(super) text: String,
}

/// What is to be written after a line was handed in: sums of a window that has ended, then the line itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admission {
    /// To be written before it: the window before is over.
    pub(super) sums: Vec<Summed>,
    /// The line, if it is written; else it was counted.
    pub(super) line: Option<String>,
}

/// The current window and what was counted in it. Holds at most [`MAX_SUMS`] sums a class with one line each, or
/// [`MAX_NAMED`] names in a vital one.
#[derive(Debug, Default)]
pub(super) struct Limiter {
    /// When the window began; `None` until the first line after the last window.
    begun: Option<Instant>,
    classes: BTreeMap<Class, Counted>,
}

/// A class in the current window: how many lines were written, and what was counted beyond.
#[derive(Debug, Default)]
struct Counted {
    /// Lines of this window that were written.
    written: u32,
    /// What was not written, by whom it is about.
    sums: BTreeMap<Who, Sum>,
    /// Lines about more peers than are told apart: one sum for all of those.
    further: Option<Sum>,
}

/// Lines that were not written: of one peer, or of all further ones.
#[derive(Debug)]
struct Sum {
    count: u64,
    /// The highest among its lines.
    weight: Weight,
    /// The first of them; empty in a vital class, where names matter.
    first: String,
}

impl Limiter {
    /// Takes a line in. It is to be written if its class has had fewer than its limit in this window, else it is
    /// counted. A line that comes after the window has ended closes that first and begins another.
    ///
    /// The line is formatted only where it is written or is the first of its sum.
    pub(super) fn admit(
        &mut self,
        class: Class,
        who: Who,
        weight: Weight,
        line: &dyn Display,
        now: Instant,
    ) -> Admission {
        let is_over = |begun: Instant| now.saturating_duration_since(begun) >= WINDOW;
        let sums = if self.begun.is_none_or(is_over) {
            let sums = self.close();
            self.begun = Some(now);
            sums
        } else {
            Vec::new()
        };
        let counted = self.classes.entry(class).or_default();
        let is_written = counted.written < class.max_lines();
        if is_written {
            counted.written += 1;
        } else {
            counted.add(class, who, weight, line);
        }
        Admission {
            sums,
            line: is_written.then(|| one_line(line)),
        }
    }

    /// When the current window is to be closed: at its end, if anything was counted in it. `None` while there is
    /// nothing to sum up.
    pub(super) fn due(&self) -> Option<Instant> {
        let has_sums = self
            .classes
            .values()
            .any(|counted| !counted.sums.is_empty());
        self.begun.filter(|_| has_sums).map(|begun| begun + WINDOW)
    }

    /// Ends the window: what was counted in it, summed up, class by class in the order of [`Class`]. The next line
    /// begins another window.
    pub(super) fn close(&mut self) -> Vec<Summed> {
        self.begun = None;
        let mut lines = Vec::new();
        for (class, counted) in std::mem::take(&mut self.classes) {
            if class.is_vital() {
                counted.name_all(class, &mut lines);
            } else {
                counted.sum_up(class, &mut lines);
            }
        }
        lines
    }
}

impl Counted {
    /// Counts a line under the peer that it is about; beyond [`MAX_SUMS`] or [`MAX_NAMED`] peers under all further
    /// ones.
    fn add(&mut self, class: Class, who: Who, weight: Weight, line: &dyn Display) {
        let new = || Sum {
            count: 0,
            weight,
            first: if class.is_vital() {
                String::new()
            } else {
                one_line(line)
            },
        };
        let has_room = self.sums.len() < class.max_sums();
        let sum = match self.sums.get_mut(&who) {
            Some(sum) => sum,
            None if has_room => self.sums.entry(who).or_insert_with(new),
            None => self.further.get_or_insert_with(new),
        };
        sum.count += 1;
        sum.weight = sum.weight.max(weight);
    }

    /// `312 more claims dropped (4cb19522-…), the first: node … no longer lists …`, a line for each peer.
    fn sum_up(self, class: Class, lines: &mut Vec<Summed>) {
        let words = class.words();
        let mut line = |sum: &Sum, of: &dyn Display| {
            let (count, first) = (sum.count, &sum.first);
            lines.push(Summed {
                class,
                weight: sum.weight,
                text: format!("{count} more {words}{of}, the first: {first}"),
            });
        };
        for (who, sum) in &self.sums {
            match who {
                Who::NoPeer => line(sum, &""),
                who => line(sum, &format_args!(" ({who})")),
            }
        }
        if let Some(sum) = &self.further {
            line(sum, &" (further peers)");
        }
    }

    /// `312 more peers refused: UUID, UUID (5 times), …`, in as many lines as it takes. Lines are filled up to
    /// [`MAX_LINE_LEN`], each with the total in front.
    fn name_all(self, class: Class, lines: &mut Vec<Summed>) {
        let all = || self.sums.values().chain(&self.further);
        let Some(weight) = all().map(|sum| sum.weight).max() else {
            return;
        };
        let total: u64 = all().map(|sum| sum.count).sum();
        let begin = format!("{total} more {}: ", class.words());
        let mut names: Vec<String> = Vec::with_capacity(self.sums.len() + 1);
        for (who, sum) in &self.sums {
            names.push(match sum.count {
                1 => who.to_string(),
                count => format!("{who} ({count} times)"),
            });
        }
        if let Some(further) = &self.further {
            names.push(format!("and {} of further peers", further.count));
        }
        let mut text = begin.clone();
        for name in names {
            if text.len() > begin.len() {
                if text.len() + name.len() > MAX_LINE_LEN {
                    let full = std::mem::replace(&mut text, begin.clone());
                    lines.push(Summed {
                        class,
                        weight,
                        text: full,
                    });
                } else {
                    text.push_str(", ");
                }
            }
            text.push_str(&name);
        }
        lines.push(Summed {
            class,
            weight,
            text,
        });
    }
}

/// A line that may repeat what a peer sent: printable, and not longer than [`MAX_LINE_LEN`] or so.
///
/// A cut line ends in `…`, at a character's boundary.
fn one_line(line: &dyn Display) -> String {
    let line = Printable::new(line);
    if line.len() <= MAX_LINE_LEN {
        return line.to_string();
    }
    let end = (0..=MAX_LINE_LEN).rfind(|at| line.is_char_boundary(*at));
    format!("{}…", &line[..end.unwrap_or(0)])
}

impl Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer => f.write_str("no peer"),
            Self::Peer(uuid) => uuid.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
