//! How scenes begin: clusters of a node or two on which something runs, waits, moves or was preempted already.

use std::time::Duration;

use proto_frames::payload::StartFailureReason;
use sched_core::{Config, IN_DOUBT_TIME, SessionId, StartRequest};

use super::durability::leased;
use super::preemption::{cpus, frozen};
use super::requests::Asking;
use super::world::{World, config, known_node, request, running};

/// The only StartFailure that a peer is told.
pub(crate) fn one_failure(
    name: &str,
    reason: StartFailureReason,
) -> [(String, StartFailureReason); 1] {
    [(name.to_owned(), reason)]
}

impl World {
    /// A controller, and no node.
    pub(crate) fn with_controller(mut self) -> (Self, SessionId) {
        let controller = self.controller();
        (self, controller)
    }

    /// A controller, and a node of this much memory.
    pub(crate) fn with_node(self, mem: i64) -> (Self, SessionId, SessionId) {
        let (world, controller, [node]) = self.with_nodes([mem]);
        (world, controller, node)
    }

    /// A controller, and nodes of this much memory, numbered from 1.
    pub(crate) fn with_nodes<const N: usize>(
        mut self,
        mems: [i64; N],
    ) -> (Self, SessionId, [SessionId; N]) {
        let controller = self.controller();
        let mut numbers = 1..;
        let nodes = mems.map(|mem| {
            let number = numbers.next().expect("there is always a next number");
            self.node_with(number, mem)
        });
        (self, controller, nodes)
    }

    /// One that expects nodes 1 to `nodes` back, as after a restart.
    pub(crate) fn expecting(nodes: u64) -> Self {
        Self::with(Config {
            known_nodes: (1..=nodes).map(known_node).collect(),
            ..config()
        })
    }

    /// A controller, and a node with a lease that runs this instance, which is placed again once its node is lost.
    pub(crate) fn with_leased(self, name: &str) -> (Self, SessionId, SessionId) {
        let (mut world, controller) = self.with_controller();
        let node = leased(&mut world, 1, 100);
        world.place_as(controller, request(name, 50).restarting());
        world.stats_seen(node, Some(1), vec![running(name, 1)]);
        (world, controller, node)
    }

    /// A node's connection ends, and it does not come back in the time in which it may.
    pub(crate) fn lose(&mut self, node: SessionId) {
        self.cut(node);
        self.advance(IN_DOUBT_TIME + Duration::from_secs(1));
    }

    /// A controller, and a node of 100 MiB that was given `a`, which asks for all of it.
    pub(crate) fn with_full_node(self) -> (Self, SessionId, SessionId) {
        let (mut world, controller, node) = self.with_node(100);
        world.place(controller, "a", 100);
        (world, controller, node)
    }

    /// A controller, and a node of 1,000 MiB and 4 CPUs on which these run; its launcher can suspend.
    pub(crate) fn with_running(
        mut self,
        starts: impl IntoIterator<Item = StartRequest>,
    ) -> (Self, SessionId, SessionId) {
        let (controller, node) = (self.controller(), self.able(1, 1000, 4));
        self.run_on(controller, node, starts.into_iter().collect());
        (self, controller, node)
    }

    /// Such a node with all CPUs taken by `high`, for which `low` was suspended.
    pub(crate) fn preempted() -> (Self, SessionId, SessionId) {
        let (mut world, controller, node) =
            Self::with_preemption().with_running([cpus("low", 4, 10)]);
        world.preempt(controller, node, "low", cpus("high", 4, 90));
        world.look_away();
        (world, controller, node)
    }

    /// A START takes the CPUs of an instance, which is suspended for it.
    pub(crate) fn preempt(
        &mut self,
        controller: SessionId,
        node: SessionId,
        victim: &str,
        start: StartRequest,
    ) {
        let name = start.instance.to_string();
        self.start_as(controller, start);
        self.suspended(node, victim);
        self.stats(node, vec![frozen(victim), running(&name, 0)]);
    }

    /// Such a node whose only instance, `it`, has all CPUs and was suspended by command.
    pub(crate) fn with_suspended(self) -> (Self, SessionId, SessionId) {
        let (mut world, controller, node) = self.with_running([cpus("it", 4, 50)]);
        world.ask_suspend(controller, "it");
        world.suspended(node, "it");
        (world, controller, node)
    }

    /// A controller, a node that runs `a` (600 MiB, movable), and an empty one.
    pub(crate) fn with_movable() -> (Self, SessionId, SessionId, SessionId) {
        let (mut world, controller, source) = Self::new().with_node(1000);
        world.run_movable(controller, source, request("a", 600).movable(), &["a"]);
        let target = world.node_with(2, 1000);
        world.list(target, &[]);
        world.look_away();
        (world, controller, source, target)
    }

    /// The same while `a` moves: its node was told to stop it.
    pub(crate) fn with_moving() -> (Self, SessionId, SessionId, SessionId) {
        let (mut world, controller, source, target) = Self::with_movable();
        world.migrate(controller, "a", Some(target));
        world.look_away();
        (world, controller, source, target)
    }
}
