//! Which events an operator may be sent (added by this project).

use crate::words;

words! {
    /// A kind of events.
    pub enum Topic {
        /// Nodes that come and go, and how far drains are: NodeConnected, NodeDisconnected, DrainProgress.
        Nodes = "nodes",
        /// What becomes of instances: InstanceDeleted, InstanceStopped, InstanceQueued, InstanceState,
        /// ConcentratorInstanceAdded and the like.
        Instances = "instances",
        /// The ERROR frames that controllers get, CommandFailure among them.
        Failures = "failures",
        /// The launchers' STATS.
        Stats = "stats",
        /// STARTs given to nodes: InstancePlaced.
        Placements = "placements",
        /// What the scheduler itself does: Reloaded.
        Scheduler = "scheduler",
    }
}
