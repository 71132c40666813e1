//! A core with many labelled nodes, and STARTs of various kinds to it: what `constraints` times and `instructions`
//! counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto_frames::payload::Expression;
use proto_frames::payload::scheduling::{Group, GroupPolicy, Scheduling};
use proto_frames::{Role, Uuid};
use sched_core::{
    Action, ClusterConfiguration, Config, Input, Message, NodeExtras, NodeReport, PolicyRules,
    Report, Resources, Rules, StatsReport,
};

use driven::{Driven, session};

mod driven;

/// Nodes are in so many zones, and so many racks.
const ZONES: usize = 3;
const RACKS: usize = 100;

pub(crate) const PLENTY: i64 = 1 << 40;

/// What the STARTs ask for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StartKind {
    Plain,
    /// One zone in three.
    Zone,
    /// One rack in a hundred, in one zone.
    RackOfZone,
    /// A fact, which is looked up node by node.
    Fact,
    /// One rack in a hundred, if possible.
    Prefer,
    /// A custom resource that one node in a hundred has.
    Resource,
    /// Apart from the others of a group, of which there are as many as in one batch.
    AntiAffinity,
    /// The best of 64, by the preset.
    Spread,
}

impl StartKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::Plain,
        Self::Zone,
        Self::RackOfZone,
        Self::Fact,
        Self::Prefer,
        Self::Resource,
        Self::AntiAffinity,
        Self::Spread,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Zone => "require_zone",
            Self::RackOfZone => "require_rack_of_zone",
            Self::Fact => "require_fact",
            Self::Prefer => "prefer_rack",
            Self::Resource => "resource",
            Self::AntiAffinity => "anti_affinity",
            Self::Spread => "spread",
        }
    }

    pub(crate) fn scheduling(self) -> Option<Box<Scheduling>> {
        let expressions = |texts: &[&str]| {
            let parse = |text: &&str| text.parse::<Expression>().expect("it is well-formed");
            texts.iter().map(parse).collect()
        };
        let mut scheduling = Scheduling::default();
        match self {
            Self::Plain | Self::Spread => return None,
            Self::Zone => scheduling.require = expressions(&["zone = zone-1"]),
            Self::RackOfZone => {
                scheduling.require = expressions(&["zone = zone-1", "rack in (rack-7, rack-17)"]);
            }
            Self::Fact => scheduling.require = expressions(&["node.load < 4"]),
            Self::Prefer => scheduling.prefer = expressions(&["rack = rack-7"]),
            Self::Resource => {
                scheduling.resources = BTreeMap::from([("gpu".to_owned(), 1)]);
            }
            Self::AntiAffinity => {
                scheduling.group = Some(Group {
                    id: "web".to_owned(),
                    policy: GroupPolicy::AntiAffinity,
                    ..Group::default()
                });
            }
        }
        Some(Box::new(scheduling))
    }

    fn policy(self) -> PolicyRules {
        let preset = match self {
            Self::Spread => "spread",
            _ => "first-fit",
        };
        PolicyRules::preset(preset).expect("there is such a preset")
    }
}

pub(crate) fn labels(node: usize) -> Vec<(Box<str>, Box<str>)> {
    vec![
        ("arch".into(), "x86_64".into()),
        ("cpu.model".into(), format!("model-{}", node % 7).into()),
        ("rack".into(), format!("rack-{}", node % RACKS).into()),
        ("zone".into(), format!("zone-{}", node % ZONES).into()),
    ]
}

/// A core with one controller and many nodes.
pub(crate) struct Cluster {
    core: Driven,
    kind: StartKind,
    scheduling: Option<Box<Scheduling>>,
    payload: Bytes,
    starts: u64,
}

impl Cluster {
    pub(crate) fn new(nodes: usize, kind: StartKind) -> Self {
        let configuration = ClusterConfiguration {
            rules: Rules {
                policy: kind.policy(),
                ..Rules::default()
            },
            ..ClusterConfiguration::default()
        };
        let config = Config::new(Uuid::from_u128(1));
        let mut cluster = Self {
            core: Driven::new(config, configuration),
            kind,
            scheduling: kind.scheduling(),
            payload: Bytes::from_static(&[b'#'; 300]),
            starts: 0,
        };
        for node in 0..nodes {
            let session = session(node);
            cluster.core.connect(session, Role::AGENT);
            cluster
                .core
                .report(session, Report::Ready(Box::new(report(node))));
            let stats = StatsReport {
                is_plain: true,
                ..StatsReport::default()
            };
            cluster.core.report(session, Report::Stats(Box::new(stats)));
        }
        cluster
    }

    /// The time of so many STARTs, each with everything the core wants done for it.
    pub(crate) fn time_starts(&mut self, count: u64, batch: u64) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(batch);
            left -= batch;
            let inputs: Vec<Input> = (0..batch).map(|_| self.start()).collect();
            let mut actions = Vec::with_capacity(batch as usize * 4);
            let begun = Instant::now();
            for input in inputs {
                self.core.scheduler.handle(self.core.now, input);
                while let Some(action) = self.core.scheduler.poll_action() {
                    actions.push(action);
                }
            }
            total += begun.elapsed();
            let placed: u64 = actions
                .into_iter()
                .map(|action| self.delete_started(action))
                .sum();
            assert_eq!(placed, batch, "{:?}: all of them have room", self.kind);
        }
        total
    }

    fn start(&mut self) -> Input {
        self.starts += 1;
        let asked = Resources {
            mem_mib: 64,
            vcpus: 1,
            disk_mib: 64,
        };
        let payload = self.payload.clone();
        driven::start(self.starts, asked, self.scheduling.clone(), payload)
    }

    /// The node says that what it was given is gone again; how many STARTs that were.
    fn delete_started(&mut self, action: Action) -> u64 {
        if let Action::Send {
            to,
            message: Message::Start(start),
        } = action
        {
            self.core
                .report(to, Report::InstanceDeleted(start.request.instance.clone()));
            return 1;
        }
        0
    }
}

fn report(node: usize) -> NodeReport {
    let gpus = i64::from(node.is_multiple_of(RACKS)) * PLENTY;
    NodeReport {
        addresses: Box::default(),
        mem_total_mib: PLENTY,
        mem_available_mib: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        load: 1,
        cpus_online: PLENTY,
        hostname: format!("node-{node}").into(),
        extras: Some(Box::new(NodeExtras {
            labels: labels(node),
            resources: vec![("gpu".into(), gpus)],
            shares: None,
            ..NodeExtras::default()
        })),
    }
}
