//! Memory of instances whose processes are limited one by one: what they hold together is looked at with each sample, also
//! while there is no connection. Which of them hold too much, the machine finds out: pages that they share count in a
//! sample for each of them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::instances::InstancePhase;
use super::{Agent, AgentAction, Link, Runs, Usage};

impl Agent {
    /// When the machine is looked at next: for a report, or, where there is no connection, for what runs.
    pub(super) fn sample_at(&self) -> Option<Instant> {
        match &self.link {
            _ if self.sampling => None,
            Link::Up { report_at, .. } => Some(*report_at),
            Link::Down { look_at } => {
                let are_watched = self.settings.runs == Runs::Processes;
                look_at.filter(|_| are_watched && self.instances.sums().live > 0)
            }
        }
    }

    /// Has those looked at more closely that seem to hold more memory than they may.
    pub(super) fn check_memory(&mut self, now: Instant, usage: &BTreeMap<String, Usage>) {
        if let Link::Down { look_at } = &mut self.link {
            *look_at = Some(now + self.settings.report_interval);
        }
        for (id, usage) in usage {
            let Some(instance) = self.instances.get(id) else {
                continue;
            };
            let mem_mb = instance.held(|demand| demand.mem_mb);
            if instance.state == InstancePhase::Running && usage.mem_mb > mem_mb {
                let instance = id.clone();
                self.order(AgentAction::CheckMemory { instance, mem_mb });
            }
        }
    }
}
