//! A simulated machine: reports the resources it was told to have and runs nothing.
//!
//! Its workloads are active at once and use what they asked for; they end when they are asked to, or by themselves
//! after a set time. It answers [`AgentAction`]s as a real machine does, so that everything above it is the same.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::str::FromStr;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::agent::{
    AgentAction, Demand, HostFigures, Input, InstanceRecord, Pressure, Ran, Stage, Usage, Workload,
};

/// Exit code of a simulated workload that was asked to end: minus the signal.
const TERMINATED: i32 = -15;
/// Exit code of a simulated workload that was killed: minus the signal.
const KILLED: i32 = -9;

/// Bytes of a MiB, in which STARTs count disk.
const MIB: i64 = 1_048_576;
/// The unit of disk in STATS, in bytes.
const DISK_UNIT: i64 = 1_000_000;

/// All of an amount, in percent.
const ALL: i64 = 100;

/// The resources of a simulated machine; read from text such as `mem=65536,cpus=16,disk=500000,run=30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Simulation {
    /// Memory, in MiB.
    pub mem_mb: i64,
    /// Processors.
    pub cpus: i64,
    /// Disk, in 10⁶ bytes.
    pub disk_mb: i64,
    /// After how long workloads end by themselves, with exit code 0; `None` = never.
    pub run: Option<Duration>,
    /// How much workloads use of what they asked for, in percent.
    pub used_percent: i64,
}

/// Why text is no [`Simulation`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// A part is not of the form `key=number`.
    #[error(
        "{0:?} is not of the form key=number; known keys: mem (MiB), cpus, disk (10^6 bytes), run (seconds), use (percent)"
    )]
    NotUnderstood(String),
    /// A key that is needed is not there.
    #[error("{0} is missing; needed: mem=MIB,cpus=N,disk=MB")]
    Missing(&'static str),
}

impl FromStr for Simulation {
    type Err = SimulationError;

    fn from_str(text: &str) -> Result<Self, SimulationError> {
        let (mut mem, mut cpus, mut disk, mut run) = (None, None, None, None);
        let mut used_percent = ALL;
        for part in text.split(',') {
            let not_understood = || SimulationError::NotUnderstood(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(not_understood)?;
            if key == "run" {
                let seconds = value
                    .parse()
                    .ok()
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                run = Some(seconds.ok_or_else(not_understood)?);
                continue;
            }
            let number = value
                .parse::<i64>()
                .ok()
                .filter(|number| *number >= 0)
                .ok_or_else(not_understood)?;
            match key {
                "mem" => mem = Some(number),
                "cpus" => cpus = Some(number),
                "disk" => disk = Some(number),
                "use" => used_percent = number,
                _ => return Err(not_understood()),
            }
        }
        Ok(Self {
            mem_mb: mem.ok_or(SimulationError::Missing("mem"))?,
            cpus: cpus.ok_or(SimulationError::Missing("cpus"))?,
            disk_mb: disk.ok_or(SimulationError::Missing("disk"))?,
            run,
            used_percent,
        })
    }
}

/// A simulated machine, driven like [`super::process::Processes`] by the run loop.
#[derive(Debug)]
pub(crate) struct Simulated {
    simulation: Simulation,
    /// What the workloads claim, from their records; their use is a part of it.
    live: BTreeMap<String, Demand>,
    /// When workloads end by themselves, the earliest first.
    ends: BTreeSet<(Instant, String)>,
    /// How long frozen workloads that end by themselves would still have run.
    frozen: BTreeMap<String, Duration>,
    /// What is to be told of what was performed; each order has its outcome at once.
    happened: VecDeque<Input>,
}

impl Simulated {
    pub(crate) fn new(simulation: Simulation) -> Self {
        Self {
            simulation,
            live: BTreeMap::new(),
            ends: BTreeSet::new(),
            frozen: BTreeMap::new(),
            happened: VecDeque::new(),
        }
    }

    /// Does what the agent asks; what comes of it is told by [`Simulated::event`].
    pub(crate) fn perform(&mut self, order: AgentAction) {
        match order {
            AgentAction::Spawn(workload) => self.start(*workload),
            AgentAction::Respawn(respawn) => self.run(respawn.instance),
            // What it starts, it has started; how a run ended it has told; and none takes more than it asked for.
            AgentAction::Abandon(_)
            | AgentAction::Clear(_)
            | AgentAction::CheckMemory { .. }
            | AgentAction::Pin { .. } => {}
            AgentAction::Terminate(id) => self.end(id, TERMINATED),
            AgentAction::Kill(id) => self.end(id, KILLED),
            AgentAction::Freeze(instance) => self.freeze(instance),
            AgentAction::Thaw(instance) => self.thaw(instance),
            AgentAction::SetLimits { instance, .. } => self.happened.push_back(Input::LimitsSet {
                instance,
                result: Ok(()),
            }),
            // Its workloads end with the launcher, which ends them in time.
            AgentAction::ExtendLease(_) => {}
            AgentAction::Persist(record) => self.note(*record),
            AgentAction::Forget(id) => {
                self.live.remove(&id);
            }
            AgentAction::PersistMaintenance(_) => {}
            AgentAction::Sample => {
                let sample = self.sample();
                self.happened.push_back(sample);
            }
        }
    }

