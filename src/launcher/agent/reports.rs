//! Reports: what the node has, what is claimed on it and what is used, as STATS and READY (or FULL, MAINTENANCE,
//! OFFLINE).
//!
//! The agent asks the machine for a sample when a report is due ([`Agent::report_soon`], or the interval); the sample's
//! arrival makes the report. Reports are at least [`MIN_REPORT_GAP`] apart on a connection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proto_frames::Uuid;
use proto_frames::payload::{
    self, InstanceStat, InstanceState, Ready, Requested, Span, Stats, TraceReport, UNKNOWN,
};

use super::ends::Reported;
use super::instances::{Instance, InstancePhase};
use super::pressure::Pressure;
use super::{Agent, Demand, DeviceVariable, Duty, Link, MIN_REPORT_GAP, Message, Processors, Runs};

/// What a node says of itself beyond its figures, in READY and STATS, as placement needs it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features {
    /// Labels, by key.
    pub labels: BTreeMap<String, String>,
    /// Further countable resources, by name: how much there is in all, whether or not instances have it.
    pub resources: BTreeMap<String, i64>,
    /// The node whose resources it shares, such as the whole machine of a NUMA node.
    pub shares: Option<Uuid>,
    /// The nodes that share its resources.
    pub shared_by: Vec<Uuid>,
    /// Volumes and ports that can be reached from it, by id.
    pub volumes: Vec<String>,
    /// How programs are told which units of its resources they have, beside the launcher's own variables. Not reported.
    pub device_variables: Vec<DeviceVariable>,
    /// The processors of which each instance gets its own; `None` = all run on all. Not reported.
    pub processors: Option<Processors>,
}

/// Labels that schedulers take of a node; further ones are left out here, images last.
const MAX_LABELS: usize = 64;

/// Capability: SUSPEND and RESUME are done.
const SUSPEND: &str = "suspend";

/// Capability: UPDATE is done.
const UPDATE: &str = "update";

/// Capability: instances with `on_node_loss: restart` end when the node is cut off for longer than its lease.
const LEASE: &str = "lease";

/// Capability: STARTs are admitted by what NodeCapacity says.
const CAPACITY: &str = "capacity";

/// Capability: what has changed of a START is read beside it.
const OVERRIDES: &str = "overrides";

/// Capability: what workloads wrote can be read.
const OUTPUT: &str = "output";

/// Capability: images that STARTs name by digest are fetched.
const IMAGES: &str = "images";

/// Capability: the further images that they name are fetched as well.
const MORE_IMAGES: &str = "more-images";

/// Capability: instances are ended in time, as their START says, and started again.
const RUN_LIMITS: &str = "run-limits";

/// Keeping standard error apart, serving files of working directories, deleting what instances have left.
const RESULTS: &str = "results";

/// Capability: ends are numbered, and told until they are on record.
const ENDS: &str = "ends";

/// A sample of the machine; [`UNKNOWN`] where a figure could not be found out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFigures {
    /// Memory, in MiB.
    pub mem_total_mb: i64,
    /// Memory that is free or holds cached files, in MiB.
    pub mem_available_mb: i64,
    /// Disk under the instances, in 10⁶ bytes.
    pub disk_total_mb: i64,
    /// Disk that is free there, in 10⁶ bytes.
    pub disk_available_mb: i64,
    /// Load average over one minute, rounded down.
    pub load: i64,
    /// Processors.
    pub cpus_online: i64,
    /// Addresses of the node.
    pub networks: Vec<Network>,
    /// How short of memory it is.
    pub pressure: Pressure,
}

/// One address of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The address, without prefix length.
    pub ip: String,
    /// Hardware address of its interface.
    pub mac: String,
}

/// What an instance uses; [`UNKNOWN`] where a figure could not be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, in MiB.
    pub mem_mb: i64,
    /// Disk, in 10⁶ bytes.
    pub disk_mb: i64,
    /// Processor time since the last sample, in percent of one processor.
    pub cpu_percent: i64,
}

impl HostFigures {
    /// The memory that an instance used is available again. Not its disk: what it has written stays.
    fn give_back(&mut self, used: Usage) {
        if self.mem_available_mb >= 0 && used.mem_mb > 0 {
            let available = self.mem_available_mb.saturating_add(used.mem_mb);
            self.mem_available_mb = match self.mem_total_mb {
                ..0 => available,
                total => available.min(total),
            };
        }
    }
}

impl Agent {
    /// Has a report made now, or as soon as the last one is long enough ago.
    pub(super) fn report_soon(&mut self, now: Instant) {
        if let Link::Up {
            reported,
            report_at,
            ..
        } = &mut self.link
        {
            let earliest = reported.map_or(now, |at| at + MIN_REPORT_GAP);
            *report_at = (*report_at).min(earliest.max(now));
        }
    }

