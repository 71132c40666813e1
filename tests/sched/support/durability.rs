//! Schedulers that crash with a disk, and launchers that stop what they run when they are cut off.

use std::time::Duration;

use sched_core::{Capabilities, Config, NodeExtras, NodeReport, Report, Rules, SessionId};

use super::world::{AT_THE_BEGINNING, Size, World, config, id, known_node, report};

/// How long a launcher's lease lasts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A scheduler that puts what must last on disk.
pub(crate) fn durable() -> Config {
    Config {
        durable: true,
        start_unix_ms: AT_THE_BEGINNING,
        ..config()
    }
}

/// The scheduler crashes; the nodes it knew are expected back.
pub(crate) fn crash(world: &mut World, nodes: u64) {
    let config = Config {
        known_nodes: (1..=nodes).map(known_node).collect(),
        ..config()
    };
    world.crash(config, Rules::default());
}

/// A node whose launcher stops what it runs when it is cut off.
pub(crate) fn leased(world: &mut World, number: u64, mem: i64) -> SessionId {
    let node = world.silent_node(number);
    leased_ready(world, node, mem);
    node
}

/// The same, whose launcher can suspend as well.
pub(crate) fn leased_able(world: &mut World, number: u64, mem: i64) -> SessionId {
    let node = world.silent_node(number);
    let capabilities = Capabilities::LEASE.and(Capabilities::SUSPEND);
    leased_as(world, node, mem, capabilities);
    node
}

/// READY of such a node.
pub(crate) fn leased_ready(world: &mut World, node: SessionId, mem: i64) {
    leased_as(world, node, mem, Capabilities::LEASE);
}

fn leased_as(world: &mut World, node: SessionId, mem: i64, capabilities: Capabilities) {
    let extras = NodeExtras {
        capabilities,
        lease: Some(LEASE),
        ..NodeExtras::default()
    };
    let size = Size::of_mem(mem);
    let report = NodeReport {
        extras: Some(Box::new(extras)),
        ..report(size)
    };
    world.report(node, report);
}

impl World {
    /// A launcher says that it stopped an instance because its lease was over.
    pub(crate) fn cut_off(&mut self, node: SessionId, name: &str) {
        self.say(node, Report::InstanceCutOff(id(name)));
    }
}
