//! Several schedulers behind one name: their elections and their writes, which are the real ones, and what lies between
//! them and a model of etcd.
//!
//! Each is a process ([`Process`]) with a clock of its own. Its election ([`Election`]) and its records ([`Records`]) put
//! out calls ([`calls`]), which reach [`etcd`] and come back late, twice, or never. The one that leads has the core that
//! the rest of the world knows as the scheduler; one that does not know yet that another leads goes on with its own
//! ([`deposed`]), and nothing of what it wants to say may leave.

mod calls;
mod deposed;
mod etcd;
mod faults;
mod journal;
mod peers;
mod process;
mod trips;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use ciao_etcd::Error;
use ciao_etcd::election::{Election, LeaderKey, Output};
use ciao_scheduler::cluster::{Candidate, Keys, Left, Limits, Records, Written};
use ciao_scheduler::server::{Entries, SharedDocument, sim_support};
use fastrand::Rng;
use sched_core::{DiskState, Input};

use self::calls::{Reply, Request};
use self::deposed::Deposed;
use self::etcd::Etcd;
use self::journal::{Journal, Next};
pub(crate) use self::process::Process;
use self::process::{Done, Task};
use crate::agenda::Event;
use crate::facts::Fact;
use crate::network::Server;
use crate::observer::Observer;
use crate::world::World;

/// The TTL of the leader's key.
const TTL: Duration = Duration::from_secs(3);

/// How long a leader waits for etcd, beyond its TTL.
const PATIENCE: Duration = TTL.saturating_add(ciao_etcd::election::GIVE_UP_AFTER);

/// Longest time until a process that has stepped down has become a new one, in ms.
const AGAIN_MS: u64 = 1_000;

/// Longest time that a process is away after a crash, in ms.
const AWAY_MS: u64 = 8_000;

/// All schedulers, and their etcd.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) processes: Vec<Process>,
    deposed: Vec<Deposed>,
    /// Keys and values of which a scheduler was told that they are written.
    recorded: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Writes since then, of which any may have been carried out.
    tried: Vec<Entries>,
    limits: Limits,
    pub(crate) seen: Seen,
}

/// What came about in a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// Take-overs.
    pub(crate) leaders: u64,
    /// Leaders that were replaced while they ran.
    pub(crate) deposed: u64,
    /// Times that a leader's fence was passed.
    pub(crate) pauses: u64,
    /// Take-overs that found a write of which no scheduler was told that it is carried out.
    pub(crate) unacknowledged: u64,
    /// Schedulers whose term a node refused.
    pub(crate) refused: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.leaders += other.leaders;
        self.deposed += other.deposed;
        self.pauses += other.pauses;
        self.unacknowledged += other.unacknowledged;
        self.refused += other.refused;
    }
}

/// Something that happens between schedulers and etcd.
#[derive(Debug)]
pub(crate) enum ClusterEvent {
    /// A call reaches etcd.
    Request(Server, u64, Request),
    /// An answer reaches a scheduler, or a call has failed.
    Answer(Server, u64, Result<Reply, Error>),
    /// A change of the leader's key reaches a scheduler.
    Watched(Server, Option<LeaderKey>, i64),
    /// An election is due.
    Due(Server),
    /// A write is tried again.
    Writes(Server),
    /// A process that has stepped down becomes a new one.
    Ends(Server),
    /// A process is started.
    Starts(usize),
    /// A process that was stopped goes on.
    GoesOn(Server),
    /// A lease of etcd may be over.
    LeaseEnds,
}

impl Cluster {
    pub(crate) fn draw(chance: &mut Rng) -> Self {
        let count = chance.usize(2..=3);
        let small = Limits {
            ops: 3,
            bytes: 6_000,
            value: 1_500,
        };
        let limits = [Limits::default(), small][chance.usize(..2)];
        let is_apart = chance.bool();
        let process = |place| Process {
            ahead: Duration::from_secs(u64::from(is_apart) * chance.u64(..3_600)),
            ..Process::new(place, chance.u32(95..=105))
        };
        Self {
            processes: (0..count).map(process).collect(),
            etcd: Etcd::new(Keys::new("sim")),
            deposed: Vec::new(),
            recorded: BTreeMap::new(),
            tried: Vec::new(),
            limits,
            seen: Seen::default(),
        }
    }

