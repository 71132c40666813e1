//! Which accepted connections may do their handshake, and which have to leave so that others can.
//!
//! Any host that reaches the port can open connections, with or without a certificate. So that those that do not get on
//! with their handshake keep no other out:
//!
//! - A connection takes none of the places for handshakes until its peer has sent a byte; it waits, which costs little.
//! - No source has more than a share of the places, and the next place goes to the source that has the fewest.
//! - Those that wait are limited as well. If there are more, one of the source that has most of them is turned away:
//!   its oldest that has sent nothing, else its oldest. So a source cannot crowd out another. Of sources that have as
//!   many, it is the one that has waited longest.
//! - Under pressure, that is while a connection waits for a place, deadlines are short ([`super::limits`]). Seats tell.
//!
//! Many launchers behind one address are not slowed down by that: its share is as many handshakes as one machine can do
//! at once, what waits is in order of arrival, and no connection is turned away that gets on with it.
//!
//! What happens to one connection, in order: [`Gate::enter`] seats it when it is accepted; [`Seat::first_byte`] is
//! called once its peer has sent something; [`Seat::verdict`] ends with a place or with the order to leave; dropping
//! the [`Seat`], at the end of the handshake or of the attempt, gives everything back. The gate holds no socket and
//! reads no clock: `accept` and `handshake` do, and keep the deadlines.
//!
//! Every change takes `O(log sources + log connections of the source)`, plus the places that it gives away, under one
//! lock that no `await` crosses.

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

/// What a connection that waits is told, once. The answer is given at most once for each connection, over the channel
/// of its [`Seat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has a place for its handshake, until its [`Seat`] is dropped.
    Place,
    /// It has to leave. It is to be closed without a handshake, so that another can be accepted.
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

/// All connections that are no sessions yet. One for the daemon: SSNTP, HTTP and the Placement API over HTTPS share the
/// places, because they share the processors.
#[derive(Debug)]
pub(super) struct Gate {
    /// Who waits and who has a place. Held for one change, never across an `await`.
    state: Mutex<Waiting>,
    /// Whether there is pressure, as every waiting connection's task watches it.
    pressure: watch::Sender<bool>,
}

/// One of them; gives everything back when it is dropped. Held by the task that does the handshake, and dropped as soon
/// as that has ended, whichever way.
#[derive(Debug)]
pub(super) struct Seat {
    gate: Arc<Gate>,
    source: Source,
    /// Its number, unique for the life of the gate, ascending in order of arrival.
    id: u64,
    /// Ready once it has a place or has to leave; stays pending until then.
    verdict: oneshot::Receiver<Verdict>,
}

impl Gate {
    /// So many handshakes at once, of which a source may have so many percent. `share_percent` is rounded down to whole
    /// places, but is never less than one place.
    pub(super) fn new(places: usize, share_percent: u8) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(Waiting::new(places, share_percent)),
            pressure: watch::Sender::new(false),
        })
    }

    /// A connection was accepted. Where too many wait, another one has to leave. Never waits. The new connection itself
    /// is never the one that is turned away: it is not among those that wait yet.
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

    /// Whether any connection waits, that could be turned away. The listener asks before it accepts one connection more
    /// than may be: without anyone to turn away, it waits instead.
    pub(super) fn has_waiting(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Turns one away that waits. Called when the limit of connections is reached: the one that leaves makes room for
    /// the one just accepted.
    pub(super) fn turn_one_away(&self) {
        self.change(Waiting::turn_one_away);
    }

    /// Says whether a connection is to be accepted and there are as many as may be. That is pressure as well:
    /// connections in the kernel's backlog wait for a connection to end, although none waits at the gate.
    pub(super) fn set_crowded(&self, is_crowded: bool) {
        self.change(|state| state.is_crowded = is_crowded);
    }

    /// The one way in which anything changes: whatever it was, free places are given away and the pressure is derived
    /// again before the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut state = self.state.lock();
        let result = change(&mut state);
        state.give_places();
        let is_under_pressure = state.is_under_pressure();
        // Under the lock, so that the latest is what stays.
        self.pressure.send_if_modified(|was| {
            let changes = *was != is_under_pressure;
            // Only a change wakes the tasks that watch it.
            *was = is_under_pressure;
            changes
        });
        result
    }
}

impl Seat {
    /// The first byte has come. Does nothing for a connection that has been turned away or has a place.
    pub(super) fn first_byte(&self) {
        self.gate
            .change(|state| state.first_byte(self.source, self.id));
    }

