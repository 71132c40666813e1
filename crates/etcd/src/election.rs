//! Who leads, and until when it may send: the election of one scheduler among several by a key of etcd, as a pure state
//! machine. It reads no clock, calls nothing, and draws no random number: what it wants of etcd it puts out as a
//! [`Call`], what came of that is put in.
//!
//! ```text
//! standby ── its lease granted, kept alive; reads the leader's key, and is told of its changes
//!    │ the key is gone
//!    ▼
//! campaign ── creates the key under its lease, if it is absent ──▶ leader: its term is (generation, create revision)
//!    │ another was faster, or nothing is known                        │ every TTL/6: keep-alive and read of the key
//!    ▼                                                                ▼
//! standby                                                  pauses, goes on, or steps down
//! ```
//!
//! # The fence
//!
//! A leader may send until ⅔ TTL after the *sending* of the last keep-alive and of the last read that succeeded, of the
//! older of both. etcd ends a lease no sooner than one TTL after it has handled a keep-alive, which is after that was
//! sent; so the key is there for ⅓ TTL after the fence, and no other can have made it. That etcd answered the keep-alive
//! is not enough, because one that has just lost its own election may answer; nor is the read, which does not say for
//! how long the key will be there.
//!
//! Once the fence has passed the leader pauses: it drops nothing, because a change of etcd's leader takes 1 to 3 s. It
//! goes on when a read shows its key again: as that was made once, at its revision, no other has led meanwhile. It steps
//! down on evidence (the key or the lease is gone, the key is another's, a write under its term was refused), or after
//! TTL + [`GIVE_UP_AFTER`] without an answer. A machine that has stepped down has ended: to lead again takes a
//! new one.
//!
//! Times are of a clock that goes on while the machine sleeps (CLOCK_BOOTTIME), since any moment.

mod standing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub use self::standing::{LeaderKey, Term};
use self::standing::{Leading, Standing};

/// How long a leader waits for etcd, beyond its TTL, before it steps down: a change of etcd's leader takes up to 3.3 s
/// as measured with the default settings of etcd 3.4, and a restart of a member a little more.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(5);

/// What one scheduler wants of etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Grant a lease of the TTL.
    Grant,
    /// Have this lease begin its time again.
    KeepAlive(i64),
    /// Read the leader's key, linearizably.
    Read,
    /// Create the leader's key under this lease, if it is absent; read it if it is not.
    Campaign(i64),
    /// End this lease, and the key with it.
    Revoke(i64),
}

/// What came of a [`Call`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A lease was granted: its number.
    Granted(i64),
    /// The lease lives.
    Alive,
    /// There is no such lease: also where the campaign's is meant.
    NoSuchLease,
    /// The leader's key as it is, and the generation of the cluster.
    Key(Option<LeaderKey>, u64),
    /// The leader's key was created: this scheduler leads under this term.
    Won(Term),
    /// It is not known what came of it.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Call etcd, and put in what comes of it with this number ([`Election::answered`]).
    Call(u64, Call),
    /// This scheduler leads from now on.
    Leads(Term),
    /// The fence has passed: nothing is sent.
    Pauses,
    /// It sends again.
    GoesOn,
    /// It does not lead any more, or will not: the last output.
    StepsDown(Why),
}

/// Why a scheduler steps down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The leader's key is gone.
    #[error("its key in etcd is gone")]
    KeyGone,
    /// The key is another's.
    #[error("another scheduler leads")]
    AnotherLeads,
    /// An operator has raised the generation, which its term is to have.
    #[error("a new generation has begun")]
    NewGeneration,
    /// etcd knows its lease no longer.
    #[error("its lease in etcd has ended")]
    LeaseEnded,
    /// etcd refused a write under its term.
    #[error("etcd refused a write under its term")]
    WriteRefused,
    /// etcd did not answer for so long.
    #[error("etcd has not answered for {0:?}")]
    Silence(Duration),
    /// It was requested.
    #[error("it was asked to")]
    Requested,
}

/// The election as one scheduler takes part in it.
#[derive(Debug)]
pub struct Election {
    ttl: Duration,
    standing: Standing,
    /// The leader's key as it was seen last.
    seen: Option<LeaderKey>,
    /// Calls that were not answered yet: what, and when it was put out. Forgotten after a TTL.
    sent: BTreeMap<u64, (Call, Duration)>,
    last_call: u64,
    /// When the next keep-alive and the next read are due.
    due: Duration,
    out: VecDeque<Output>,
}

impl Election {
    /// Begins as a standby. `ttl`: how long etcd keeps the key of a scheduler that it does not hear of; 2 s at least,
    /// because etcd grants no less.
    #[must_use]
    pub fn new(ttl: Duration, now: Duration) -> Self {
        let mut election = Self {
            ttl,
            standing: Standing::Standby { lease: None },
            seen: None,
            sent: BTreeMap::new(),
            last_call: 0,
            due: now,
            out: VecDeque::new(),
        };
        election.tick(now);
        election
    }

