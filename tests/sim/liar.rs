//! Launchers that lie: they speak of what other machines have, list it as theirs or as ended, say of themselves what
//! cannot be, repeat what they said, and flood. They have no room, so that nothing is rightly theirs.
//!
//! Every lie is numbered in its payload: one about an instance that was another's when the scheduler got it must reach
//! no controller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use fastrand::Rng;
use proto_frames::payload::{
    AttachVolumeFailure, AttachVolumeFailureReason, CommandFailure, CommandFailureReason,
    DeleteFailure, DeleteFailureReason, InstanceDeleted, InstanceStat, InstanceState,
    InstanceStateEvent, InstanceStopped, LifecycleCommand, Payload, PhaseName, Ready, Requested,
    Span, StartFailure, StartFailureReason, Stats, peek,
};
use proto_frames::{Frame, Kind, Message, Uuid};
use sched_core::{InstanceId, Scheduler};

use crate::facts::Fact;
use crate::names;
use crate::network::{Link, Peer};
use crate::work::GPU;
use crate::world::World;

/// Frames that a liar remembers, to send them again.
const REMEMBERED: usize = 16;

/// What marks a lie in its payload; its number follows.
const MARK: &str = "lie-";

/// A launcher that lies.
#[derive(Debug, Default)]
pub(crate) struct Liar {
    link: Option<Link>,
    is_connected: bool,
    said: VecDeque<(Kind, Bytes)>,
}

/// What the lies of a run were about.
#[derive(Debug, Default)]
pub(crate) struct Lies {
    count: u64,
    /// The instance that each is about.
    pub(crate) about: BTreeMap<u64, u32>,
    /// Those that were about another's instance when the scheduler got them.
    foreign: BTreeSet<u64>,
    /// Those that were about an instance which no node had, and so may be told, whenever they are said again.
    told: BTreeSet<u64>,
    /// The instances that each liar has listed to a scheduler.
    pub(crate) listed: BTreeSet<(usize, u32)>,
}

impl World {
    pub(crate) fn liar_dials(&mut self, number: usize) {
        if !self.is_calm && self.liars[number].link.is_none() {
            let link = self.open(Peer::Liar(number));
            self.liars[number].link = Some(link);
        }
    }

    pub(crate) fn liar_is_cut_off(&mut self, number: usize, link: Link) {
        let liar = &mut self.liars[number];
        if liar.link == Some(link) {
            (liar.link, liar.is_connected) = (None, false);
            self.dial(Peer::Liar(number));
        }
    }

    pub(crate) fn liar_receives(&mut self, number: usize, message: &Message) {
        if let Message::Connected(_) = message {
            self.liars[number].is_connected = true;
            self.lie(number, Kind::READY);
        }
    }

    /// All liars leave, for good.
    pub(crate) fn liars_leave(&mut self) {
        for number in 0..self.liars.len() {
            self.liars[number].is_connected = false;
            if let Some(link) = self.liars[number].link.take() {
                self.let_go(link);
            }
        }
    }

    /// A liar says several things at once, some of them once more.
    pub(crate) fn liar_speaks(&mut self, number: usize, chance: &mut Rng) {
        const KINDS: [Kind; 12] = [
            Kind::READY,
            Kind::STATS,
            Kind::STATS,
            Kind::STATS,
            Kind::INSTANCE_DELETED,
            Kind::INSTANCE_STOPPED,
            Kind::START_FAILURE,
            Kind::DELETE_FAILURE,
            Kind::ATTACH_VOLUME_FAILURE,
            Kind::COMMAND_FAILURE,
            Kind::INSTANCE_STATE,
            Kind::new(3, 0x7e),
        ];
        for _ in 0..chance.u32(1..16) {
            let said = &self.liars[number].said;
            if chance.u8(..4) == 0
                && let Some((kind, payload)) = said.get(chance.usize(..said.len().max(1))).cloned()
            {
                self.liar_sends(number, kind, payload);
                continue;
            }
            self.lie(number, KINDS[chance.usize(..KINDS.len())]);
        }
    }

    fn lie(&mut self, number: usize, kind: Kind) {
        let uuid = names::liar_uuid(number);
        let mut chance = Rng::with_seed(self.chance.u64(..));
        let payload = match kind {
            Kind::READY => absurd(&mut chance, uuid).encode(),
            Kind::STATS => self.stats_of_liar(&mut chance, uuid),
            kind => {
                let instance = self.instance_to_lie_about(&mut chance);
                let number = self.number_lie(instance);
                let payload = false_report(&mut chance, kind, uuid, instance);
                let mut payload = payload.to_vec();
                payload.extend_from_slice(format!("# {MARK}{number}\n").as_bytes());
                payload.into()
            }
        };
        let said = &mut self.liars[number].said;
        said.truncate(REMEMBERED - 1);
        said.push_front((kind, payload.clone()));
        self.liar_sends(number, kind, payload);
    }