    /// Takes a sample in, and reports if there is a connection.
    pub(super) fn sampled(
        &mut self,
        now: Instant,
        mut host: HostFigures,
        usage: &BTreeMap<String, Usage>,
    ) {
        self.sampling = false;
        for (_, used) in usage.iter().filter(|(id, _)| !self.is_there(id)) {
            // It has ended since it was looked at.
            host.give_back(*used);
        }
        self.instances.change_all(|id, instance| {
            instance.usage = usage.get(id).copied().filter(|_| instance.is_live());
            instance.is_measured |= instance.usage.is_some_and(|usage| usage.mem_mb != UNKNOWN);
        });
        self.check_memory(now, usage);
        self.feel_pressure(host.pressure);
        let interval = self.settings.report_interval;
        if let Link::Up {
            starts_seen,
            reported,
            report_at,
            ..
        } = &mut self.link
        {
            // The figures of this report include all STARTs that came before it.
            let starts_seen = *starts_seen;
            let last = reported.replace(now);
            *report_at = now + interval;
            self.report(now, &host, starts_seen, last);
        }
        self.host = Some(host);
    }

    /// Whether an instance holds what it asked for.
    fn is_there(&self, id: &str) -> bool {
        self.instances.get(id).is_some_and(Instance::is_live)
    }

    /// What an instance used when the machine was last looked at is there again: its processes have ended. Without this
    /// it would be missing until the next look, and a START refused for which the scheduler had counted the room.
    pub(super) fn give_back(&mut self, used: Option<Usage>) {
        if let (Some(host), Some(used)) = (&mut self.host, used) {
            host.give_back(used);
        }
    }

    /// Notes that what the node keeps can be written (`None`) or not, and why. It is reported soon, for without storage
    /// the node takes no START.
    pub(super) fn storage(&mut self, now: Instant, fault: Option<String>) {
        if self.storage_fault != fault {
            self.storage_fault = fault;
            self.report_soon(now);
        }
    }

    /// Reports; `last` is when it last did on this connection.
    fn report(
        &mut self,
        now: Instant,
        host: &HostFigures,
        starts_seen: u64,
        last: Option<Instant>,
    ) {
        let lease = self.announced_lease(now);
        // Which process this is does not change on a connection.
        let is_first = last.is_none();
        let ready = Ready {
            lease: lease.map(span),
            incarnation: match is_first {
                true => self.settings.incarnation.to_string(),
                false => String::new(),
            },
            ..self.ready(host, starts_seen)
        };
        let Reported {
            incarnation,
            seq,
            rows,
        } = self.ends_to_report(now);
        let stats = Stats {
            report_seq: self.number_report().filter(|_| lease.is_none()),
            lease_seq: lease.map(|_| self.lease.number_report(now)),
            ends_incarnation: incarnation,
            ends_seq: seq,
            ended: rows,
            ..self.stats(now, &ready, host)
        };
        // First what runs here: by the time the scheduler knows of room, it knows what of it is asked for.
        self.send(Message::Stats(Box::new(stats)));
        let status = self.status(host);
        if is_first && status == Status::Full {
            // FULL has no figures, and a scheduler that has just started does not know the node.
            self.send(Message::Ready(Box::new(ready.clone())));
        }
        self.send(match status {
            Status::Ready => Message::Ready(Box::new(ready)),
            Status::Full => Message::Full,
            Status::Maintenance => Message::Maintenance,
            Status::Offline => Message::Offline,
        });
        self.introduce(now);
        self.report_kept_runs();
        if !self.traces.is_empty() {
            let frames = std::mem::take(&mut self.traces);
            self.send(Message::TraceReport(TraceReport { frames }));
        }
    }

    /// The number of a report made now, where the scheduler takes such keys.
    fn number_report(&mut self) -> Option<u64> {
        let Link::Up {
            records_ends: true,
            reports,
            ..
        } = &mut self.link
        else {
            return None;
        };
        *reports += 1;
        Some(*reports)
    }

    /// What the node is for the scheduler. MAINTENANCE and OFFLINE come before FULL.
    fn status(&self, host: &HostFigures) -> Status {
        match self.duty {
            Duty::Maintenance => Status::Maintenance,
            Duty::Leaving => Status::Offline,
            Duty::InService if self.is_full(host) => Status::Full,
            Duty::InService => Status::Ready,
        }
    }

    /// READY as it would be now, without what only a connection's first report says.
    fn ready(&self, host: &HostFigures, starts_seen: u64) -> Ready {
        let network = |network: &Network| payload::Network {
            ip: network.ip.clone(),
            mac: network.mac.clone(),
        };
        let features = &self.settings.features;
        Ready {
            node_uuid: self.settings.node_uuid.to_string(),
            mem_total_mb: host.mem_total_mb,
            mem_available_mb: host.mem_available_mb,
            disk_total_mb: host.disk_total_mb,
            disk_available_mb: host.disk_available_mb,
            load: host.load,
            cpus_online: host.cpus_online,
            networks: host.networks.iter().map(network).collect(),
            hostname: self.settings.hostname.clone(),
            labels: self.labels(),
            resources: features.resources.clone(),
            shares: features.shares.map(|it| it.to_string()).unwrap_or_default(),
            shared_by: features.shared_by.iter().map(ToString::to_string).collect(),
            capabilities: self.capabilities(),
            starts_seen: Some(starts_seen),
            volumes: features.volumes.clone(),
            vm_types: self.settings.runs.vm_types(),
            fault: self.fault().unwrap_or_default(),
            pressure: self.storage_fault.is_none() && self.strain.is_some(),
            ..Ready::default()
        }
    }