    /// The next thing that happens. Nothing is lost where the wait is given up.
    pub(crate) async fn event(&mut self) -> Input {
        if let Some(input) = self.happened.pop_front() {
            return input;
        }
        match self.ends.first() {
            Some((at, _)) => sleep_until(*at).await,
            None => std::future::pending().await,
        }
        match self.ends.pop_first() {
            Some((_, instance)) => Input::Exited {
                instance,
                code: Some(0),
                by_itself: true,
                ran: self.ran(),
            },
            None => Input::Tick,
        }
    }

    /// Starts a workload at once; with `run=` its end is set.
    fn start(&mut self, workload: Workload) {
        self.run(workload.instance);
    }

    fn run(&mut self, instance: String) {
        if let Some(run) = self.simulation.run {
            self.ends.insert((Instant::now() + run, instance.clone()));
        }
        self.happened.push_back(Input::Started { instance });
    }

    /// Ends a workload at once.
    fn end(&mut self, instance: String, code: i32) {
        self.ends.retain(|(_, id)| *id != instance);
        self.frozen.remove(&instance);
        self.happened.push_back(Input::Exited {
            instance,
            code: Some(code),
            by_itself: false,
            ran: Ran::default(),
        });
    }

    /// What a workload is said to have done that has come to its end: it took as long as it was to.
    fn ran(&self) -> Ran {
        Ran {
            ran_ms: self
                .simulation
                .run
                .map(|run| u64::try_from(run.as_millis()).unwrap_or(u64::MAX)),
            ..Ran::default()
        }
    }

    /// Freezes a workload. One that ends by itself has as long to run afterwards as it had before.
    fn freeze(&mut self, instance: String) {
        let end = self.ends.iter().find(|(_, id)| *id == instance).cloned();
        if let Some(end) = end {
            self.ends.remove(&end);
            let left = end.0.saturating_duration_since(Instant::now());
            self.frozen.insert(instance.clone(), left);
        }
        self.happened.push_back(Input::Frozen {
            instance,
            result: Ok(()),
        });
    }

    fn thaw(&mut self, instance: String) {
        if let Some(left) = self.frozen.remove(&instance) {
            self.ends.insert((Instant::now() + left, instance.clone()));
        }
        self.happened.push_back(Input::Thawed {
            instance,
            result: Ok(()),
        });
    }

    /// Learns from a record what a workload claims, or that it has ended.
    fn note(&mut self, record: InstanceRecord) {
        match record.stage {
            Stage::Exited(_) | Stage::Gone(..) => self.live.remove(&record.instance),
            _ => self.live.insert(record.instance, record.demand),
        };
    }

