//! The scheduler: the real core, driven as `server::hub` drives it, on a simulated disk and network.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ciao_scheduler::server::sim_support;
use proto_frames::payload::{Delete, Payload as _, PhaseName, Scheduling};
use proto_frames::{Encoding, Frame, Kind};
use sched_core::{
    Action, ClusterConfiguration, Config, Departure, DiskState, Input, Notice, RecordKey,
    Scheduler, SessionId,
};

use crate::agenda::Event;
use crate::behaviour::Behaviour;
use crate::controller;
use crate::disk::Trouble;
use crate::facts::{Fact, News};
use crate::names::{self, OBSERVER, SCHEDULER};
use crate::network::Peer;
use crate::observer::Observer;
use crate::world::World;

/// How long the scheduler is away after a crash, at most, in ms.
const AWAY_MS: u64 = 8_000;

/// Longest time that a write takes, in ms.
const COMMIT_MS: u64 = 60;

/// Unix time at the beginning of every run: 2026-11-21, as good as any.
const UNIX_START: Duration = Duration::from_secs(1_795_219_200);

/// What the scheduler can know of a machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sight {
    /// Whether this scheduler has had a STATS since it last knew nothing of the machine.
    is_listed: bool,
    /// What the latest STATS listed.
    pub(crate) has: BTreeSet<u32>,
    /// Since when no connection stands.
    lost: Option<Instant>,
}

impl World {
    pub(crate) fn scheduler_starts(&mut self) {
        let settings = &self.settings;
        let mut config = Config::new(SCHEDULER);
        config.cpu_ratio = settings.cpu_ratio;
        config.in_doubt_time = settings.in_doubt_time;
        config.recovery_window = settings.recovery_window;
        config.durable = settings.is_durable;
        let unix = UNIX_START + self.elapsed() + self.clock_offset();
        config.start_unix_ms = unix.as_millis() as u64;
        if settings.is_durable {
            config.known_nodes = self.disk.nodes();
            config.restored = self.disk.restored();
        }
        self.schedulers += 1;
        self.sight.fill(Sight::default());
        let mut configuration = ClusterConfiguration::default();
        configuration.rules.policy.preemption = settings.preemption;
        configuration.rules.policy.relocation = settings.relocation;
        self.core = Some(Scheduler::new(config, configuration, self.now));
        self.note(format_args!("the scheduler starts"));
        let at = self.elapsed();
        if let Some(behaviour) = &mut self.behaviour {
            behaviour.scheduler_starts(at);
        }
        let on_disk = self.disk.records().filter_map(|(key, _)| match key {
            RecordKey::Instance(id) => names::instance_of(id),
            _ => None,
        });
        let restored = on_disk.collect();
        self.facts.push(Fact::SchedulerStarted { restored });
        self.take_actions();
        self.observe();
    }

    pub(crate) fn scheduler_crashes(&mut self) {
        if self.cluster.is_some() {
            return self.process_crashes(self.network.serving);
        }
        if self.core.take().is_none() {
            return;
        }
        self.note(format_args!("the scheduler crashes"));
        let at = self.elapsed();
        if let Some(behaviour) = &mut self.behaviour {
            behaviour.scheduler_crashes(at);
        }
        let is_durable = self.settings.is_durable;
        self.facts.push(Fact::SchedulerCrashed { is_durable });
        self.observer = Observer::default();
        self.lose_all_sessions();
        self.disk.crash(&mut self.chance);
        let back = self.within_ms(AWAY_MS);
        self.agenda.put(back, Event::SchedulerReturns);
    }

    /// A frame reaches the scheduler.
    pub(crate) fn scheduler_receives(&mut self, peer: Peer, session: SessionId, frame: Frame) {
        let (kind, origin) = (frame.kind, peer);
        self.note(format_args!("the scheduler gets {kind} from {origin:?}"));
        let told = frame.clone();
        let starts = self.started();
        // Before it is handled: whether a START is safe depends on what was known then.
        let taken = match kind {
            Kind::START => self.see_start(&told),
            _ => None,
        };
        let input = sim_support::input(session, frame);
        match peer {
            Peer::Machine(machine) => self.see_report(machine, &told),
            Peer::Liar(liar) if !self.see_lie(liar, &told) => return,
            Peer::Liar(_) => {}
            Peer::Controller(_) => {
                if kind == Kind::DELETE {
                    self.see_delete(&told);
                }
                self.see_array(&told);
            }
        }
        let before = self.facts.len();
        self.hand_in(input);
        if self.started() > starts
            && let Some(taken) = taken
        {
            self.starts_taken += 1;
            // Ahead of what came of it.
            self.facts.insert(before, taken);
        }
    }

