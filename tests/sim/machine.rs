//! Machines: processes that take time to begin, run, use more or less of what they asked for, end by themselves or do not
//! end when they are asked to; and what a launcher keeps on its disk.
//!
//! A machine knows the truth. Its launcher, which has its own file, is told of it late; while there is none, everything
//! goes on as under supervisors of their own.

mod lifecycle;
mod limits;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ciao_scheduler::launcher::LeaderTerm;
use ciao_scheduler::launcher::agent::{
    AgentAction, Features, HostFigures, Input, InstanceRecord, LaunchFault, Numbering,
    PressureLimits, ProcessFate, Ran, Recovered, Runs, Settings, Stage, Usage,
};
use fastrand::Rng;
use proto_frames::Uuid;

use self::limits::RunTime;
use crate::agenda::{Cause, Event};
use crate::facts::Fact;
use crate::jobs::CODES;
use crate::launcher::Launcher;
use crate::names;
use crate::settings;
use crate::work::{Amounts, GPU, ZONES};
use crate::world::World;

/// Longest time until an ordered process runs, in ms.
const BEGIN_MS: u64 = 400;

/// Longest time until a process that is asked to end has ended, and one that is killed, in ms.
const END_MS: u64 = 800;
const KILL_MS: u64 = 50;

/// Longest time that a process runs which ends by itself, in ms.
const LIFE_MS: u64 = 40_000;

/// The same of a job, which always does.
const JOB_MS: u64 = 8_000;

/// After how long a job that was to end by itself and is frozen is looked at again.
const FROZEN_TIME: Duration = Duration::from_secs(5);

/// One machine, with its launcher where that runs.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) capacity: Amounts,
    cpus: i64,
    zone: Option<&'static str>,
    /// What the launcher keeps on its disk.
    records: BTreeMap<String, InstanceRecord>,
    pub(crate) maintenance: bool,
    /// The latest scheduler it has known, of several.
    pub(crate) terms: LeaderTerm,
    /// Processes ordered that have not begun.
    spawning: BTreeMap<u32, Spawn>,
    pub(crate) processes: BTreeMap<u32, Process>,
    /// Exit codes of processes whose launcher may not have heard of their end.
    ended: BTreeMap<u32, (i32, bool, Ran)>,
    /// When the last process of each instance that its launcher remembers ended, as the exit files say.
    exit_files: BTreeMap<u32, Instant>,
    spawns: u64,
    /// How long instances have between being asked to end in time and being killed.
    graces: BTreeMap<u32, Duration>,
    pub(crate) launcher: Option<Launcher>,
    /// Launchers there have been.
    pub(crate) launchers: u64,
    /// When the last of what the launcher was told reaches it.
    told_until: Instant,
    /// Whether its launchers take leases, and when the latest one is over.
    takes_leases: bool,
    /// What the launcher is told of both when it is started.
    lease: Duration,
    report_interval: Duration,
    lease_until: Option<Instant>,
}

/// A process that was ordered.
#[derive(Debug, Clone, Copy)]
struct Spawn {
    number: u64,
    leased: bool,
    /// How long it may run.
    time_left: Option<Duration>,
}

/// A process that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process {
    spawn: u64,
    pub(crate) asked: Amounts,
    used_mem: i64,
    used_disk: i64,
    /// Whether it ends only when it is killed.
    is_stubborn: bool,
    /// Whether it was asked to end.
    is_asked: bool,
    /// Whether it may run only under the lease.
    leased: bool,
    pub(crate) pace: Pace,
    pub(crate) time: RunTime,
}

/// Whether a process takes processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    Runs,
    /// Frozen: it keeps its memory, and its vcpus are free for others.
    Frozen,
    /// It was frozen, and goes on only to end: its vcpus were not claimed again for that.
    Ends,
}

