//! Which accepted connections may do their handshake, and which have to leave so that others can.
//!
//! Any host that reaches the port can open connections, with or without a certificate. So that those that do not get on with
//! their handshake keep no other out:
//!
//! - A connection takes none of the places for handshakes until its peer has sent a byte; it waits, which costs little.
//! - No source has more than a share of the places, and the next place goes to the source that has the fewest.
//! - Those that wait are limited as well. If there are more, one of the source that has most of them is turned away: its
//!   oldest that has sent nothing, else its oldest. So a source cannot crowd out another. Of sources that have as many,
//!   it is the one that has waited longest.
//! - Under pressure, that is while a connection waits for a place, deadlines are short ([`super::limits`]). Seats tell.
//!
//! Many launchers behind one address are not slowed down by that: its share is as many handshakes as one machine can do
//! at once, what waits is in order of arrival, and no connection is turned away that gets on with it.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use super::limits::WAITING_PER_PLACE;

/// Where a connection comes from, as far as it counts: an IPv4 address, or the network of 64 bits of an IPv6 address,
/// which is the least that a host is commonly given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        // A listener for both families shows IPv4 addresses as IPv6 ones.
        match address.to_canonical() {
            IpAddr::V4(_) => Self(address.to_canonical()),
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// What a connection that waits is told, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has a place for its handshake.
    Place,
    /// It has to leave.
    Leave,
}

/// What a peer has sent when its connection is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstByte {
    /// Nothing yet.
    ToCome,
    /// At least a byte.
    There,
}

/// All connections that are no sessions yet.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<Waiting>,
    pressure: watch::Sender<bool>,
}

/// One of them; gives everything back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    gate: Arc<Gate>,
    source: Source,
    id: u64,
    verdict: oneshot::Receiver<Verdict>,
}

impl Gate {
    /// So many handshakes at once, of which a source may have so many percent.
    pub(super) fn new(places: usize, share_percent: u8) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Waiting::new(places, share_percent)),
            pressure: watch::Sender::new(false),
        })
    }

    /// A connection was accepted. Where too many wait, another one has to leave.
    pub(super) fn enter(self: &Arc<Self>, source: Source, first_byte: FirstByte) -> Seat {
        let (sender, verdict) = oneshot::channel();
        let id = self.change(|state| state.enter(source, first_byte, sender));
        Seat {
            gate: Arc::clone(self),
            source,
            id,
            verdict,
        }
    }

    /// Whether any connection waits, that could be turned away.
    pub(super) fn has_waiting(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Turns one away that waits.
    pub(super) fn turn_one_away(&self) {
        self.change(Waiting::turn_one_away);
    }

    /// Says whether a connection is to be accepted and there are as many as may be.
    pub(super) fn set_crowded(&self, is_crowded: bool) {
        self.change(|state| state.is_crowded = is_crowded);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        state.give_places();
        let is_under_pressure = state.is_under_pressure();
        // Under the lock, so that the latest is what stays.
        self.pressure.send_if_modified(|was| {
            let changes = *was != is_under_pressure;
            *was = is_under_pressure;
            changes
        });
        result
    }
}

impl Seat {
    /// The first byte has come.
    pub(super) fn first_byte(&self) {
        self.gate
            .change(|state| state.first_byte(self.source, self.id));
    }

    /// Waits for a place, or until it has to leave.
    pub(super) async fn verdict(&mut self) -> Verdict {
        (&mut self.verdict).await.unwrap_or(Verdict::Leave)
    }