    /// Waits for a place, or until it has to leave. Cancel safe: the answer stays in the channel until it is returned.
    /// Not to be awaited again after that.
    pub(super) async fn verdict(&mut self) -> Verdict {
        (&mut self.verdict).await.unwrap_or(Verdict::Leave)
    }

    /// Waits for pressure; ends at once if there is any. The future owns what it watches, so that a handshake can wait
    /// for it beside `self.verdict`.
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

/// Who is there, by source; what is derived from that is kept in step by [`Waiting::of_source`] alone. Ids ascend in
/// order of arrival, so that the smallest of a set is the oldest.
#[derive(Debug)]
struct Waiting {
    /// Handshakes that may be under way at once.
    places: usize,
    /// Places that one source may have.
    share: usize,
    /// Connections that may wait.
    room: usize,
    last_id: u64,
    /// Only sources that have a connection here; an empty one is removed, so that this is bounded by `room + places`.
    sources: BTreeMap<Source, Crowd>,
    /// Sources by how many of theirs wait, and of as many by whose oldest came last. The last entry is the one to be
    /// turned away from: most waiting, and of as many the one whose oldest came first (`Reverse`, so that the smaller
    /// id sorts last).
    by_waiting: BTreeSet<(usize, Reverse<u64>, Source)>,
    /// Sources of which one may have the next place: by the places they have, then by who came first. Only those that
    /// have one with a first byte and are below their share.
    by_turn: BTreeSet<(usize, u64, Source)>,
    /// Those that wait, with a first byte or without one.
    waiting: usize,
    /// Those of them that have sent a byte.
    ready: usize,
    /// Places taken.
    taken: usize,
    /// Whether a connection cannot be accepted because there are as many as may be: see [`Gate::set_crowded`].
    is_crowded: bool,
}

/// The connections of one source, by the order in which they came. Each connection is in exactly one of the three, or
/// was turned away and is in none.
#[derive(Debug, Default)]
struct Crowd {
    /// Nothing has come from them yet: they take no place, and are the first to leave.
    silent: BTreeMap<u64, oneshot::Sender<Verdict>>,
    /// A byte has come: they wait for a place.
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

    /// Where as many wait as may, one leaves first, so that there are never more than `room`.
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

    /// From now on it may be given a place.
    fn first_byte(&mut self, source: Source, id: u64) {
        self.of_source(source, |crowd| {
            // It may have been turned away at the same moment.
            if let Some(verdict) = crowd.silent.remove(&id) {
                crowd.ready.insert(id, verdict);
            }
        });
    }

    /// Takes a connection out, wherever it is: it may wait, have a place, or have been turned away before.
    fn leave(&mut self, source: Source, id: u64) {
        self.of_source(source, |crowd| {
            crowd.silent.remove(&id);
            crowd.ready.remove(&id);
            crowd.placed.remove(&id);
        });
    }

    /// Of the source that has most waiting: its oldest that has sent nothing, else its oldest. Nothing happens if none
    /// waits.
    fn turn_one_away(&mut self) {
        let Some(&(_, _, source)) = self.by_waiting.last() else {
            return;
        };
        let oldest = self.of_source(source, |crowd| {
            crowd.silent.pop_first().or_else(|| crowd.ready.pop_first())
        });
        if let Some((_, verdict)) = oldest {
            // Its task may be ending by itself at this moment: no task takes the answer then, and the seat is dropped
            // anyway.
            let _ = verdict.send(Verdict::Leave);
        }
    }

    /// Gives free places away, one at a time, to the source with the fewest, and within a source in order of arrival.
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
            // A send that fails is of a connection whose task is ending: its seat is dropped next, which gives the
            // place away again.
            if let Some(verdict) = next {
                // `leave` waits for the lock that is held here, so that the place is counted until then.
                let _ = verdict.send(Verdict::Place);
            }
        }
    }

    /// Whether a connection waits that could go on if others went on or left.
    fn is_under_pressure(&self) -> bool {
        self.ready > 0 || self.waiting > self.room / 2 || self.is_crowded
    }

    /// Changes what is there of one source, and everything that is derived from it: both orders and all counts. The old
    /// keys are taken out before the change, because they cannot be computed after it.
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
        // The same sums over what is there now.
        self.waiting += crowd.waiting();
        self.ready += crowd.ready.len();
        self.taken += crowd.placed.len();
        if let Some(oldest) = crowd.oldest() {
            let key = (crowd.waiting(), Reverse(oldest), source);
            self.by_waiting.insert(key);
        }
        // A source at its share is not in `by_turn`, even if one of its connections waits.
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