    /// A sample of the machine: each workload uses the set share of what it claims.
    fn sample(&self) -> Input {
        let used = |asked: i64| asked.saturating_mul(self.simulation.used_percent) / ALL;
        let usage = |demand: &Demand| Usage {
            mem_mb: used(demand.mem_mb),
            disk_mb: used(demand.disk_mb).saturating_mul(MIB) / DISK_UNIT,
            cpu_percent: used(demand.vcpus.saturating_mul(ALL)),
        };
        let usage: BTreeMap<String, Usage> = self
            .live
            .iter()
            .map(|(id, demand)| (id.clone(), usage(demand)))
            .collect();
        let Simulation {
            mem_mb,
            cpus,
            disk_mb,
            ..
        } = self.simulation;
        let left = |total: i64, used: i64| total.saturating_sub(used).max(0);
        let host = HostFigures {
            mem_total_mb: mem_mb,
            mem_available_mb: left(mem_mb, usage.values().map(|usage| usage.mem_mb).sum()),
            disk_total_mb: disk_mb,
            disk_available_mb: left(disk_mb, usage.values().map(|usage| usage.disk_mb).sum()),
            load: 0,
            cpus_online: cpus,
            networks: Vec::new(),
            pressure: Pressure::default(),
        };
        Input::Sampled { host, usage }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::agent::{
        AgentAction, Cpus, Demand, Input, InstanceRecord, Stage, StopTerms, Workload,
    };
    use super::{Simulated, Simulation, SimulationError};

    /// A machine of 100 MiB that was given a workload of 30, and has told that it runs.
    async fn running(resources: &str) -> Simulated {
        let mut machine = Simulated::new(resources.parse().unwrap());
        let demand = Demand {
            mem_mb: 30,
            vcpus: 1,
            ..Demand::default()
        };
        let record = InstanceRecord::new("a", demand, Stage::Starting);
        machine.perform(AgentAction::Persist(Box::new(record)));
        machine.perform(AgentAction::Spawn(Box::new(Workload {
            instance: "a".to_owned(),
            tenant: String::new(),
            images: Vec::new(),
            command: Vec::new(),
            env: [].into(),
            working_dir: None,
            mem_mb: 30,
            vcpus: 1,
            cpus: Cpus::default(),
            leased: false,
            stop: StopTerms {
                signal: rustix::process::Signal::TERM,
                grace: Duration::from_secs(1),
            },
            time_left: None,
            split_output: false,
        })));
        assert!(matches!(machine.event().await, Input::Started { instance } if instance == "a"));
        machine
    }

    #[tokio::test]
    async fn a_simulated_workload_uses_what_it_asked_for_until_it_is_forgotten() {
        let mut machine = running("mem=100,cpus=1,disk=1").await;
        for (available, listed) in [(70, 1), (100, 0)] {
            machine.perform(AgentAction::Sample);
            let Input::Sampled { host, usage } = machine.event().await else {
                panic!("no sample")
            };
            assert_eq!((host.mem_available_mb, usage.len()), (available, listed));
            machine.perform(AgentAction::Forget("a".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_simulated_workload_ends_by_itself_or_when_it_is_asked_to_but_once() {
        let mut machine = running("mem=100,cpus=1,disk=1,run=0").await;
        assert!(matches!(
            machine.event().await,
            Input::Exited { code: Some(0), .. }
        ));
        let mut machine = running("mem=100,cpus=1,disk=1,run=9999").await;
        machine.perform(AgentAction::Terminate("a".to_owned()));
        assert!(matches!(
            machine.event().await,
            Input::Exited {
                code: Some(-15),
                ..
            }
        ));
        assert!(machine.ends.is_empty());
    }

    #[tokio::test]
    async fn a_simulated_workload_that_is_frozen_runs_its_time_afterwards_and_can_be_limited() {
        let mut machine = running("mem=100,cpus=1,disk=1,run=9999").await;
        let answers = |input| match input {
            Input::Frozen { result, .. }
            | Input::Thawed { result, .. }
            | Input::LimitsSet { result, .. } => result.is_ok(),
            _ => false,
        };
        machine.perform(AgentAction::Freeze("a".to_owned()));
        assert!(answers(machine.event().await));
        machine.perform(AgentAction::SetLimits {
            instance: "a".to_owned(),
            mem_mb: 1,
            vcpus: 1,
        });
        assert!(answers(machine.event().await));
        assert!(machine.ends.is_empty());
        machine.perform(AgentAction::Thaw("a".to_owned()));
        assert!(answers(machine.event().await));
        let left = machine.ends.first().unwrap().0 - tokio::time::Instant::now();
        assert!(left > Duration::from_secs(9000), "{left:?}");
    }

    #[test]
    fn resources_are_read_from_text() {
        let simulation = "mem=4096,cpus=4,disk=1000".parse();
        assert_eq!(
            simulation,
            Ok(Simulation {
                mem_mb: 4096,
                cpus: 4,
                disk_mb: 1000,
                run: None,
                used_percent: 100,
            })
        );
        let simulation: Simulation = "disk=0,cpus=4,mem=1,run=1.5,use=25".parse().unwrap();
        assert_eq!(simulation.run, Some(Duration::from_millis(1500)));
        assert_eq!(simulation.used_percent, 25);
    }

    #[test]
    fn text_that_is_not_understood_is_named() {
        for (text, part) in [
            ("mem=1,cpus", "cpus"),
            ("mem=-1", "mem=-1"),
            ("ram=1", "ram=1"),
            ("run=x", "run=x"),
            ("", ""),
        ] {
            assert_eq!(
                text.parse::<Simulation>(),
                Err(SimulationError::NotUnderstood(part.to_owned()))
            );
        }
        assert_eq!(
            "mem=1,cpus=1".parse::<Simulation>(),
            Err(SimulationError::Missing("disk"))
        );
    }
}