    /// Waits for pressure; ends at once if there is any.
    pub(super) fn pressure(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut pressure = self.gate.pressure.subscribe();
        async move {
            if pressure.wait_for(|is_there| *is_there).await.is_err() {
                // No connection is left that could press.
                std::future::pending().await
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.gate.change(|state| state.leave(self.source, self.id));
    }
}

/// Who is there, by source; what is derived from that is kept in step by [`Waiting::of_source`] alone.
#[derive(Debug)]
struct Waiting {
    places: usize,
    /// Places that one source may have.
    share: usize,
    /// Connections that may wait.
    room: usize,
    last_id: u64,
    sources: BTreeMap<Source, Crowd>,
    /// Sources by how many of theirs wait, and of as many by whose oldest came last.
    by_waiting: BTreeSet<(usize, Reverse<u64>, Source)>,
    /// Sources of which one may have the next place: by the places they have, then by who came first.
    by_turn: BTreeSet<(usize, u64, Source)>,
    /// Those that wait, with a first byte or without one.
    waiting: usize,
    /// Those of them that have sent a byte.
    ready: usize,
    /// Places taken.
    taken: usize,
    is_crowded: bool,
}

/// The connections of one source, by the order in which they came.
#[derive(Debug, Default)]
struct Crowd {
    silent: BTreeMap<u64, oneshot::Sender<Verdict>>,
    ready: BTreeMap<u64, oneshot::Sender<Verdict>>,
    /// Those that have a place.
    placed: BTreeSet<u64>,
}

impl Crowd {
    fn waiting(&self) -> usize {
        self.silent.len() + self.ready.len()
    }

    /// The oldest that waits.
    fn oldest(&self) -> Option<u64> {
        let silent = self.silent.keys().next();
        let ready = self.ready.keys().next();
        silent.into_iter().chain(ready).min().copied()
    }

    fn is_empty(&self) -> bool {
        self.waiting() == 0 && self.placed.is_empty()
    }
}

impl Waiting {
    fn new(places: usize, share_percent: u8) -> Self {
        Self {
            places,
            share: (places.saturating_mul(usize::from(share_percent)) / 100).max(1),
            room: places.saturating_mul(WAITING_PER_PLACE),
            last_id: 0,
            sources: BTreeMap::new(),
            by_waiting: BTreeSet::new(),
            by_turn: BTreeSet::new(),
            waiting: 0,
            ready: 0,
            taken: 0,
            is_crowded: false,
        }
    }

    fn enter(
        &mut self,
        source: Source,
        first_byte: FirstByte,
        verdict: oneshot::Sender<Verdict>,
    ) -> u64 {
        if self.waiting >= self.room {
            self.turn_one_away();
        }
        self.last_id += 1;
        let id = self.last_id;
        self.of_source(source, |crowd| match first_byte {
            FirstByte::ToCome => drop(crowd.silent.insert(id, verdict)),
            FirstByte::There => drop(crowd.ready.insert(id, verdict)),
        });
        id
    }

    fn first_byte(&mut self, source: Source, id: u64) {
        self.of_source(source, |crowd| {
            // It may have been turned away at the same moment.
            if let Some(verdict) = crowd.silent.remove(&id) {
                crowd.ready.insert(id, verdict);
            }
        });
    }

    fn leave(&mut self, source: Source, id: u64) {
        self.of_source(source, |crowd| {
            crowd.silent.remove(&id);
            crowd.ready.remove(&id);
            crowd.placed.remove(&id);
        });
    }

    fn turn_one_away(&mut self) {
        let Some(&(_, _, source)) = self.by_waiting.last() else {
            return;
        };
        let oldest = self.of_source(source, |crowd| {
            crowd.silent.pop_first().or_else(|| crowd.ready.pop_first())
        });
        if let Some((_, verdict)) = oldest {
            // One that is just leaving by itself does not hear of it.
            let _ = verdict.send(Verdict::Leave);
        }
    }

    fn give_places(&mut self) {
        while self.taken < self.places {
            let Some(&(_, _, source)) = self.by_turn.first() else {
                return;
            };
            let next = self.of_source(source, |crowd| {
                let (id, verdict) = crowd.ready.pop_first()?;
                crowd.placed.insert(id);
                Some(verdict)
            });
            if let Some(verdict) = next {
                // One that is just leaving gives its place back at once.
                let _ = verdict.send(Verdict::Place);
            }
        }
    }

    /// Whether somebody waits who could go on if others did, or left.
    fn is_under_pressure(&self) -> bool {
        self.ready > 0 || self.waiting > self.room / 2 || self.is_crowded
    }

    /// Changes what is there of one source, and all that is derived from it.
    fn of_source<T>(&mut self, source: Source, change: impl FnOnce(&mut Crowd) -> T) -> T {
        let crowd = self.sources.entry(source).or_default();
        if let Some(oldest) = crowd.oldest() {
            let key = (crowd.waiting(), Reverse(oldest), source);
            self.by_waiting.remove(&key);
        }
        if let Some((&first, _)) = crowd.ready.first_key_value() {
            self.by_turn.remove(&(crowd.placed.len(), first, source));
        }
        self.waiting -= crowd.waiting();
        self.ready -= crowd.ready.len();
        self.taken -= crowd.placed.len();
        let result = change(crowd);
        self.waiting += crowd.waiting();
        self.ready += crowd.ready.len();
        self.taken += crowd.placed.len();
        if let Some(oldest) = crowd.oldest() {
            let key = (crowd.waiting(), Reverse(oldest), source);
            self.by_waiting.insert(key);
        }
        if let Some((&first, _)) = crowd.ready.first_key_value()
            && crowd.placed.len() < self.share
        {
            self.by_turn.insert((crowd.placed.len(), first, source));
        }
        if crowd.is_empty() {
            self.sources.remove(&source);
        }
        result
    }
}
