//! How far instances are, from the scheduler's listings, and whether a refused START is worth another try.
//!
//! Each instance of an adapter has a [`Tracker`] of its own, which events and listings go to.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::client::Ended;
use ciao_scheduler::ctl::start_file::StartRequest;
use ciao_scheduler::ctl::track::{Absence, Tracker, Until};
use proto_frames::payload::{InstanceView, PlacementState, StartFailureReason};
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

/// What a listing has told about one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Nothing new.
    Same,
    /// The tracker's stage is another one.
    Changed,
    /// It is not there any more, and the history of ends does not reach back to when it was sent: it may have run and
    /// ended, and it is not known how. The tracker's stage is `Stage::Ended` without an exit status; the instance is
    /// not to be sent again.
    EndedUnseen,
}

/// What a listing says of instances, by UUID; of several views with the same UUID the last counts.
#[derive(Debug)]
pub struct Listed<'a> {
    instances: HashMap<&'a str, &'a InstanceView>,
    ended: HashMap<&'a str, &'a InstanceView>,
    /// For how long up to the listing no end was forgotten; `None` = not known.
    complete_for: Option<Duration>,
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
        ended: &'a Ended,
        now: Instant,
        back_by: Instant,
    ) -> Self {
        Self {
            instances: by_uuid(instances),
            ended: by_uuid(&ended.instances),
            complete_for: ended.complete_for,
            absence: match now < back_by {
                true => Absence::MayReturn,
                false => Absence::Final,
            },
        }
    }

    /// Gives a [`tracker`] what the listing says of its instance. `sent_for` is how long ago its START was sent for the
    /// first time; [`Duration::MAX`] where that is not known.
    ///
    /// One that is neither listed nor among the ended ones has `Stage::Vanished`, and may be sent again, only if the
    /// history of ends has no gap since it was sent: then it never ran. Else it has ended unseen.
    pub fn observe(&self, instance_uuid: &str, sent_for: Duration, tracker: &mut Tracker) -> Seen {
        let one = |views: &HashMap<&str, &InstanceView>| {
            let view = views.get(instance_uuid);
            view.map(|&view| view.clone())
        };
        let mut changed = Vec::new();
        let (listed, ended) = (one(&self.instances), one(&self.ended));
        let is_absent = listed.is_none() && ended.is_none() && self.absence == Absence::Final;
        let never_ran = self.complete_for.is_some_and(|time| sent_for < time);
        if is_absent && !never_ran {
            let unseen = [ended_unseen(instance_uuid)];
            changed.extend(tracker.observe_ended(&unseen, Duration::MAX));
            return match changed.is_empty() {
                true => Seen::Same,
                false => Seen::EndedUnseen,
            };
        }
        if listed.is_none() {
            // Its UUID is its alone: however long ago it ended, it is this one.
            changed.extend(tracker.observe_ended(ended.as_slice(), Duration::MAX));
        }
        changed.extend(tracker.observe_listing(listed.as_slice(), self.absence, |_| true));
        match changed.is_empty() {
            true => Seen::Same,
            false => Seen::Changed,
        }
    }
}

/// An end of which nothing is known.
fn ended_unseen(instance_uuid: &str) -> InstanceView {
    InstanceView {
        instance_uuid: instance_uuid.to_owned(),
        state: PlacementState::Ended,
        ..InstanceView::default()
    }
}

fn by_uuid(views: &[InstanceView]) -> HashMap<&str, &InstanceView> {
    views.iter().map(|it| (&*it.instance_uuid, it)).collect()
}

/// Whether a START was refused for this reason because the scheduler has an instance of its UUID. If it was a START of
/// one's own that was sent twice, the instance is there, and how it is shows in a listing.
#[must_use]
pub const fn is_there(reason: &StartFailureReason) -> bool {
    type Why = StartFailureReason;
    matches!(reason, Why::AlreadyRunning | Why::InstanceExists)
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

    use super::*;

    const UUID: &str = "5f0c1e2a-0000-4000-8000-000000000001";

    /// How long ago the instance of these tests was sent.
    const SENT_FOR: Duration = Duration::from_secs(60);

    fn view(state: PlacementState) -> InstanceView {
        InstanceView {
            instance_uuid: UUID.to_owned(),
            state,
            ..InstanceView::default()
        }
    }

    /// Ends since so many seconds, without a gap.
    fn ended(instances: &[InstanceView], seconds: u64) -> Ended {
        Ended {
            instances: instances.to_vec(),
            complete_for: Some(Duration::from_secs(seconds)),
            forgotten: 0,
        }
    }

    /// The stage of an instance that was sent before a restart, after such a listing.
    fn stage(listed: &Listed<'_>) -> (Seen, Stage) {
        let mut tracker = tracker("it".to_owned(), UUID.to_owned());
        tracker.reattach();
        let seen = listed.observe(UUID, SENT_FOR, &mut tracker);
        (seen, tracker.all()[0].stage.clone())
    }

    #[test]
    fn what_is_not_listed_vanishes_once_it_cannot_come_back() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let none = ended(&[], 61);
        assert_eq!(
            stage(&Listed::new(&[], &none, now, later)),
            (Seen::Same, Stage::Sent)
        );
        assert_eq!(
            stage(&Listed::new(&[], &none, later, later)),
            (Seen::Changed, Stage::Vanished)
        );
    }

    #[test]
    fn what_may_have_ended_and_been_forgotten_has_not_vanished() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        for forgotten in [ended(&[], 60), ended(&[], 0), Ended::default()] {
            assert_eq!(
                stage(&Listed::new(&[], &forgotten, now, later)),
                (Seen::Same, Stage::Sent)
            );
            let unseen = Stage::Ended { exit_code: None };
            assert_eq!(
                stage(&Listed::new(&[], &forgotten, later, later)),
                (Seen::EndedUnseen, unseen)
            );
        }
    }

    #[test]
    fn an_instance_that_runs_has_not_ended_whatever_else_is_listed() {
        let now = Instant::now();
        let running = [view(PlacementState::Running)];
        let succeeded = InstanceView {
            exit_code: Some(0),
            ..view(PlacementState::Ended)
        };
        let ended = ended(&[succeeded], 0);
        assert_eq!(
            stage(&Listed::new(&running, &ended, now, now)),
            (Seen::Changed, Stage::Running)
        );
        assert_eq!(
            stage(&Listed::new(&[], &ended, now, now)),
            (Seen::Changed, Stage::Ended { exit_code: Some(0) })
        );
    }

    #[test]
    fn a_reason_that_is_not_known_is_not_temporary() {
        assert!(is_temporary(&StartFailureReason::FullCloud));
        assert!(!is_temporary(&StartFailureReason::from("no_such_reason")));
    }
}