    /// What a START is, once the scheduler has taken it in.
    fn see_start(&mut self, frame: &Frame) -> Option<Fact> {
        let start = proto_frames::payload::peek::start(&frame.payload).ok()?;
        let instance = names::instance_of(&start.instance_uuid)?;
        let is_of_batch = start.scheduling.is_some_and(|it| it.batch.is_some());
        let is_unseen = self.machines.iter().any(|machine| {
            let at = machine.number;
            let may_run = machine.has(instance) || self.network.has_start_for(at, instance);
            may_run && self.is_out_of_sight(at)
        });
        let is_unseen = is_unseen && !self.is_kept_safe(instance);
        Some(Fact::Taken {
            instance,
            is_unseen,
            is_of_batch,
        })
    }

    fn see_delete(&mut self, frame: &Frame) {
        let delete = Delete::decode(&frame.payload).expect("controllers write DELETE well");
        if let Some(instance) = names::instance_of(&delete.instance_uuid) {
            self.facts.push(Fact::DeleteTaken { instance });
        }
    }

    /// Whether the scheduler has to know better than to start an instance that it may not see: it is managed, and if lost
    /// not one of those that are only reported.
    fn is_kept_safe(&mut self, instance: u32) -> bool {
        let restarts = self.starts.get(&instance).is_some_and(|sent| {
            let scheduling = sent.start.scheduling.as_ref();
            scheduling.is_some_and(Scheduling::restarts_on_node_loss)
        });
        let row = self.ask_for(instance);
        row.is_some_and(|row| match row.life.as_str() {
            "" => false,
            life => restarts || life != PhaseName::Lost.as_str(),
        })
    }