    /// The process, while it is that one.
    pub(crate) fn process(&self, server: Server) -> Option<&Process> {
        let process = self.processes.get(server.place)?;
        (process.server == server && process.election.is_some()).then_some(process)
    }

    fn process_mut(&mut self, server: Server) -> Option<&mut Process> {
        let process = self.processes.get_mut(server.place)?;
        (process.server == server && process.election.is_some()).then_some(process)
    }

    /// Until when a process stands still, if it does.
    pub(crate) fn stopped(&self, server: Server, now: Instant) -> Option<Instant> {
        let process = self.process(server)?;
        process.stopped.filter(|until| *until > now)
    }
}

impl World {
    /// By how much the clock of the scheduler that leads is ahead.
    pub(crate) fn clock_offset(&self) -> Duration {
        let process = self
            .cluster
            .as_ref()
            .and_then(|it| it.process(self.network.serving));
        process.map_or(Duration::ZERO, |it| it.ahead)
    }

    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        self.cluster.as_mut().expect("there are several schedulers")
    }

    /// A process is started, and stands by.
    pub(crate) fn process_starts(&mut self, place: usize) {
        let elapsed = self.elapsed();
        let process = &mut self.cluster_mut().processes[place];
        if process.election.is_some() {
            return;
        }
        process.server.life += 1;
        let server = process.server;
        process.election = Some(Election::new(TTL, process.clock(elapsed)));
        self.note(format_args!("{server:?} stands by"));
        self.settle(server);
    }

    /// A process is gone, with its connections; what it has sent goes on its way.
    pub(crate) fn process_ends(&mut self, server: Server) {
        let cluster = self.cluster_mut();
        if cluster.process(server).is_none() {
            return;
        }
        let process = &mut cluster.processes[server.place];
        let (place, life, pace) = (server.place, server.life, process.pace);
        let (mute, deaf, cut_off) = (process.mute, process.deaf, process.cut_off);
        let ahead = process.ahead;
        *process = Process {
            server: Server { place, life },
            ahead,
            mute,
            deaf,
            cut_off,
            ..Process::new(place, pace)
        };
        cluster.deposed.retain(|it| it.server != server);
        self.note(format_args!("{server:?} ends"));
        if self.network.serving == server && self.core.take().is_some() {
            let at = self.elapsed();
            if let Some(behaviour) = &mut self.behaviour {
                behaviour.scheduler_crashes(at);
            }
            self.observer = Observer::default();
        }
        self.lose_sessions_of(server);
    }

    pub(crate) fn cluster_happens(&mut self, event: ClusterEvent) {
        let server = match event {
            ClusterEvent::Request(server, number, request) => {
                return self.reaches_etcd(server, number, request);
            }
            ClusterEvent::LeaseEnds => return self.leases_end(),
            ClusterEvent::Starts(place) => return self.process_starts(place),
            ClusterEvent::Ends(server) => {
                self.process_ends(server);
                return self.process_starts(server.place);
            }
            ClusterEvent::Answer(server, ..)
            | ClusterEvent::Watched(server, ..)
            | ClusterEvent::Due(server)
            | ClusterEvent::Writes(server)
            | ClusterEvent::GoesOn(server) => server,
        };
        let now = self.now;
        if let Some(until) = self.cluster_mut().stopped(server, now) {
            return self.agenda.put(until, Event::Cluster(event));
        }
        let elapsed = self.elapsed();
        let Some(process) = self.cluster_mut().process_mut(server) else {
            return;
        };
        let clock = process.clock(elapsed);
        let Some(election) = &mut process.election else {
            return;
        };
        match event {
            ClusterEvent::Answer(_, number, answer) => process.calls.answer(number, answer),
            ClusterEvent::Watched(_, key, revision) => election.changed(clock, key, revision),
            ClusterEvent::Writes(_) => {
                if let Some(journal) = &mut process.journal {
                    journal.goes_on();
                }
            }
            _ => {}
        }
        election.tick(clock);
        self.settle(server);
    }

    /// Does what a process wants until it waits.
    pub(crate) fn settle(&mut self, server: Server) {
        loop {
            self.follow_election(server);
            self.begin_write(server);
            let all = self.poll_tasks(server);
            if all.is_empty() {
                break;
            }
            for done in all {
                self.is_done(server, done);
            }
        }
        self.send_calls(server);
        self.set_due(server);
        self.pump_all(server);
    }

    /// Moves the fence first, then does what the election puts out.
    fn follow_election(&mut self, server: Server) {
        let (elapsed, limits) = (self.elapsed(), self.cluster_mut().limits);
        loop {
            let Some(process) = self.cluster_mut().process_mut(server) else {
                return;
            };
            let clock = process.clock(elapsed);
            let Some(election) = &mut process.election else {
                return;
            };
            if process.calls.was_refused() {
                election.refused(clock);
            }
            process
                .fence
                .set(election.sends_until().unwrap_or_default());
            process.calls.set(clock, election.term().is_some());
            let Some(output) = election.poll_output() else {
                return;
            };
            let calls = process.calls.clone();
            match output.clone() {
                Output::Call(number, call) => {
                    let candidate = Candidate {
                        keys: Keys::new("sim"),
                        address: server.place.to_string(),
                        ttl: TTL,
                    };
                    process.tasks.push(Task(Box::pin(async move {
                        let (answer, _) = candidate.carry_out(calls, call).await;
                        Done::Answered(number, answer)
                    })));
                }
                Output::Leads(term) => {
                    process.term = Some(term);
                    process.tasks.push(Task(Box::pin(async move {
                        let keys = Keys::new("sim");
                        let records = Records::new(calls.clone(), calls, keys, term, PATIENCE);
                        let mut written = Written::within(limits);
                        let left = records.take_over(&mut written).await;
                        Done::TakenOver(Rc::new(records), left, written)
                    })));
                }
                Output::StepsDown(_) => {
                    let at = self.within_ms(AGAIN_MS);
                    let event = ClusterEvent::Ends(server);
                    self.agenda.put(at, Event::Cluster(event));
                }
                Output::Pauses | Output::GoesOn => {}
            }
            if output == Output::Pauses {
                self.cluster_mut().seen.pauses += 1;
            }
            if !matches!(output, Output::Call(..)) {
                self.note(format_args!("{server:?}: {output:?}"));
            }
        }
    }

    fn begin_write(&mut self, server: Server) {
        let is_serving = self.network.serving == server;
        let cluster = self.cluster_mut();
        let Some(process) = cluster.process_mut(server) else {
            return;
        };
        let Some(journal) = &mut process.journal else {
            return;
        };
        let Some((next, mut written)) = journal.next() else {
            return;
        };
        let records = Rc::clone(&journal.records);
        let task: Pin<Box<dyn Future<Output = Done>>> = match next {
            Next::Batch(entries) => {
                if is_serving {
                    self.cluster_mut().tried.push(entries.clone());
                }
                Box::pin(async move {
                    let wrote = records.write(&mut written, entries).await;
                    Done::Wrote(wrote, written)
                })
            }
            Next::Nodes(text) => Box::pin(async move {
                let nodes = SharedDocument::Nodes;
                let wrote = records.write_document(&mut written, nodes, text.as_bytes());
                let wrote = wrote.await;
                Done::WroteNodes(text, wrote, written)
            }),
        };
        if let Some(process) = self.cluster_mut().process_mut(server) {
            process.tasks.push(Task(task));
        }
    }

    /// Whatever waits for etcd looks for its answers.
    fn poll_tasks(&mut self, server: Server) -> Vec<Done> {
        let mut all = Vec::new();
        let Some(process) = self.cluster_mut().process_mut(server) else {
            return all;
        };
        let mut context = Context::from_waker(Waker::noop());
        process
            .tasks
            .retain_mut(|task| match task.0.as_mut().poll(&mut context) {
                Poll::Ready(done) => {
                    all.push(done);
                    false
                }
                Poll::Pending => true,
            });
        all
    }

    fn is_done(&mut self, server: Server, done: Done) {
        let elapsed = self.elapsed();
        let Some(process) = self.cluster_mut().process_mut(server) else {
            return;
        };
        let clock = process.clock(elapsed);
        match done {
            Done::Answered(number, answer) => {
                if let Some(election) = &mut process.election {
                    election.answered(clock, number, answer);
                    election.tick(clock);
                }
            }
            Done::TakenOver(_, Err(why), _) => {
                if let Some(election) = &mut process.election {
                    election.resign(clock);
                }
                self.note(format_args!("{server:?} cannot take over: {why}"));
            }
            // It has stepped down meanwhile, and is about to end.
            Done::TakenOver(..) if process.term() != process.term => {}
            Done::TakenOver(records, Ok(left), written) => {
                process.journal = Some(Journal::new(records, written));
                self.takes_over(server, &left);
            }
            Done::Wrote(wrote, written) => {
                if let Some(journal) = &mut process.journal {
                    journal.written = Some(written);
                }
                self.wrote(server, wrote);
            }
            Done::WroteNodes(text, wrote, written) => {
                if let Some(journal) = &mut process.journal {
                    journal.written = Some(written);
                    if wrote.is_err() {
                        let pause = journal.failed();
                        journal.keep_nodes(sim_support::read_nodes(&text));
                        let event = Event::Cluster(ClusterEvent::Writes(server));
                        self.agenda.put(self.now + pause, event);
                    }
                }
            }
        }
    }

    /// A process leads, and has read what the one before has left.
    fn takes_over(&mut self, server: Server, left: &Left) {
        let before = self.network.serving;
        if let Some(core) = self.core.take() {
            let deposed = Deposed::new(before, core);
            let cluster = self.cluster_mut();
            cluster.deposed.push(deposed);
            cluster.seen.deposed += 1;
        }
        if self.schedulers > 0 {
            self.facts.push(Fact::SchedulerCrashed { is_durable: true });
        }
        self.observer = Observer::default();
        self.network.serving = server;
        let cluster = self.cluster_mut();
        let found: BTreeMap<_, _> = left.records.iter().cloned().collect();
        let mut may_be = vec![cluster.recorded.clone()];
        may_be.extend(
            cluster
                .tried
                .drain(..)
                .map(|it| with(&cluster.recorded, it)),
        );
        let is_whole = may_be.contains(&found);
        cluster.seen.leaders += 1;
        cluster.seen.unacknowledged += u64::from(found != cluster.recorded);
        cluster.recorded = found;
        self.facts.push(Fact::TookOver { is_whole });
        let nodes = sim_support::read_nodes(&String::from_utf8_lossy(&left.nodes));
        let records = sim_support::records(&left.records);
        self.disk.holds(nodes, records);
        self.note(format_args!("{server:?} takes over"));
        self.scheduler_starts();
    }

    /// A write has come to an end, or it is not known whether it has.
    fn wrote(&mut self, server: Server, wrote: Result<(), String>) {
        let is_serving = self.network.serving == server;
        let Some(process) = self.cluster_mut().process_mut(server) else {
            return;
        };
        let Some(journal) = &mut process.journal else {
            return;
        };
        let Err(why) = wrote else {
            let (batch, ticket) = journal.wrote();
            let was_refused = journal.refused.take().is_some();
            if is_serving {
                let entries = sim_support::entries(&batch);
                let cluster = self.cluster_mut();
                cluster.recorded = with(&cluster.recorded, entries);
                cluster.tried.clear();
                self.disk.wrote(batch);
            }
            if was_refused {
                self.hand_in_by(server, Input::Disk(DiskState::Writes));
            }
            return self.hand_in_by(server, Input::Committed(ticket));
        };
        let pause = journal.failed();
        let is_news = journal.refused.as_ref() != Some(&why);
        journal.refused = Some(why.clone());
        let at = self.now + pause;
        let event = ClusterEvent::Writes(server);
        self.agenda.put(at, Event::Cluster(event));
        if is_news {
            self.note(format_args!("{server:?} cannot write: {why}"));
            let state = DiskState::Refuses(why.as_str().into());
            self.hand_in_by(server, Input::Disk(state));
        }
    }

    /// Sets the timer of a process's election.
    fn set_due(&mut self, server: Server) {
        let (now, elapsed) = (self.now, self.elapsed());
        let Some(process) = self.cluster_mut().process_mut(server) else {
            return;
        };
        let Some(due) = process.election.as_ref().and_then(Election::next_due) else {
            return;
        };
        // The first moment at which its clock shows that.
        let real = (due * 100).div_f64(f64::from(process.pace)) + Duration::from_micros(1);
        let at = now + real.saturating_sub(elapsed).max(Duration::from_micros(1));
        if process.due.is_none_or(|set| set <= now || at < set) {
            process.due = Some(at);
            self.agenda
                .put(at, Event::Cluster(ClusterEvent::Due(server)));
        }
    }
}

/// What there is once this is written.
fn with(there: &BTreeMap<Vec<u8>, Vec<u8>>, entries: Entries) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut there = there.clone();
    for (key, value) in entries {
        match value {
            Some(value) => there.insert(key, value),
            None => there.remove(&key),
        };
    }
    there
}