impl Machine {
    pub(crate) fn draw(
        chance: &mut Rng,
        number: usize,
        settings: &settings::Settings,
        now: Instant,
    ) -> Self {
        let cpus = chance.i64(1..6);
        Self {
            number,
            capacity: Amounts {
                mem: chance.i64(60..200),
                vcpus: (cpus as f64 * settings.cpu_ratio).floor() as i64,
                disk: chance.i64(1..10) * 1024,
                gpus: chance.i64(0..4),
            },
            cpus,
            zone: chance.bool().then(|| ZONES[chance.usize(..ZONES.len())]),
            records: BTreeMap::new(),
            maintenance: false,
            terms: LeaderTerm::in_memory(),
            spawning: BTreeMap::new(),
            processes: BTreeMap::new(),
            ended: BTreeMap::new(),
            exit_files: BTreeMap::new(),
            spawns: 0,
            graces: BTreeMap::new(),
            launcher: None,
            launchers: 0,
            told_until: now,
            takes_leases: chance.u8(..3) > 0,
            lease: settings.lease,
            report_interval: settings.report_interval,
            lease_until: None,
        }
    }

    /// What the processes that run asked for; those that are suspended without vcpus.
    pub(crate) fn asked(&self) -> Amounts {
        let asked = self.processes.values().map(Process::holds);
        asked.fold(Amounts::default(), Amounts::plus)
    }

    /// Whether an instance runs, or was ordered to.
    pub(crate) fn has(&self, instance: u32) -> bool {
        self.processes.contains_key(&instance) || self.spawning.contains_key(&instance)
    }

    /// Whether its launcher, or one to come, has a word to say of an instance.
    pub(crate) fn knows(&self, instance: u32) -> bool {
        self.records.contains_key(&names::instance_uuid(instance))
    }

    /// The next launcher is told of another lease, and of another report interval, which is no longer than at first. As
    /// with the first, a lease is longer than it takes to have it renewed: a report interval, and the way there and back.
    /// With a shorter one nothing that is leased ever runs for long, and the cluster does not come to rest.
    pub(crate) fn draw_times(&mut self, chance: &mut Rng, settings: &settings::Settings) {
        self.report_interval = settings.report_interval / [1, 1, 3][chance.usize(..3)];
        let lease = self.report_interval * chance.u32(2..5) * [1, 3][chance.usize(..2)];
        self.lease = lease.max(self.report_interval + settings.latency * 4);
    }

    /// What its launcher is to be.
    pub(crate) fn agent_settings(&self, settings: &settings::Settings) -> Settings {
        let zone = self.zone.map(|zone| ("zone".to_owned(), zone.to_owned()));
        Settings {
            node_uuid: names::machine_uuid(self.number),
            hostname: format!("host-{}", self.number),
            report_interval: self.report_interval,
            stop_grace: settings.stop_grace,
            cpu_ratio: settings.cpu_ratio,
            pressure_limits: PressureLimits::default(),
            features: Features {
                labels: zone.into_iter().collect(),
                resources: BTreeMap::from([(GPU.to_owned(), self.capacity.gpus)]),
                ..Features::default()
            },
            runs: Runs::Processes,
            lease: self.takes_leases.then_some(self.lease),
            numbering: Numbering {
                incarnation: names::machine_uuid(self.number),
                after: self.launchers << 32,
            },
            incarnation: Uuid::from_u64_pair(self.launchers, self.number as u64),
        }
    }

    /// What a new launcher finds. What was ordered and has not begun will not.
    pub(crate) fn recover(&mut self, now: Instant) -> Vec<Recovered> {
        self.spawning.clear();
        let found = |record: &InstanceRecord| {
            let instance = names::instance_of(&record.instance).expect("it was named here");
            if let Stage::Exited(_) | Stage::Gone(..) = record.stage {
                ProcessFate::Ended(None)
            } else if self.processes.contains_key(&instance) {
                ProcessFate::Running
            } else if let Some(&(code, by_itself, _)) = self.ended.get(&instance) {
                match by_itself {
                    true => ProcessFate::EndedByItself(code),
                    false => ProcessFate::Ended(Some(code)),
                }
            } else {
                ProcessFate::NeverRan
            }
        };
        let ended_ago = |record: &InstanceRecord| {
            let ended = self.exit_files.get(&named(&record.instance));
            ended.map(|at| now.saturating_duration_since(*at))
        };
        let recovered = |record: &InstanceRecord| Recovered {
            found: found(record),
            age: Duration::ZERO,
            ended_ago: ended_ago(record),
            ran: self
                .ended
                .get(&named(&record.instance))
                .map(|it| it.2)
                .unwrap_or_default(),
            record: record.clone(),
        };
        self.records.values().map(recovered).collect()
    }