    /// Time has passed. To be called at [`Election::next_due`] at the latest; a call that comes late finds out that it
    /// is.
    pub fn tick(&mut self, now: Duration) {
        self.sent.retain(|_, (_, at)| *at + self.ttl > now);
        self.look_at_fence(now);
        if now < self.due {
            return;
        }
        let lease = match &self.standing {
            Standing::Standby { lease } => lease.map(|(number, _)| number),
            Standing::Campaign { lease, .. } | Standing::Leader(Leading { lease, .. }) => {
                Some(*lease)
            }
            Standing::Over => return,
        };
        // A leader renews twice as often: it has ⅔ of the TTL to be answered.
        let is_leader = matches!(self.standing, Standing::Leader(_));
        self.due = now + self.ttl / if is_leader { 6 } else { 3 };
        match lease {
            Some(lease) => self.call(now, Call::KeepAlive(lease)),
            None => self.call(now, Call::Grant),
        }
        self.call(now, Call::Read);
    }

    /// A call was answered, or failed. Calls that are not known any more are passed over.
    pub fn answered(&mut self, now: Duration, number: u64, answer: Answer) {
        let Some((call, sent)) = self.sent.remove(&number) else {
            return;
        };
        match (call, answer) {
            (Call::Grant, Answer::Granted(lease)) => self.granted(now, lease, sent),
            (Call::KeepAlive(lease), Answer::Alive) => self.alive(lease, sent),
            (Call::KeepAlive(lease) | Call::Campaign(lease), Answer::NoSuchLease) => {
                self.lease_ended(now, lease);
            }
            (Call::Campaign(lease), Answer::Won(term)) => self.won(now, lease, term, sent),
            (Call::Read | Call::Campaign(_), Answer::Key(key, generation)) => {
                self.read(now, key, generation, sent);
            }
            (Call::Campaign(lease), _) => self.campaign_failed(lease),
            _ => {}
        }
        self.look_at_fence(now);
    }

    /// The leader's key has changed, as the watch says; `None`: it is gone. A leader steps down only for what is newer
    /// than its term, so `revision` is that of the change.
    pub fn changed(&mut self, now: Duration, key: Option<LeaderKey>, revision: i64) {
        match &self.standing {
            Standing::Leader(leading) if revision > leading.term.create_revision => {
                let term = leading.term;
                match key {
                    None => self.step_down(now, Why::KeyGone),
                    Some(key) if key.create_revision != term.create_revision => {
                        self.step_down(now, Why::AnotherLeads);
                    }
                    Some(_) => {}
                }
            }
            Standing::Standby { .. } => {
                let is_gone = key.is_none();
                self.seen = key;
                if is_gone {
                    self.campaign(now);
                }
            }
            _ => {}
        }
    }

    /// A write under this scheduler's term was refused because the leader's key is not as it was.
    pub fn refused(&mut self, now: Duration) {
        if matches!(self.standing, Standing::Leader(_)) {
            self.step_down(now, Why::WriteRefused);
        }
    }

