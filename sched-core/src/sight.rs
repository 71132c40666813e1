//! What is read to decide: all components as they are at the time of one input, shared. What needs several of them is a
//! method of [`Sight`], and what needs one is a method of that one.

use std::time::Instant;

use crate::Scheduler;
use crate::api::clock::Clock;
use crate::api::config::Config;
use crate::arrays::Arrays;
use crate::cluster::Cluster;
use crate::instance::Instances;
use crate::journal::Journal;
use crate::peers::Peers;
use crate::pending::Pending;
use crate::placement::Placement;
use crate::queue::Queue;
use crate::recovery::Recovery;

/// All components, to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) cluster: &'a Cluster,
    pub(crate) peers: &'a Peers,
    pub(crate) placement: &'a Placement,
    pub(crate) recovery: &'a Recovery,
    pub(crate) instances: &'a Instances,
    pub(crate) queue: &'a Queue,
    pub(crate) journal: &'a Journal,
    pub(crate) pending: &'a Pending,
    pub(crate) arrays: &'a Arrays,
}

impl Scheduler {
    /// The components as they are now.
    #[inline]
    pub(crate) fn sight(&self) -> Sight<'_> {
        Sight {
            now: self.now,
            config: &self.config,
            clock: &self.clock,
            cluster: &self.cluster,
            peers: &self.peers,
            placement: &self.placement,
            recovery: &self.recovery,
            instances: &self.instances,
            queue: &self.queue,
            journal: &self.journal,
            pending: &self.pending,
            arrays: &self.arrays,
        }
    }
}