    /// Some of what was ordered when the launcher crashed never begins.
    pub(crate) fn cut_short(&mut self, chance: &mut Rng) {
        self.spawning.retain(|_, _| chance.bool());
    }

    fn sample(&self) -> Input {
        let used = |of: fn(&Process) -> i64| self.processes.values().map(of).sum::<i64>();
        let host = HostFigures {
            mem_total_mb: self.capacity.mem,
            mem_available_mb: self.capacity.mem - used(|it| it.used_mem),
            disk_total_mb: self.capacity.disk,
            disk_available_mb: self.capacity.disk - used(|it| it.used_disk),
            load: 0,
            cpus_online: self.cpus,
            ..HostFigures::default()
        };
        let usage = |(&instance, it): (&u32, &Process)| {
            let usage = Usage {
                mem_mb: it.used_mem,
                disk_mb: it.used_disk,
                cpu_percent: 0,
            };
            (names::instance_uuid(instance), usage)
        };
        let usage = self.processes.iter().map(usage).collect();
        Input::Sampled { host, usage }
    }
}

impl Process {
    fn holds(&self) -> Amounts {
        let vcpus = match self.pace {
            Pace::Runs => self.asked.vcpus,
            Pace::Frozen | Pace::Ends => 0,
        };
        Amounts {
            vcpus,
            ..self.asked
        }
    }
}

impl World {
    /// Does what a launcher wants done on its machine.
    pub(crate) fn perform(&mut self, at: usize, order: AgentAction) {
        let machine = &mut self.machines[at];
        match order {
            AgentAction::Spawn(workload) => {
                let instance = named(&workload.instance);
                machine.graces.insert(instance, workload.stop.grace);
                self.spawn(at, instance, (workload.leased, workload.time_left));
            }
            AgentAction::Terminate(id) => self.signal(at, &id, Cause::Terminated),
            AgentAction::Kill(id) => self.signal(at, &id, Cause::Killed),
            AgentAction::Persist(record) => {
                if let Stage::Starting | Stage::Gone(..) = record.stage {
                    machine.ended.remove(&named(&record.instance));
                }
                if let Stage::Starting = record.stage {
                    machine.exit_files.remove(&named(&record.instance));
                }
                machine.follow(&record);
                machine.records.insert(record.instance.clone(), *record);
            }
            AgentAction::Respawn(respawn) => {
                let leased = machine.records[&respawn.instance].leased;
                let instance = named(&respawn.instance);
                self.facts.push(Fact::Respawned {
                    instance,
                    machine: at,
                });
                self.spawn(at, instance, (leased, respawn.time_left));
            }
            AgentAction::Clear(id) => {
                machine.ended.remove(&named(&id));
                machine.exit_files.remove(&named(&id));
            }
            // No START here names an image, and no process takes more than it may.
            AgentAction::Abandon(_) | AgentAction::CheckMemory { .. } | AgentAction::Pin { .. } => {
            }
            AgentAction::Forget(id) => {
                let instance = named(&id);
                machine.records.remove(&id);
                machine.ended.remove(&instance);
                machine.exit_files.remove(&instance);
                let is_alive = machine.has(instance);
                self.facts.push(Fact::Forgotten {
                    instance,
                    machine: at,
                    is_alive,
                });
            }
            AgentAction::Freeze(instance) => self.freeze(at, instance),
            AgentAction::Thaw(instance) => self.thaw(at, instance),
            AgentAction::SetLimits {
                instance,
                mem_mb,
                vcpus,
            } => self.set_limits(at, instance, mem_mb, vcpus),
            AgentAction::ExtendLease(until) => {
                machine.lease_until = Some(until);
                self.agenda.put(until, Event::LeaseEnds(at));
            }
            AgentAction::PersistMaintenance(maintenance) => machine.maintenance = maintenance,
            AgentAction::Sample => {
                let sample = machine.sample();
                self.tell_launcher(at, sample);
            }
        }
    }