    fn started(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.counters().starts)
    }

    /// What a launcher's frame tells the scheduler, as facts.
    fn see_report(&mut self, machine: usize, frame: &Frame) {
        if frame.kind == Kind::STATS {
            self.sight[machine].is_listed = true;
            let stats = proto_frames::payload::peek::stats(&frame.payload);
            let stats = stats.expect("launchers write STATS well");
            for end in &stats.ended {
                self.see_end(machine, end.seq, &end.instance_uuid);
            }
            let instances = stats.instances.iter();
            let instances: Vec<u32> = instances
                .filter_map(|it| names::instance_of(&it.instance_uuid))
                .collect();
            self.sight[machine].has = instances.iter().copied().collect();
            return self.facts.push(Fact::Listed { machine, instances });
        }
        let Some((instance, news)) = controller::news_of(frame) else {
            return;
        };
        match news {
            News::Gone => {
                let seq = controller::end_of(frame).expect("launchers number ends");
                return self.see_end(machine, seq, &names::instance_uuid(instance));
            }
            // Whether that is the end of its START the scheduler says.
            News::Failed => {
                let seq = controller::end_of(frame);
                let by = self.schedulers;
                self.ends_seen.extend(seq.map(|seq| ((machine, seq), by)));
                return;
            }
            _ => self.facts.push(Fact::Refused { instance }),
        }
        if self.has_no_controller() {
            self.facts.push(Fact::Unheard { instance });
        }
    }

    /// A launcher has told an end, for the first time or again. To a scheduler that starts after a crash it is news: what
    /// the one before had told of it, or had yet to, was lost with that.
    fn see_end(&mut self, machine: usize, seq: u64, instance_uuid: &str) {
        let by = self.schedulers;
        let earlier = self.ends_seen.insert((machine, seq), by);
        if earlier == Some(by) {
            return;
        }
        let Some(instance) = names::instance_of(instance_uuid) else {
            return;
        };
        if earlier.is_none() {
            self.facts.push(Fact::Gone { instance, machine });
        }
        if self.has_no_controller() {
            self.facts.push(Fact::Unheard { instance });
        }
    }

    fn has_no_controller(&self) -> bool {
        let core = self.core.as_ref();
        core.is_none_or(|core| core.heartbeat(0, 0).controller_count == 0)
    }

    /// Hands something to the core and does what it wants done.
    pub(crate) fn hand_in(&mut self, input: Input) {
        let now = self.now;
        self.see_input(&input);
        self.turns += 1;
        if let Some(core) = &mut self.core {
            core.handle(now, input);
            self.take_actions();
        }
        self.look_at_queues();
        self.look_at_waiting();
    }

    /// Takes note of what the core is told, and of machines that come into sight and go out of it.
    fn see_input(&mut self, input: &Input) {
        let at = self.elapsed();
        if let Some(behaviour) = &mut self.behaviour
            && self.core.is_some()
        {
            behaviour.told(at, input);
        }
        match input {
            Input::Connect { hello, .. } => {
                let Some(machine) = names::machine_of(&hello.uuid.to_string()) else {
                    return;
                };
                if self.is_out_of_sight(machine) {
                    self.sight[machine].is_listed = false;
                }
                self.sight[machine].lost = None;
            }
            Input::Disconnected { .. } => {
                for machine in 0..self.machines.len() {
                    let stands = self.network.session_of(Peer::Machine(machine)).is_some();
                    let sight = &mut self.sight[machine];
                    sight.lost = match sight.lost {
                        _ if stands => None,
                        Some(since) => Some(since),
                        None => Some(self.now),
                    };
                }
            }
            _ => {}
        }
    }

    /// Whether the scheduler has no way of knowing what is on a machine: it was lost for so long that it was given up,
    /// or has not said yet what runs there.
    pub(crate) fn is_out_of_sight(&self, machine: usize) -> bool {
        let sight = &self.sight[machine];
        let patience = self.settings.in_doubt_time;
        !sight.is_listed || sight.lost.is_some_and(|since| since + patience <= self.now)
    }

    pub(crate) fn scheduler_ticks(&mut self) {
        self.hand_in(Input::Tick);
    }

    fn take_actions(&mut self) {
        if self
            .behaviour
            .as_ref()
            .is_some_and(Behaviour::is_by_recipient)
        {
            return self.take_actions_by_recipient();
        }
        while let Some(mut action) = self.core.as_mut().and_then(Scheduler::poll_action) {
            sim_support::word(&mut action);
            self.act_on(action);
        }
    }

    pub(crate) fn act_on(&mut self, action: Action) {
        self.see_action(&action);
        match action {
            Action::Send { to, message } if Some(to) == self.observer.session => {
                self.observed(message);
            }
            Action::Send { to, message } => {
                if let Some(link) = self.network.of_session(to) {
                    self.queue(link, message);
                }
            }
            Action::Refuse { why, .. } => panic!("a peer is refused: {why}"),
            Action::Notice(Notice::Twins { node, .. }) => {
                panic!("{node} has one launcher at a time, and is taken to have two")
            }
            Action::Disconnect { session, why } => {
                self.note(format_args!("{session:?} is ended: {why}"));
                let link = self.network.of_session(session);
                let taken = link.and_then(|link| self.take_session(link));
                if let Some((session, unsent)) = taken {
                    let departure = Departure::Broken;
                    let input = Input::Disconnected {
                        session,
                        unsent,
                        departure,
                    };
                    self.see_input(&input);
                    self.observer.has_later_input = true;
                    if let Some(core) = &mut self.core {
                        core.handle(self.now, input);
                    }
                }
            }
            Action::RememberNodes => {
                let nodes = self.core.as_ref().map(Scheduler::known_nodes);
                let (nodes, server) = (nodes.unwrap_or_default(), self.network.serving);
                match self.journal_of(server) {
                    Some(journal) => journal.remember_nodes(nodes),
                    None => self.disk.remember_nodes(nodes),
                }
                self.write_soon();
            }
            Action::Persist(change) => {
                assert!(
                    self.settings.is_durable,
                    "there is nowhere to keep {change:?}"
                );
                match self.journal_of(self.network.serving) {
                    Some(journal) => journal.push(change),
                    None => self.disk.persist(change),
                }
                self.write_soon();
            }
            Action::Notice(notice) => self.see_notice(&notice),
            // No peer here asks for one.
            Action::Ends { .. }
            | Action::Image { .. }
            | Action::Configuration { .. }
            | Action::Configured { .. }
            | Action::Reload { .. }
            | Action::TransferLeadership { .. } => {}
        }
    }

    /// Takes note of what the core wants done.
    fn see_action(&mut self, action: &Action) {
        let at = self.elapsed();
        let Some(behaviour) = &mut self.behaviour else {
            return;
        };
        match action {
            Action::Send { to, message } => {
                let receiver = match Some(*to) == self.observer.session {
                    true => Some((OBSERVER, Encoding::Native)),
                    false => self.network.receiver(*to),
                };
                if let Some((peer, encoding)) = receiver {
                    behaviour.sends(at, *to, peer, encoding, message);
                }
            }
            Action::Disconnect { session, why } => behaviour.disconnects(at, *session, *why),
            Action::RememberNodes => {
                let nodes = self.core.as_ref().map(Scheduler::known_nodes);
                behaviour.remembers(at, &nodes.unwrap_or_default());
            }
            Action::Persist(change) => behaviour.persists(at, change),
            Action::Refuse { .. }
            | Action::Notice(_)
            | Action::Ends { .. }
            | Action::Image { .. }
            | Action::Reload { .. }
            | Action::TransferLeadership { .. }
            | Action::Configuration { .. }
            | Action::Configured { .. } => {}
        }
    }

    fn see_notice(&mut self, notice: &Notice) {
        self.note(format_args!("notice: {}", sim_support::words(notice)));
        match notice {
            Notice::Placed(id, node) => {
                let instance = names::instance_of(&id.to_string());
                let machine = names::machine_of(&node.to_string());
                if let (Some(instance), Some(machine)) = (instance, machine) {
                    self.placed.insert(instance, machine);
                    self.facts.push(Fact::Placed { instance, machine });
                }
            }
            Notice::Failed(failure) => {
                if let Some(instance) = names::instance_of(&failure.instance_uuid) {
                    self.see_failure(instance);
                }
            }
            _ => {}
        }
    }

    /// A START has failed, for good.
    pub(crate) fn see_failure(&mut self, instance: u32) {
        let machine = self.placed.get(&instance);
        let is_lost = machine.is_some_and(|&machine| self.is_out_of_sight(machine));
        self.facts.push(Fact::Failed { instance, is_lost });
        if self.has_no_controller() {
            self.facts.push(Fact::Unheard { instance });
        }
    }

    fn write_soon(&mut self) {
        if self.cluster.is_some() {
            return self.records_soon(self.network.serving);
        }
        let at = self.within_ms(COMMIT_MS);
        let scheduler = self.schedulers;
        self.agenda.put(at, Event::Committed { scheduler });
    }

    /// The disk has written something.
    pub(crate) fn disk_writes(&mut self, scheduler: u64) {
        if scheduler != self.schedulers || self.core.is_none() || self.disk.is_idle() {
            return;
        }
        if let Some(trouble) = self.disk.trouble() {
            if trouble.until > self.now {
                let until = trouble.until;
                let is_news = trouble.is_said && !trouble.was_said;
                trouble.was_said = trouble.is_said;
                self.agenda.put(until, Event::Committed { scheduler });
                if is_news {
                    self.note(format_args!("the disk refuses"));
                    self.hand_in(Input::Disk(DiskState::Refuses("it is full".into())));
                }
                return;
            }
            if trouble.was_said {
                trouble.was_said = false;
                self.note(format_args!("the disk writes"));
                self.hand_in(Input::Disk(DiskState::Writes));
            }
        }
        if let Some(ticket) = self.disk.write(&mut self.chance) {
            self.hand_in(Input::Committed(ticket));
        }
    }

    /// The disk takes no writes for some time.
    pub(crate) fn disk_fails(&mut self, trouble: Trouble) {
        if self.settings.is_durable && self.cluster.is_none() {
            let time = trouble.until.saturating_duration_since(self.now);
            self.note(format_args!("the disk fails for {time:?}"));
            self.disk.fails(trouble);
        }
    }
}
