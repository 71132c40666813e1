//! How far instances are, from the scheduler's listings, and whether a refused START is worth another try.
//!
//! Each instance of an adapter has a [`Tracker`] of its own, which events and listings go to.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::start_file::StartRequest;
use ciao_scheduler::ctl::track::{Absence, Tracker, Until};
use proto_frames::payload::{InstanceView, StartFailureReason};
use tokio::time::Instant;

/// A tracker for this one instance, followed to its end; `name` is for people. The payload is empty, for the tracker
/// compares nothing but the UUID.
#[must_use]
pub fn tracker(name: String, instance_uuid: String) -> Tracker {
    let request = StartRequest {
        name,
        instance_uuid,
        payload: Bytes::new(),
    };
    Tracker::new(&[request], Until::Exited)
}

/// What a listing says of instances, by UUID; of several views with the same UUID the last counts.
#[derive(Debug)]
pub struct Listed<'a> {
    instances: HashMap<&'a str, &'a InstanceView>,
    ended: HashMap<&'a str, &'a InstanceView>,
    absence: Absence,
}

impl<'a> Listed<'a> {
    /// The instances that a listing has, and those that have ended.
    ///
    /// Until `back_by` one that is neither may still come back with its node: right after a connection, a scheduler that
    /// was restarted may not list what its launchers have not yet reported.
    #[must_use]
    pub fn new(
        instances: &'a [InstanceView],
        ended: &'a [InstanceView],
        now: Instant,
        back_by: Instant,
    ) -> Self {
        Self {
            instances: by_uuid(instances),
            ended: by_uuid(ended),
            absence: match now < back_by {
                true => Absence::MayReturn,
                false => Absence::Final,
            },
        }
    }

    /// Gives a [`tracker`] what the listing says of its instance; true if the stage changed.
    pub fn observe(&self, instance_uuid: &str, tracker: &mut Tracker) -> bool {
        let one = |views: &HashMap<&str, &InstanceView>| {
            let view = views.get(instance_uuid);
            view.map(|&view| view.clone())
        };
        let listed = one(&self.instances);
        let mut changed = Vec::new();
        if listed.is_none() {
            // Its UUID is its alone: however long ago it ended, it is this one.
            let ended = one(&self.ended);
            changed.extend(tracker.observe_ended(ended.as_slice(), Duration::MAX));
        }
        changed.extend(tracker.observe_listing(listed.as_slice(), self.absence, |_| true));
        !changed.is_empty()
    }
}

fn by_uuid(views: &[InstanceView]) -> HashMap<&str, &InstanceView> {
    views.iter().map(|it| (&*it.instance_uuid, it)).collect()
}

/// Whether a START that was refused for this reason may be taken later as it is.
///
/// A full cluster, a cluster without nodes, a wait that ran out, a scheduler whose disk takes no records, and an
/// instance of this UUID that still exists are states that pass. Any other reason, also one that this version does not
/// know, would be given again.
#[must_use]
pub const fn is_temporary(reason: &StartFailureReason) -> bool {
    type Why = StartFailureReason;
    matches!(
        reason,
        Why::FullCloud
            | Why::FullComputeNode
            | Why::NodeMaintenance
            | Why::NoComputeNodes
            | Why::NoNetworkNodes
            | Why::QueueTimeout
            | Why::AlreadyRunning
            | Why::InstanceExists
            | Why::NotRecorded
    )
}

#[cfg(test)]
mod tests {
    use ciao_scheduler::ctl::track::Stage;
    use proto_frames::payload::PlacementState;

    use super::*;

    const UUID: &str = "5f0c1e2a-0000-4000-8000-000000000001";

    fn view(state: PlacementState) -> InstanceView {
        InstanceView {
            instance_uuid: UUID.to_owned(),
            state,
            ..InstanceView::default()
        }
    }

    /// The stage of an instance that was sent before a restart, after such a listing.
    fn stage(listed: &Listed<'_>) -> (bool, Stage) {
        let mut tracker = tracker("it".to_owned(), UUID.to_owned());
        tracker.reattach();
        let is_changed = listed.observe(UUID, &mut tracker);
        (is_changed, tracker.all()[0].stage.clone())
    }

    #[test]
    fn what_is_not_listed_vanishes_once_it_cannot_come_back() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        assert_eq!(
            stage(&Listed::new(&[], &[], now, later)),
            (false, Stage::Sent)
        );
        assert_eq!(
            stage(&Listed::new(&[], &[], later, later)),
            (true, Stage::Vanished)
        );
    }

    #[test]
    fn an_instance_that_runs_has_not_ended_whatever_else_is_listed() {
        let now = Instant::now();
        let running = [view(PlacementState::Running)];
        let ended = [InstanceView {
            exit_code: Some(0),
            ..view(PlacementState::Ended)
        }];
        assert_eq!(
            stage(&Listed::new(&running, &ended, now, now)),
            (true, Stage::Running)
        );
        assert_eq!(
            stage(&Listed::new(&[], &ended, now, now)),
            (true, Stage::Ended { exit_code: Some(0) })
        );
    }

    #[test]
    fn a_reason_that_is_not_known_is_not_temporary() {
        assert!(is_temporary(&StartFailureReason::FullCloud));
        assert!(!is_temporary(&StartFailureReason::from("no_such_reason")));
    }
}