    fn liar_sends(&mut self, number: usize, kind: Kind, payload: Bytes) {
        let liar = &self.liars[number];
        if let Some(link) = liar.link.filter(|_| liar.is_connected) {
            self.send_up(link, Frame::new(kind, names::liar_uuid(number), payload));
        }
    }

    /// One that some machine has, as a rule.
    fn instance_to_lie_about(&self, chance: &mut Rng) -> u32 {
        let there: Vec<u32> = self.starts.keys().copied().collect();
        let machines = self.machines.iter();
        let runs: Vec<u32> = machines
            .flat_map(|it| it.processes.keys().copied())
            .collect();
        let from = if runs.is_empty() || chance.u8(..4) == 0 {
            there
        } else {
            runs
        };
        from.get(chance.usize(..from.len().max(1)))
            .copied()
            .unwrap_or(1)
    }

    fn number_lie(&mut self, instance: u32) -> u64 {
        self.lies.count += 1;
        self.lies.about.insert(self.lies.count, instance);
        self.lies.count
    }

    fn stats_of_liar(&mut self, chance: &mut Rng, uuid: Uuid) -> Bytes {
        let ready = absurd(chance, uuid);
        let mut instances = Vec::new();
        for _ in 0..chance.u32(..6) {
            let instance = self.instance_to_lie_about(chance);
            let number = self.number_lie(instance);
            instances.push(InstanceStat {
                instance_uuid: names::instance_uuid(instance),
                state: any_state(chance),
                ssh_ip: format!("{MARK}{number}"),
                memory_usage_mb: any_amount(chance),
                disk_usage_mb: any_amount(chance),
                requested: chance.bool().then(|| Requested {
                    mem_mb: any_amount(chance),
                    vcpus: any_amount(chance),
                    disk_mb: any_amount(chance),
                    resources: [(GPU.to_owned(), any_amount(chance))].into(),
                }),
                group: if chance.bool() {
                    format!("g{}", chance.u8(..3))
                } else {
                    String::new()
                },
                suspended: chance.bool(),
                ..InstanceStat::default()
            });
        }
        let stats = Stats {
            node_uuid: ready.node_uuid,
            status: "READY".to_owned(),
            labels: ready.labels,
            resources: ready.resources,
            capabilities: ready.capabilities,
            starts_seen: chance.bool().then(|| chance.u64(..)),
            lease: ready.lease,
            lease_seq: chance.bool().then(|| chance.u64(..)),
            report_seq: chance.bool().then(|| chance.u64(..)),
            instances,
            ..Stats::default()
        };
        stats.encode()
    }

    /// What a liar's frame is about, as the scheduler has it before it gets it. Whether it is to get it: what a launcher
    /// lists that no node has is its own from then on, and no lie.
    pub(crate) fn see_lie(&mut self, liar: usize, frame: &Frame) -> bool {
        let lies = marks(&frame.payload);
        for &lie in &lies {
            let Some(&instance) = self.lies.about.get(&lie) else {
                continue;
            };
            let row = self.ask_for(instance);
            // What liars alone list has no other node.
            let row = row.filter(|row| names::liar_of(&row.node_uuid).is_none());
            // Nor has a copy whose original is gone, until its machine lists it again.
            let id = InstanceId::new(&names::instance_uuid(instance));
            let has_it = |core: &Scheduler| core.has_instance(&id);
            let row = row.filter(|_| self.core.as_ref().is_some_and(has_it));
            if row.is_some() {
                self.lies.foreign.insert(lie);
            } else if frame.kind == Kind::STATS {
                return false;
            } else {
                self.lies.told.insert(lie);
            }
        }
        if frame.kind == Kind::STATS {
            let about = lies.iter().filter_map(|lie| self.lies.about.get(lie));
            let listed = about.map(|&instance| (liar, instance));
            self.lies.listed.extend(listed);
        }
        true
    }

    /// A controller is told something that a liar said.
    pub(crate) fn controller_hears_liar(&mut self, number: usize, frame: &Frame) {
        for lie in marks(&frame.payload) {
            let instance = self.lies.about.get(&lie).copied();
            let lies = &self.lies;
            let is_foreign = lies.foreign.contains(&lie) && !lies.told.contains(&lie);
            if let Some(instance) = instance.filter(|_| is_foreign) {
                let controller = number;
                self.facts.push(Fact::Fooled {
                    controller,
                    instance,
                });
            }
        }
    }
}

/// Whether a frame that was carried on comes from a launcher that lies.
pub(crate) fn is_of_liar(frame: &Frame) -> bool {
    let by_node = || {
        let stats = peek::stats(&frame.payload).ok()?;
        names::liar_of(&stats.node_uuid)
    };
    if frame.kind == Kind::STATS {
        by_node().is_some()
    } else {
        !marks(&frame.payload).is_empty()
    }
}

