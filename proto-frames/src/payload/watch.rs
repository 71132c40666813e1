//! WATCH: which events an operator wants to be sent from now on (added by this project).

use sched_model::{record, words};

use super::document::payload;
use super::guard::SMALL;

record! {
    /// `watch: {topics: […]}`; an empty list ends it.
    pub struct Watch {
        /// The topics; those of an earlier WATCH no longer count.
        topics: Vec<Topic> as "topics",
    }
}

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
    }
}

payload!(Watch under "watch", SMALL);
