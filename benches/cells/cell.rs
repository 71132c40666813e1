//! One leader with its nodes: the real core, and what is left on each node, counted beside it.

use std::time::{Duration, Instant};

use proto_frames::{Role, Uuid};
use sched_core::{
    Action, ClusterConfiguration, Config, Input, Message, PolicyRules, Report, Rules, StatsReport,
};

use crate::aggregate::{Aggregate, Free};
use crate::driven::{Driven, session};
use crate::workload::{Machine, Request, Want, place};

/// A core with nodes that are all connected and READY.
pub(crate) struct Cell {
    pub(crate) core: Driven,
    pub(crate) machines: Vec<Machine>,
    pub(crate) free: Vec<Free>,
    /// Which zones its nodes are in, a bit each.
    pub(crate) zones: u32,
    pub(crate) aggregate: Aggregate,
    begun: Instant,
}

impl Cell {
    /// One with these nodes, and this preset of placement.
    pub(crate) fn new(machines: &[Machine], preset: &str) -> Self {
        let policy = PolicyRules::preset(preset).expect("there is such a preset");
        let configuration = ClusterConfiguration {
            rules: Rules {
                policy,
                ..Rules::default()
            },
            ..ClusterConfiguration::default()
        };
        let config = Config {
            cpu_ratio: 1.0,
            ..Config::new(Uuid::from_u128(1))
        };
        let mut core = Driven::new(config, configuration);
        for (number, machine) in machines.iter().enumerate() {
            let session = session(number);
            core.connect(session, Role::AGENT);
            core.report(session, Report::Ready(Box::new(machine.report())));
            let stats = StatsReport {
                is_plain: true,
                ..StatsReport::default()
            };
            core.report(session, Report::Stats(Box::new(stats)));
        }
        let free = |machine: &Machine| Free {
            mem_gib: machine.mem_gib,
            vcpus: machine.vcpus,
            gpus: machine.gpus,
            ssd: machine.has_ssd,
        };
        let free: Vec<Free> = machines.iter().map(free).collect();
        Self {
            begun: core.now,
            core,
            machines: machines.to_vec(),
            zones: machines.iter().fold(0, |zones, it| zones | 1 << it.zone),
            aggregate: Aggregate::of(&free),
            free,
        }
    }

    /// Has the core place a START, so long after the beginning. Returns the node's place, `None` if it is refused.
    pub(crate) fn start(&mut self, at: Duration, request: &Request) -> Option<usize> {
        self.advance(at);
        let now = self.core.now;
        self.core.scheduler.handle(now, request.input());
        let mut node = None;
        while let Some(action) = self.core.scheduler.poll_action() {
            if let Action::Send {
                to,
                message: Message::Start(_),
            } = action
            {
                node = Some(place(to));
            }
        }
        self.change(node?, request, -1);
        node
    }

    /// What a START began has ended on its node.
    pub(crate) fn end(&mut self, at: Duration, request: &Request, node: usize) {
        self.advance(at);
        self.core
            .report(session(node), Report::InstanceDeleted(request.instance()));
        self.change(node, request, 1);
    }

    fn advance(&mut self, at: Duration) {
        self.core.now = self.begun + at;
        let due = self.core.scheduler.poll_timeout();
        if due.is_some_and(|due| due <= self.core.now) {
            self.core.handle(Input::Tick);
        }
    }

    fn change(&mut self, node: usize, request: &Request, times: i64) {
        let from = self.free[node];
        let gpus = match request.want {
            Want::Gpus(count) => count,
            _ => 0,
        };
        let to = Free {
            mem_gib: from.mem_gib + times * request.mem_gib,
            vcpus: from.vcpus + times * request.vcpus,
            gpus: from.gpus + times * gpus,
            ssd: from.ssd,
        };
        self.aggregate.change(&from, &to);
        self.free[node] = to;
    }
}