    /// A process was ordered; it begins in a moment, or cannot.
    fn spawn(&mut self, at: usize, instance: u32, (leased, time_left): (bool, Option<Duration>)) {
        let begins = self.within_ms(BEGIN_MS);
        let machine = &mut self.machines[at];
        assert!(
            !machine.has(instance),
            "{instance} is ordered while it runs"
        );
        machine.spawns += 1;
        let spawn = machine.spawns;
        let ordered = Spawn {
            number: spawn,
            leased,
            time_left,
        };
        machine.spawning.insert(instance, ordered);
        let event = Event::Begins {
            machine: at,
            instance,
            spawn,
        };
        self.agenda.put(begins, event);
        let is_evacuated = self.machines[at].maintenance;
        self.facts.push(Fact::Ordered {
            instance,
            machine: at,
            is_evacuated,
        });
    }

    /// A process that was ordered begins, or cannot.
    pub(crate) fn begins(&mut self, at: usize, instance: u32, spawn: u64) {
        let machine = &mut self.machines[at];
        let ordered = machine.spawning.get(&instance).copied();
        let Some(Spawn {
            leased, time_left, ..
        }) = ordered.filter(|it| it.number == spawn)
        else {
            return;
        };
        machine.spawning.remove(&instance);
        let id = names::instance_uuid(instance);
        let may_run = !leased || machine.lease_until.is_some_and(|until| self.now < until);
        if !may_run || self.chance.u8(..12) == 0 {
            let failed = Input::StartFailed {
                instance: id,
                fault: [LaunchFault::Image, LaunchFault::Launch][self.chance.usize(..2)],
                detail: "it does not begin".to_owned(),
            };
            return self.tell_launcher(at, failed);
        }
        let process = Process {
            spawn,
            asked: lifecycle::amounts(&machine.records[&id].demand),
            used_mem: 0,
            used_disk: 0,
            is_stubborn: self.chance.u8(..5) == 0,
            is_asked: false,
            leased,
            pace: Pace::Runs,
            time: RunTime::new(self.now, time_left),
        };
        machine.processes.insert(instance, process);
        self.note(format_args!("{instance} begins on machine {at}"));
        let machine = at;
        self.facts.push(Fact::Began { instance, machine });
        self.tell_launcher(at, Input::Started { instance: id });
        self.watch_limit(at, instance);
        if self.is_job(instance) {
            let ends = self.within_ms(JOB_MS);
            let event = ends_event(at, instance, spawn, Cause::Itself);
            self.agenda.put(ends, event);
        } else if self.chance.bool() {
            let ends = self.within_ms(LIFE_MS);
            self.agenda
                .put(ends, ends_event(at, instance, spawn, Cause::Itself));
        }
    }

    /// A process is asked to end, or killed; it does in a moment.
    fn signal(&mut self, at: usize, id: &str, cause: Cause) {
        let instance = named(id);
        let Some(process) = self.machines[at].processes.get_mut(&instance) else {
            return;
        };
        if process.pace == Pace::Frozen {
            process.pace = Pace::Ends;
        }
        process.is_asked = true;
        let process = *process;
        if cause == Cause::Terminated && process.is_stubborn {
            return;
        }
        let ms = if cause == Cause::Killed {
            KILL_MS
        } else {
            END_MS
        };
        let ends = self.within_ms(ms);
        self.agenda
            .put(ends, ends_event(at, instance, process.spawn, cause));
    }