/// The numbers of the lies in a payload.
fn marks(payload: &[u8]) -> Vec<u64> {
    let text = String::from_utf8_lossy(payload);
    let marked = text.split(MARK).skip(1);
    let number = |rest: &str| {
        let digits = rest.find(|c: char| !c.is_ascii_digit());
        rest[..digits.unwrap_or(rest.len())].parse().ok()
    };
    marked.filter_map(number).collect()
}

/// A node as none can be; but without room, so that nothing is rightly placed there.
fn absurd(chance: &mut Rng, uuid: Uuid) -> Ready {
    let names = |chance: &mut Rng, prefix: &str| format!("{prefix}{}", chance.u8(..100));
    let labels = (0..chance.usize(..60)).map(|_| (names(chance, "l"), "x".repeat(200)));
    let labels = labels.collect();
    let resources = (0..chance.usize(..8)).map(|_| (names(chance, "r"), chance.i64(0..)));
    let resources = resources.collect();
    Ready {
        node_uuid: uuid.to_string(),
        mem_total_mb: any_amount(chance),
        mem_available_mb: 0,
        disk_total_mb: any_amount(chance),
        disk_available_mb: any_amount(chance),
        load: any_amount(chance),
        cpus_online: any_amount(chance),
        hostname: format!("host-{}", chance.u8(..4)),
        labels,
        resources,
        capabilities: ["suspend", "migrate", "update", "lease"]
            .into_iter()
            .filter(|_| chance.bool())
            .map(str::to_owned)
            .collect(),
        lease: chance.bool().then(|| Span::from_ms(chance.u64(1..1 << 40))),
        ..Ready::default()
    }
}

fn any_amount(chance: &mut Rng) -> i64 {
    match chance.u8(..5) {
        0 => 0,
        1 => i64::MAX,
        2 => i64::MIN,
        3 => chance.i64(..),
        _ => chance.i64(-100..1000),
    }
}

fn any_state(chance: &mut Rng) -> InstanceState {
    let states = [
        InstanceState::Pending,
        InstanceState::Active,
        InstanceState::Exited,
        InstanceState::ExitFailed,
        InstanceState::ExitPaused,
        InstanceState::Deleted,
        InstanceState::Missing,
    ];
    states[chance.usize(..states.len())].clone()
}

/// A report of this kind about an instance.
fn false_report(chance: &mut Rng, kind: Kind, node: Uuid, instance: u32) -> Bytes {
    let (instance_uuid, node_uuid) = (names::instance_uuid(instance), node.to_string());
    match kind {
        Kind::INSTANCE_DELETED => InstanceDeleted {
            instance_uuid,
            ..InstanceDeleted::default()
        }
        .encode(),
        Kind::INSTANCE_STOPPED => InstanceStopped {
            instance_uuid,
            cut_off: chance.bool(),
            ..InstanceStopped::default()
        }
        .encode(),
        Kind::START_FAILURE => {
            let reasons = [
                StartFailureReason::FullComputeNode,
                StartFailureReason::LaunchFailure,
                StartFailureReason::ImageFailure,
                StartFailureReason::AlreadyRunning,
                StartFailureReason::InstanceExists,
            ];
            StartFailure {
                node_uuid,
                instance_uuid,
                reason: reasons[chance.usize(..reasons.len())].clone(),
                ..StartFailure::default()
            }
            .encode()
        }
        Kind::DELETE_FAILURE => DeleteFailure {
            node_uuid,
            instance_uuid,
            reason: [
                DeleteFailureReason::NoInstance,
                DeleteFailureReason::InvalidData,
            ][chance.usize(..2)]
            .clone(),
        }
        .encode(),
        Kind::ATTACH_VOLUME_FAILURE => AttachVolumeFailure {
            node_uuid,
            instance_uuid,
            volume_uuid: "v".to_owned(),
            reason: AttachVolumeFailureReason::NoInstance,
        }
        .encode(),
        kind => false_progress(chance, kind, node_uuid, instance_uuid),
    }
}

/// The same of what became of a command for a running instance, or of its phase.
fn false_progress(chance: &mut Rng, kind: Kind, node_uuid: String, instance_uuid: String) -> Bytes {
    match kind {
        Kind::COMMAND_FAILURE => CommandFailure {
            command: [
                LifecycleCommand::Suspend,
                LifecycleCommand::Resume,
                LifecycleCommand::Migrate,
                LifecycleCommand::Update,
            ][chance.usize(..4)]
            .clone(),
            instance_uuid,
            node_uuid,
            reason: CommandFailureReason::WrongState,
            detail: String::new(),
        }
        .encode(),
        _ => InstanceStateEvent {
            instance_uuid,
            node_uuid,
            state: [
                PhaseName::Suspended,
                PhaseName::Running,
                PhaseName::Updated,
                PhaseName::Gone,
            ][chance.usize(..4)]
            .clone(),
            ..InstanceStateEvent::default()
        }
        .encode(),
    }
}
