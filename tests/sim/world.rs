//! The cluster as a whole: its parts, its clock, and what happens next.
//!
//! What each part does stands with its subject: `scheduler`, `network`, `launcher`, `machine`, `controller`. Everything
//! that takes time is an event in the agenda; the core and the launchers say themselves when they want to be woken.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent;
use fastrand::Rng;
use proto_frames::Encoding;
use sched_core::{Input, Scheduler};

use crate::agenda::{Agenda, Event};
use crate::behaviour::{Behaviour, Measure};
use crate::cluster::Cluster;
use crate::controller::{Controller, Sent};
use crate::disk::Disk;
use crate::facts::Fact;
use crate::features::Feature;
use crate::jobs::SentArray;
use crate::liar::{Liar, Lies};
use crate::machine::Machine;
use crate::names;
use crate::network::{Link, Network, Peer, Server};
use crate::observer::Observer;
use crate::scheduler::Sight;
use crate::settings::Settings;
use crate::trace::Trace;

/// Longest time until a peer dials again, in ms.
const DIAL_MS: u64 = 1_500;

/// Things that may happen at one moment; more of them never end.
const MAX_AT_ONCE: u32 = 20_000;

/// A cluster.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) chance: Rng,
    began: Instant,
    pub(crate) now: Instant,
    at_once: u32,
    pub(crate) agenda: Agenda,
    pub(crate) network: Network,
    /// The scheduler, while it runs.
    pub(crate) core: Option<Scheduler>,
    /// All of them and their etcd, where there are several; `core` is that of the one that leads.
    pub(crate) cluster: Option<Cluster>,
    /// Turns that all schedulers have had.
    pub(crate) turns: u64,
    /// Schedulers there have been.
    pub(crate) schedulers: u64,
    /// Sessions there have been.
    pub(crate) sessions: u64,
    pub(crate) sight: Vec<Sight>,
    pub(crate) observer: Observer,
    pub(crate) disk: Disk,
    pub(crate) machines: Vec<Machine>,
    pub(crate) controllers: Vec<Controller>,
    pub(crate) liars: Vec<Liar>,
    pub(crate) lies: Lies,
    /// Every START that a controller has sent.
    pub(crate) starts: BTreeMap<u32, Sent>,
    /// Every array that a controller has sent.
    pub(crate) arrays: BTreeMap<u32, SentArray>,
    pub(crate) starts_taken: u64,
    /// The machine that each instance was given to last.
    pub(crate) placed: BTreeMap<u32, usize>,
    /// Ends that a scheduler has heard of: on which machine, their numbers there, and which scheduler was the last.
    pub(crate) ends_seen: BTreeMap<(usize, u64), u64>,
    /// How often each peer decided to dial.
    dials: BTreeMap<Peer, u64>,
    /// Queues to be looked at once the core has no more to say.
    pub(crate) look_at: Vec<Link>,
    /// What happened and no check has seen.
    pub(crate) facts: Vec<Fact>,
    /// Whether nothing goes wrong by itself any more.
    pub(crate) is_calm: bool,
    /// Whether jobs end by themselves all the same.
    pub(crate) do_jobs_end: bool,
    pub(crate) trace: Trace,
    /// Where the run is measured.
    pub(crate) behaviour: Option<Behaviour>,
}

impl World {
    /// A cluster drawn from a seed, in which everybody has just been started.
    pub(crate) fn new(seed: u64, measure: Measure, more: &[Feature]) -> Self {
        let mut chance = Rng::with_seed(seed);
        let now = Instant::now();
        let settings = Settings::draw(&mut chance, more);
        let count = chance.usize(1..=5);
        let machines: Vec<Machine> = (0..count)
            .map(|number| Machine::draw(&mut chance, number, &settings, now))
            .collect();
        let controllers = (0..chance.usize(1..=3)).map(|_| {
            Controller::new([Encoding::Native, Encoding::Gob][usize::from(chance.u8(..4) == 0)])
        });
        let mut world = Self {
            settings,
            controllers: controllers.collect(),
            liars: Vec::new(),
            lies: Lies::default(),
            chance,
            began: now,
            now,
            at_once: 0,
            agenda: Agenda::default(),
            network: Network::default(),
            core: None,
            cluster: None,
            turns: 0,
            schedulers: 0,
            sessions: 0,
            sight: vec![Sight::default(); machines.len()],
            observer: Observer::default(),
            disk: Disk::default(),
            machines,
            starts: BTreeMap::new(),
            arrays: BTreeMap::new(),
            starts_taken: 0,
            placed: BTreeMap::new(),
            ends_seen: BTreeMap::new(),
            dials: BTreeMap::new(),
            look_at: Vec::new(),
            facts: Vec::new(),
            is_calm: false,
            do_jobs_end: true,
            trace: Trace::new(),
            behaviour: Behaviour::new(measure),
        };
        let settings = format!("{:?}", world.settings);
        world.note(format_args!("{settings}"));
        world.schedulers_start(seed);
        for number in 0..world.controllers.len() {
            world.controller_starts(number);
        }
        for at in 0..world.machines.len() {
            world.launcher_starts(at);
        }
        world.liars_come();
        world
    }

    fn schedulers_start(&mut self, seed: u64) {
        if !self.settings.has(Feature::Schedulers) {
            return self.scheduler_starts();
        }
        // Its own, so that it changes nothing in other runs.
        let cluster = Cluster::draw(&mut Rng::with_seed(seed.rotate_left(16)));
        let count = cluster.processes.len();
        self.cluster = Some(cluster);
        for place in 0..count {
            self.process_starts(place);
        }
    }