    /// A process ends. Once the cluster is to come to rest, none does by itself.
    pub(crate) fn ends(&mut self, at: usize, instance: u32, spawn: u64, cause: Cause) {
        let is_it = |process: &&Process| process.spawn == spawn;
        let process = self.machines[at].processes.get(&instance);
        let Some(process) = process.filter(is_it).copied() else {
            return;
        };
        // What is frozen gets nowhere; a job goes on where it was.
        let (is_job, is_frozen) = (self.is_job(instance), process.pace == Pace::Frozen);
        let may_end = !self.is_calm || is_job && self.do_jobs_end;
        if cause == Cause::Itself && (!may_end || is_frozen) {
            if is_job && may_end {
                let later = self.now + FROZEN_TIME;
                let event = ends_event(at, instance, spawn, Cause::Itself);
                self.agenda.put(later, event);
            }
            return;
        }
        let ran = process.time.ran(self.now);
        let machine = &mut self.machines[at];
        let by_itself = cause == Cause::Itself && !process.is_asked;
        machine.processes.remove(&instance);
        let code = match cause {
            Cause::Itself if is_job => CODES[self.chance.usize(..CODES.len())],
            Cause::Itself => self.chance.i32(0..3),
            Cause::Terminated => -15,
            Cause::Killed => -9,
        };
        machine.ended.insert(instance, (code, by_itself, ran));
        machine.exit_files.insert(instance, self.now);
        self.note(format_args!("{instance} ends on machine {at}: {cause:?}"));
        let exited = Input::Exited {
            instance: names::instance_uuid(instance),
            code: Some(code),
            by_itself,
            ran,
        };
        let machine = at;
        self.facts.push(Fact::Ended {
            instance,
            machine,
            code,
            by_itself,
            is_timed: true,
            is_over_time: ran.why.is_some(),
        });
        self.tell_launcher(at, exited);
    }

    /// Everything on a machine ends at once, and it is not known how.
    pub(crate) fn reboot(&mut self, at: usize) {
        self.note(format_args!("machine {at} reboots"));
        self.launcher_crashes(at);
        let machine = &mut self.machines[at];
        machine.spawning.clear();
        machine.lease_until = None;
        for (instance, _) in std::mem::take(&mut machine.processes) {
            // Its supervisor ends with it, and writes no exit file.
            machine.ended.insert(instance, (-9, false, Ran::default()));
            let machine = at;
            self.facts.push(Fact::Ended {
                instance,
                machine,
                code: -9,
                by_itself: false,
                is_timed: false,
                is_over_time: false,
            });
        }
    }

    /// Processes of a machine use more than before, or less; never more than they asked for.
    pub(crate) fn use_otherwise(&mut self, at: usize) {
        for process in self.machines[at].processes.values_mut() {
            if self.chance.bool() {
                process.used_mem = self.chance.i64(0..=process.asked.mem);
                process.used_disk = self.chance.i64(0..=process.asked.disk);
            }
        }
    }

    /// Tells a machine's launcher something, in order and a moment later, if it is there to hear it.
    fn tell_launcher(&mut self, at: usize, input: Input) {
        let soon = self.within_ms(20);
        let machine = &mut self.machines[at];
        if machine.launcher.is_none() {
            return;
        }
        machine.told_until = machine.told_until.max(soon);
        let (told_at, launcher) = (machine.told_until, machine.launchers);
        let event = Event::Hears {
            machine: at,
            launcher,
            input,
        };
        self.agenda.put(told_at, event);
    }
}

/// How long a launcher is away, at most.
pub(crate) const AWAY: Duration = Duration::from_secs(20);

fn ends_event(machine: usize, instance: u32, spawn: u64, cause: Cause) -> Event {
    Event::Ends {
        machine,
        instance,
        spawn,
        cause,
    }
}

fn named(id: &str) -> u32 {
    names::instance_of(id).expect("instances are named here")
}