    /// Leads no longer, and ends its lease, so that another takes over at once.
    pub fn resign(&mut self, now: Duration) {
        if !matches!(self.standing, Standing::Over) {
            self.step_down(now, Why::Requested);
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Election::tick`] is to be called at the latest; `None` once it is over.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        match &self.standing {
            Standing::Over => None,
            Standing::Leader(leading) => {
                let fence = match leading.is_paused {
                    false => leading.fence(self.ttl),
                    true => leading.end(self.ttl),
                };
                Some(self.due.min(fence))
            }
            _ => Some(self.due),
        }
    }

    /// Until when this scheduler may send; `None` where it does not lead. A sender compares it with the clock
    /// before each message.
    #[must_use]
    pub fn sends_until(&self) -> Option<Duration> {
        match &self.standing {
            Standing::Leader(leading) => Some(leading.fence(self.ttl)),
            _ => None,
        }
    }

    /// The term under which this scheduler leads.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        match &self.standing {
            Standing::Leader(leading) => Some(leading.term),
            _ => None,
        }
    }

    /// The leader's key as it was seen last; `None` where none was.
    #[must_use]
    pub fn leader(&self) -> Option<&LeaderKey> {
        self.seen.as_ref()
    }

    fn call(&mut self, now: Duration, call: Call) {
        self.last_call += 1;
        self.sent.insert(self.last_call, (call, now));
        self.out.push_back(Output::Call(self.last_call, call));
    }

    fn granted(&mut self, now: Duration, number: i64, sent: Duration) {
        if let Standing::Standby { lease: None } = self.standing {
            let lease = Some((number, sent));
            self.standing = Standing::Standby { lease };
            // It may have been waiting for the lease alone.
            self.call(now, Call::Read);
        }
    }

    /// The lease lives for a TTL from `sent` at least.
    fn alive(&mut self, number: i64, sent: Duration) {
        let renewed = match &mut self.standing {
            Standing::Standby {
                lease: Some((lease, at)),
            }
            | Standing::Campaign { lease, at } => Some((*lease, at)),
            Standing::Leader(leading) => Some((leading.lease, &mut leading.kept_alive)),
            _ => None,
        };
        if let Some((lease, at)) = renewed
            && lease == number
        {
            *at = sent.max(*at);
        }
    }

    fn lease_ended(&mut self, now: Duration, number: i64) {
        match &self.standing {
            Standing::Leader(leading) if leading.lease == number => {
                self.step_down(now, Why::LeaseEnded);
            }
            Standing::Standby {
                lease: Some((lease, _)),
            }
            | Standing::Campaign { lease, .. }
                if *lease == number =>
            {
                self.standing = Standing::Standby { lease: None };
                self.call(now, Call::Grant);
            }
            _ => {}
        }
    }

    /// The leader's key is gone: tries to create it, where there is a lease for it.
    fn campaign(&mut self, now: Duration) {
        if let Standing::Standby {
            lease: Some((lease, at)),
        } = self.standing
        {
            self.standing = Standing::Campaign { lease, at };
            self.call(now, Call::Campaign(lease));
        }
    }

    /// It is not known whether the key was created: the next read shows.
    fn campaign_failed(&mut self, number: i64) {
        if let Standing::Campaign { lease, at } = self.standing
            && lease == number
        {
            let lease = Some((lease, at));
            self.standing = Standing::Standby { lease };
        }
    }

    /// The leader's key was created under this lease by a call that was sent then.
    fn won(&mut self, now: Duration, number: i64, term: Term, sent: Duration) {
        let (lease, at) = match self.standing {
            Standing::Campaign { lease, at }
            | Standing::Standby {
                lease: Some((lease, at)),
            } => (lease, at),
            _ => return,
        };
        if lease != number {
            return;
        }
        let leading = Leading {
            term,
            lease,
            kept_alive: at,
            read: sent,
            since: now,
            is_paused: false,
        };
        if now >= leading.fence(self.ttl) {
            // It took too long to be of use. What is so by now the next read shows.
            self.campaign_failed(number);
            return;
        }
        self.standing = Standing::Leader(leading);
        self.due = now;
        self.out.push_back(Output::Leads(term));
        self.tick(now);
    }

    /// What the leader's key was at some moment after `sent`.
    fn read(&mut self, now: Duration, key: Option<LeaderKey>, generation: u64, sent: Duration) {
        match &mut self.standing {
            Standing::Leader(leading) => match &key {
                // Read before it was known that this scheduler leads: it may be of before that.
                _ if sent < leading.since => {}
                None => self.step_down(now, Why::KeyGone),
                Some(key) if key.create_revision != leading.term.create_revision => {
                    self.step_down(now, Why::AnotherLeads);
                }
                Some(_) if generation != leading.term.generation => {
                    self.step_down(now, Why::NewGeneration);
                }
                Some(_) => leading.read = leading.read.max(sent),
            },
            Standing::Standby { .. } | Standing::Campaign { .. } => {
                self.found(now, key, generation, sent);
            }
            Standing::Over => {}
        }
    }

    /// The key as a scheduler reads it that does not lead.
    fn found(&mut self, now: Duration, key: Option<LeaderKey>, generation: u64, sent: Duration) {
        let own = match &self.standing {
            Standing::Standby {
                lease: Some((lease, _)),
            }
            | Standing::Campaign { lease, .. } => Some(*lease),
            _ => None,
        };
        self.seen.clone_from(&key);
        match key {
            // A campaign of its own whose answer was lost.
            Some(key) if Some(key.lease) == own => {
                let create_revision = key.create_revision;
                let term = Term {
                    generation,
                    create_revision,
                };
                self.won(now, key.lease, term, sent);
            }
            Some(_) => {
                if let Some(own) = own {
                    self.campaign_failed(own);
                }
            }
            None => {
                let is_campaign = |it: &(Call, Duration)| matches!(it.0, Call::Campaign(_));
                if !self.sent.values().any(is_campaign) {
                    self.campaign_failed(own.unwrap_or_default());
                    self.campaign(now);
                }
            }
        }
    }

    /// Pauses once the fence has passed, goes on once there is a new one, steps down when etcd has been silent for too
    /// long.
    fn look_at_fence(&mut self, now: Duration) {
        let Standing::Leader(leading) = &mut self.standing else {
            return;
        };
        let is_paused = now >= leading.fence(self.ttl);
        if now >= leading.end(self.ttl) {
            let silence = self.ttl + GIVE_UP_AFTER;
            self.step_down(now, Why::Silence(silence));
        } else if is_paused != leading.is_paused {
            leading.is_paused = is_paused;
            self.out.push_back(match is_paused {
                true => Output::Pauses,
                false => Output::GoesOn,
            });
        }
    }

    /// The lease is revoked last: by then this scheduler may not send any more.
    fn step_down(&mut self, now: Duration, why: Why) {
        let lease = match &self.standing {
            Standing::Standby { lease } => lease.map(|(number, _)| number),
            Standing::Campaign { lease, .. } | Standing::Leader(Leading { lease, .. }) => {
                Some(*lease)
            }
            Standing::Over => return,
        };
        self.standing = Standing::Over;
        if let Some(lease) = lease {
            self.call(now, Call::Revoke(lease));
        }
        self.out.push_back(Output::StepsDown(why));
    }
}