    /// Every other cluster has one or two launchers that lie.
    fn liars_come(&mut self) {
        let count = self.chance.usize(..4).saturating_sub(1);
        if self.settings.has(Feature::Liars) {
            self.liars.resize_with(count, Liar::default);
        }
        for number in 0..self.liars.len() {
            self.dial(Peer::Liar(number));
        }
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.began
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now - self.began, what);
    }

    /// When the next thing happens; something always does, since launchers report.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (due, _) = self.next()?;
        Some(due.max(self.now))
    }

    /// Lets the next thing happen.
    pub(crate) fn step(&mut self) {
        let Some((due, next)) = self.next() else {
            return;
        };
        self.pass_until(due);
        self.at_once += 1;
        assert!(self.at_once < MAX_AT_ONCE, "this never ends: {next:?}");
        match next {
            Next::Event => {
                if let Some(event) = self.agenda.take() {
                    self.happens(event);
                }
            }
            Next::Scheduler => self.scheduler_ticks(),
            Next::Deposed(server) => self.hand_in_by(server, Input::Tick),
            Next::Launcher(at) => self.tell_agent(at, agent::Input::Tick),
        }
    }

    /// Time passes, and what was due meanwhile is late.
    pub(crate) fn pass_until(&mut self, at: Instant) {
        if at > self.now {
            self.now = at;
            self.at_once = 0;
        }
    }

    /// What is due first; of several things the same one always.
    fn next(&self) -> Option<(Instant, Next)> {
        let event = self.agenda.due().map(|at| (at, Next::Event));
        let core = self.core.as_ref().and_then(Scheduler::poll_timeout);
        let cluster = self.cluster.as_ref();
        let stopped = cluster.and_then(|it| it.stopped(self.network.serving, self.now));
        let core = core.map(|at| (stopped.map_or(at, |it| it.max(at)), Next::Scheduler));
        let deposed = self.deposed_due();
        let deposed = deposed.map(|(at, server)| (at, Next::Deposed(server)));
        let launchers = self.machines.iter().filter_map(|machine| {
            let launcher = machine.launcher.as_ref()?;
            Some((
                launcher.agent.poll_timeout()?,
                Next::Launcher(machine.number),
            ))
        });
        let all = event
            .into_iter()
            .chain(core)
            .chain(deposed)
            .chain(launchers);
        all.min_by_key(|(at, _)| *at)
    }

    fn happens(&mut self, event: Event) {
        if let Some(link) = event.of_scheduler()
            && let Some(until) = self.stands_still(link)
        {
            return self.agenda.put(until, event);
        }
        match event {
            Event::Dial(peer, dial) => self.dials(peer, dial),
            Event::Arrives(link) => self.arrives(link),
            Event::ReachesPeer(link) => self.reaches_peer(link),
            Event::ReachesScheduler(link) => self.reaches_scheduler(link),
            Event::PeerLearns(link) => self.peer_learns(link),
            Event::SchedulerLearns(link) => self.scheduler_learns(link),
            Event::Reads(link) => self.reads(link),
            Event::IsReadFrom(link) => self.is_read_from(link),
            Event::Breaks(link) => self.break_link(link),
            Event::Stalls(link) => self.stalls(link),
            Event::Begins {
                machine,
                instance,
                spawn,
            } => self.begins(machine, instance, spawn),
            Event::Ends {
                machine,
                instance,
                spawn,
                cause,
            } => self.ends(machine, instance, spawn, cause),
            Event::LimitEnds {
                machine,
                instance,
                spawn,
            } => self.limit_ends(machine, instance, spawn),
            Event::LeaseEnds(at) => self.lease_ends(at),
            Event::Hears {
                machine,
                launcher,
                input,
            } => {
                if self.machines[machine].launchers == launcher {
                    self.tell_agent(machine, input);
                }
            }
            Event::LauncherReturns(at) => self.launcher_starts(at),
            Event::ControllerReturns(number) => self.controller_starts(number),
            Event::SchedulerReturns => self.scheduler_starts(),
            Event::Committed { scheduler } => self.disk_writes(scheduler),
            Event::Cluster(event) => self.cluster_happens(event),
        }
    }

    /// A peer decides to dial, in a moment.
    pub(crate) fn dial(&mut self, peer: Peer) {
        let dial = self.dials.entry(peer).or_default();
        *dial += 1;
        let dial = *dial;
        let at = self.within_ms(DIAL_MS);
        self.agenda.put(at, Event::Dial(peer, dial));
    }

    fn dials(&mut self, peer: Peer, dial: u64) {
        if self.dials.get(&peer) != Some(&dial) {
            return;
        }
        if !self.finds_scheduler() {
            return self.dial(peer);
        }
        match peer {
            Peer::Machine(at) => self.launcher_dials(at),
            Peer::Controller(number) => self.controller_dials(number),
            Peer::Liar(number) => self.liar_dials(number),
        }
    }

    /// The controller that the scheduler takes commands from.
    pub(crate) fn master(&self) -> Option<usize> {
        let core = self.core.as_ref()?;
        let heartbeat = core.heartbeat(1, 0);
        let (uuid, _) = heartbeat.controllers.first()?;
        let by_uuid = |&number: &usize| names::controller_uuid(number) == *uuid;
        (0..self.controllers.len()).find(by_uuid)
    }
}

impl Drop for World {
    /// Who looks at a failure wants to know what led to it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.trace.print();
        }
    }
}

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Event,
    Scheduler,
    /// One of several that was deposed and does not know it.
    Deposed(Server),
    Launcher(usize),
}