    /// Other images are on the node than were.
    pub(super) fn images_changed(&mut self, now: Instant, images: Vec<String>) {
        if self.images != images {
            self.images = images;
            self.report_soon(now);
        }
    }

    /// The node's labels, with one for each image that it has, as far as there is room for them.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.settings.features.labels.clone();
        let room = MAX_LABELS.saturating_sub(labels.len());
        for image in self.images.iter().take(room) {
            let label = labels.entry(format!("image.{image}"));
            label.or_insert_with(|| "cached".to_owned());
        }
        labels
    }

    /// What can be asked of this node beyond what the original's launchers do; the scheduler compares it with what a
    /// command needs.
    fn capabilities(&self) -> Vec<String> {
        let changes: &[&str] = match self.settings.runs {
            Runs::Processes | Runs::Anything => &[SUSPEND, UPDATE, RUN_LIMITS],
            Runs::Named(_) => &[],
        };
        let always = changes.iter().copied().chain([CAPACITY, OVERRIDES]);
        let lease = self.settings.lease.map(|_| LEASE);
        let ends = self.records_ends().then_some(ENDS);
        // Schedulers that read output record ends, so that answers do not count among the frames that ends wait for.
        let is_real = self.settings.runs == Runs::Processes;
        let output = (is_real && self.records_ends()).then_some([OUTPUT, RESULTS]);
        let output = output.into_iter().flatten();
        // Asked for over the same connections; where nothing is really run, none is needed.
        let images = match self.settings.runs {
            Runs::Processes => self.records_ends(),
            Runs::Anything => true,
            Runs::Named(_) => false,
        };
        let images = images.then_some([IMAGES, MORE_IMAGES]);
        let images = images.into_iter().flatten();
        let all = always.chain(lease).chain(ends).chain(output).chain(images);
        all.map(str::to_owned).collect()
    }

    /// STATS as it would be now, with one row for each instance that has not ended.
    fn stats(&self, now: Instant, ready: &Ready, host: &HostFigures) -> Stats {
        let now_ms = self.clock.map_or(0, |clock| clock.ms_at(now));
        let processors = self.settings.features.processors.as_ref();
        let instances = self.live();
        let instances = instances.map(|(id, instance)| InstanceStat {
            run: instance.progress(now_ms, processors).map(Box::new),
            ..stat(id, instance)
        });
        Stats {
            status: self.status(host).as_str().to_owned(),
            instances: instances.collect(),
            ..Stats::from(ready.clone())
        }
    }
}

/// The node's status in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    Full,
    Maintenance,
    Offline,
}

impl Status {
    /// As STATS has it.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Full => "FULL",
            Self::Maintenance => "MAINTENANCE",
            Self::Offline => "OFFLINE",
        }
    }
}

/// One instance's row in STATS: its state in the protocol's words, what it uses, and what it holds.
fn stat(id: &str, instance: &Instance) -> InstanceStat {
    let usage = instance.usage.unwrap_or(Usage {
        mem_mb: UNKNOWN,
        disk_mb: UNKNOWN,
        cpu_percent: UNKNOWN,
    });
    let Demand {
        mem_mb,
        vcpus,
        disk_mb,
        resources,
    } = &instance.demand;
    InstanceStat {
        instance_uuid: id.to_owned(),
        state: match instance.state {
            // There, but not running; `pending` would say that it may still fail to begin.
            InstancePhase::Starting if instance.is_restarted() => InstanceState::Exited,
            InstancePhase::Starting => InstanceState::Pending,
            InstancePhase::Running | InstancePhase::Suspending | InstancePhase::Resuming => {
                InstanceState::Active
            }
            InstancePhase::Suspended => InstanceState::ExitPaused,
            InstancePhase::Stopping { .. } => InstanceState::Stopping,
            InstancePhase::Backoff { .. }
            | InstancePhase::Exited { .. }
            | InstancePhase::Gone { .. } => InstanceState::Exited,
        },
        memory_usage_mb: usage.mem_mb,
        disk_usage_mb: usage.disk_mb,
        // Of what it has, as the original counts.
        cpu_usage: match usage.cpu_percent {
            UNKNOWN => UNKNOWN,
            percent => percent / (*vcpus).max(1),
        },
        requested: Some(Requested {
            mem_mb: *mem_mb,
            vcpus: *vcpus,
            disk_mb: *disk_mb,
            resources: resources.clone(),
        }),
        group: instance.group.clone(),
        suspended: instance.state == InstancePhase::Suspended,
        ..InstanceStat::default()
    }
}

/// A duration in whole milliseconds.
fn span(length: Duration) -> Span {
    Span::from_ms(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
}
