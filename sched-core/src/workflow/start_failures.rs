//! How a START fails: the reason on the wire, who is notified, and in which form; and STARTs that all fail because the
//! scheduler leaves.
//!
//! Native peers get the full failure (cause, reasons by filter, attempts); original ones get the fields that ciao's
//! `payloads/startfailure.go` has.

use sched_model::StartFailureReason;

use crate::Scheduler;
use crate::api::declined::Refusal;
use crate::placement::explain::Explanation;

impl Scheduler {
    /// Fails every START that waits for something, because the scheduler is leaving and no one else knows of them. With
    /// a state directory, those that are on disk go on waiting when the scheduler is back, and only the others fail.
    pub(crate) fn fail_waiting(&mut self) {
        self.journal.leave();
        self.recovery.close();
        while let Some(start) = self.pending.take_for_nodes() {
            self.fail_start(&start, Refusal::Leaving);
        }
        self.set_recovery_timer();
        if self.config.durable {
            // What waits is on disk, and goes on waiting when the scheduler is back.
            if self.journal.is_in_trouble() {
                self.fail_unwritten();
            }
            return;
        }
        self.fail_batches();
        let untold = self
            .instances
            .iter()
            .filter(|(_, managed)| managed.state().is_not_given());
        let untold: Vec<_> = untold
            .map(|(instance, managed)| (instance.clone(), managed.state().node()))
            .collect();
        for (instance, node) in untold {
            if let Some(key) = node {
                self.cluster.release(key, &instance);
            }
            let why = Explanation::of(Refusal::Leaving.into());
            self.fail_managed(&instance, StartFailureReason::LaunchFailure, None, why);
        }
    }
}
