//! What lies between schedulers and etcd: calls and answers that are late, lost, or come twice.

use std::time::{Duration, Instant};

use ciao_etcd::{Compare, Error, Txn};

use super::calls::Request;
use super::{ClusterEvent, TTL};
use crate::agenda::Event;
use crate::network::Server;
use crate::world::World;

/// How long a call of the election is waited for, and one of the records.
const ELECTION_TIME: Duration = Duration::from_millis(TTL.as_millis() as u64 / 10);
const RECORDS_TIME: Duration = Duration::from_secs(2);

/// Longest time that a call or an answer is under way, as a rule and at worst.
const USUAL_MS: u64 = 8;
const LATE_MS: u64 = 4_000;

impl World {
    /// What a process has called for goes on its way, and fails at its deadline, whatever becomes of it.
    pub(super) fn send_calls(&mut self, server: Server) {
        let now = self.now;
        let Some(process) = self.cluster_mut().process(server) else {
            return;
        };
        let is_mute = process.mute.is_some_and(|until| until > now);
        for (number, request) in process.calls.take() {
            let answer = |error| ClusterEvent::Answer(server, number, Err(error));
            if let Request::Pause(time) = request {
                let woken = answer(Error::Unanswered("a pause is over".to_owned()));
                self.agenda.put(now + time, Event::Cluster(woken));
                continue;
            }
            let deadline = match &request {
                Request::Txn(txn) if is_of_election(txn) => ELECTION_TIME,
                Request::Txn(_) | Request::Get(_) | Request::List(_) => RECORDS_TIME,
                _ => ELECTION_TIME,
            };
            let late = answer(Error::Unanswered("deadline".to_owned()));
            self.agenda.put(now + deadline, Event::Cluster(late));
            let is_twice = self.is_troubled() && self.chance.u8(..) < 12;
            for _ in 0..=u8::from(is_twice) {
                let at = self.trip();
                if !is_mute {
                    let event = ClusterEvent::Request(server, number, request.clone());
                    self.agenda.put(at, Event::Cluster(event));
                }
            }
        }
    }

    /// A call reaches etcd.
    pub(super) fn reaches_etcd(&mut self, server: Server, number: u64, request: Request) {
        let now = self.now;
        let etcd = &mut self.cluster_mut().etcd;
        if etcd.lost_until.is_some_and(|until| until > now) {
            return;
        }
        let answer = etcd.handle(now, server, request);
        let at = self.trip();
        let is_lost = self.is_troubled() && self.chance.u8(..) < 4;
        let process = self.cluster_mut().process(server);
        let is_deaf = process.is_some_and(|it| it.deaf.is_some_and(|until| until > now));
        if !is_lost && !is_deaf {
            let event = ClusterEvent::Answer(server, number, answer);
            self.agenda.put(at, Event::Cluster(event));
        }
        self.follow_etcd();
    }

    /// Leases whose time is over end.
    pub(super) fn leases_end(&mut self) {
        let now = self.now;
        self.cluster_mut().etcd.end_leases(now);
        self.follow_etcd();
    }

    /// Tells those that watch, and looks at leases again in time.
    pub(super) fn follow_etcd(&mut self) {
        let etcd = &mut self.cluster_mut().etcd;
        let facts = std::mem::take(&mut etcd.facts);
        let changes = std::mem::take(&mut etcd.changes);
        let next = etcd.next_end();
        self.facts.extend(facts);
        for (key, revision) in changes {
            self.note(format_args!("the leader's key is {key:?}, at {revision}"));
            for place in 0..self.cluster_mut().processes.len() {
                let (at, now) = (self.trip(), self.now);
                let process = &mut self.cluster_mut().processes[place];
                let lacks = [process.deaf, process.blind];
                if lacks.iter().flatten().any(|until| *until > now) {
                    continue;
                }
                // In the order in which they were made.
                let at = process.watched.map_or(at, |last| last.max(at));
                process.watched = Some(at);
                let event = ClusterEvent::Watched(process.server, key.clone(), revision);
                self.agenda.put(at, Event::Cluster(event));
            }
        }
        let Some(next) = next else {
            return;
        };
        let now = self.now;
        let at = next.max(now + Duration::from_millis(1));
        let looked_at = &mut self.cluster_mut().etcd.looked_at;
        if looked_at.is_none_or(|set| set <= now || at < set) {
            *looked_at = Some(at);
            self.agenda.put(at, Event::Cluster(ClusterEvent::LeaseEnds));
        }
    }

    /// When what is sent to etcd or from it arrives: mostly within milliseconds.
    fn trip(&mut self) -> Instant {
        let is_late = self.is_troubled() && self.chance.u8(..) < 6;
        self.within_ms(if is_late { LATE_MS } else { USUAL_MS })
    }

    fn is_troubled(&self) -> bool {
        !self.is_calm
    }
}

/// Whether it reads the leader's key, lists a scheduler, or campaigns; records are written under a term.
fn is_of_election(txn: &Txn) -> bool {
    let campaigns = matches!(txn.compare.first(), Some(Compare::Created(_, 0)));
    txn.compare.len() < 2 || campaigns
}
