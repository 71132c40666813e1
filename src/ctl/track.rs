//! What has become of the instances that were started: a small state machine over events and listings, without IO.

use std::collections::HashMap;

use proto_frames::Kind;
use proto_frames::payload::{
    InstancePlaced, InstanceView, PlacementDecision, PlacementState, Reason,
};
use serde_json::{Value, json};

use crate::ctl::event::text::decision;
use crate::ctl::event::{Event, refused_kind};
use crate::ctl::exit::Exit;
use crate::ctl::explanation::reasons_json;
use crate::ctl::start_file::StartRequest;
use crate::ctl::units::{plain, short};

/// How far an instance has to come before it is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// Given to a node.
    Placed,
    /// Reported as running by its node.
    Running,
    /// Ended.
    Exited,
}

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Sent to the scheduler.
    Sent,
    /// Given to its node.
    Placed,
    /// Reported as running.
    Running,
    /// It ended on its node.
    Ended {
        /// The exit status, where the launcher tells it; negative or above 128 as the launcher has it.
        exit_code: Option<i64>,
    },
    /// It was not started.
    Failed {
        /// The protocol's word for why.
        reason: String,
        /// The scheduler's explanation.
        detail: Option<String>,
        /// Why nodes did not fit.
        reasons: Vec<Reason>,
    },
    /// It was a dry run, and this is the answer.
    Decided(Box<PlacementDecision>),
    /// The scheduler no longer knows it, and nothing said why.
    Vanished,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// Where its START came from: a file's name, or the program's.
    pub name: String,
    /// Its UUID.
    pub instance_uuid: String,
    /// The node it was given to: UUID and host name.
    pub node: Option<(String, String)>,
    /// How far it is.
    pub stage: Stage,
}

/// All instances of a command, in the order they were asked for.
#[derive(Debug, Clone)]
pub struct Tracker {
    until: Until,
    all: Vec<Tracked>,
    index: HashMap<String, usize>,
    open: usize,
}

impl Tracker {
    /// Tracks the instances of these requests until they are so far.
    #[must_use]
    pub fn new(requests: &[StartRequest], until: Until) -> Self {
        let tracked = |request: &StartRequest| Tracked {
            name: request.name.clone(),
            instance_uuid: request.instance_uuid.clone(),
            node: None,
            stage: Stage::Sent,
        };
        let all: Vec<Tracked> = requests.iter().map(tracked).collect();
        let index = all
            .iter()
            .enumerate()
            .map(|(i, t)| (t.instance_uuid.clone(), i))
            .collect();
        Self {
            until,
            open: all.len(),
            all,
            index,
        }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Tracked] {
        &self.all
    }

    /// Whether every one is done with.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open == 0
    }

    /// Those not done with.
    pub fn open(&self) -> impl Iterator<Item = &Tracked> {
        self.all
            .iter()
            .filter(|tracked| !self.is_done(&tracked.stage))
    }

    /// Takes an event in; the instance whose stage it changed, if it did.
    pub fn observe(&mut self, event: &Event) -> Option<&Tracked> {
        let at = self.subject(event)?;
        let stage = match event {
            Event::Placed(placed) => return self.placed(at, placed),
            Event::StartFailure(failure) => Stage::Failed {
                reason: failure.reason.to_string(),
                detail: failure.detail.clone(),
                reasons: failure.reasons.clone(),
            },
            Event::Decided(decision) => Stage::Decided(decision.clone()),
            Event::Refused(refused) => Stage::Failed {
                reason: refused.reason.to_string(),
                detail: Some(refused.detail.clone()),
                reasons: Vec::new(),
            },
            Event::InstanceStopped(stopped) => Stage::Ended {
                exit_code: stopped.exit_code,
            },
            Event::InstanceDeleted(deleted) => Stage::Ended {
                exit_code: deleted.exit_code,
            },
            _ => return None,
        };
        self.advance(at, stage)
    }

    /// Takes the scheduler's list of instances in; those whose stage it changed. A listing of only some instances must
    /// be restricted with `concerns` to those.
    pub fn observe_listing(
        &mut self,
        listed: &[InstanceView],
        concerns: impl Fn(&Tracked) -> bool,
    ) -> Vec<Tracked> {
        let listed: HashMap<&str, &InstanceView> = listed
            .iter()
            .map(|i| (i.instance_uuid.as_str(), i))
            .collect();
        let mut changed = Vec::new();
        for at in 0..self.all.len() {
            let tracked = &self.all[at];
            if !concerns(tracked) || !matches!(tracked.stage, Stage::Placed | Stage::Running) {
                continue;
            }
            let stage = match listed.get(tracked.instance_uuid.as_str()) {
                None => Stage::Vanished,
                Some(view) if is_running(view) => Stage::Running,
                Some(_) => continue,
            };
            changed.extend(self.advance(at, stage).cloned());
        }
        changed
    }

    /// How the command that asked for them ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let of = |tracked: &Tracked| match &tracked.stage {
            Stage::Failed { .. } | Stage::Vanished => Exit::Refused,
            Stage::Decided(decision) if decision.fits < decision.count => Exit::Refused,
            Stage::Ended {
                exit_code: Some(code),
            } if *code != 0 && self.until > Until::Placed => Exit::Workload,
            stage if self.is_done(stage) => Exit::Done,
            _ => Exit::Timeout,
        };
        self.all.iter().map(of).fold(Exit::Done, Exit::and)
    }

    /// The instance an event is about: by its UUID, or, for a refused START that names none, the only one without an
    /// answer. (A StartFailure that names none may be about anybody's.)
    fn subject(&self, event: &Event) -> Option<usize> {
        match (event, event.instance_uuid()) {
            (_, Some(id)) if !id.is_empty() => self.index.get(id).copied(),
            (Event::Refused(refused), _) if refused_kind(refused) == Kind::START => {
                let is_open = |(_, tracked): &(usize, &Tracked)| tracked.stage == Stage::Sent;
                let mut sent = self.all.iter().enumerate().filter(is_open);
                match (sent.next(), sent.next()) {
                    (Some((only, _)), None) => Some(only),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A START can be given to a second node, when the first went away before it had it.
    fn placed(&mut self, at: usize, placed: &InstancePlaced) -> Option<&Tracked> {
        let node = Some((placed.node_uuid.clone(), placed.hostname.clone()));
        let moved = self.all[at].node != node;
        match self.all[at].stage {
            Stage::Sent => {
                self.all[at].node = node;
                self.advance(at, Stage::Placed)
            }
            Stage::Placed | Stage::Running if moved => {
                self.all[at].node = node;
                Some(&self.all[at])
            }
            _ => None,
        }
    }

    fn advance(&mut self, at: usize, stage: Stage) -> Option<&Tracked> {
        let was_done = self.is_done(&self.all[at].stage);
        let ended = matches!(
            self.all[at].stage,
            Stage::Ended { .. } | Stage::Failed { .. } | Stage::Decided(_) | Stage::Vanished
        );
        if ended || self.all[at].stage == stage {
            return None;
        }
        self.all[at].stage = stage;
        self.open -= usize::from(!was_done && self.is_done(&self.all[at].stage));
        Some(&self.all[at])
    }

    fn is_done(&self, stage: &Stage) -> bool {
        match stage {
            Stage::Sent => false,
            Stage::Placed => self.until <= Until::Placed,
            Stage::Running => self.until <= Until::Running,
            Stage::Ended { .. } | Stage::Failed { .. } | Stage::Decided(_) | Stage::Vanished => {
                true
            }
        }
    }
}

/// Whether the scheduler's view says that the instance runs: its node has reported it, as nothing else but active.
fn is_running(view: &InstanceView) -> bool {
    view.state == PlacementState::Running
        && view
            .reported
            .as_deref()
            .is_none_or(|reported| reported == "active")
}

impl Tracked {
    /// One line for people: `UUID placed on node-a (4cb19522)`.
    #[must_use]
    pub fn line(&self) -> String {
        let at = self.node.as_ref().map_or_else(String::new, |(uuid, host)| {
            format!(" on {host} ({})", short(uuid))
        });
        let what = match &self.stage {
            Stage::Sent => "sent, no answer".to_owned(),
            Stage::Placed => format!("placed{at}"),
            Stage::Running => format!("running{at}"),
            Stage::Ended {
                exit_code: Some(code),
            } => format!("ended{at}: exit status {code}"),
            Stage::Ended { exit_code: None } => format!("ended{at}"),
            Stage::Failed {
                reason,
                detail: Some(detail),
                ..
            } => format!("failed{at}: {reason}: {detail}"),
            Stage::Failed {
                reason,
                detail: None,
                ..
            } => format!("failed{at}: {reason}"),
            Stage::Decided(decided) => decision(decided),
            Stage::Vanished => format!("vanished{at}: the scheduler no longer knows it"),
        };
        plain(&format!("{} {what}", self.instance_uuid)).into_owned()
    }

    /// Why nodes did not fit, if that is why it failed.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        match &self.stage {
            Stage::Failed { reasons, .. } => reasons,
            Stage::Decided(decision) => &decision.reasons,
            _ => &[],
        }
    }

    /// An object with stable names.
    #[must_use]
    pub fn json(&self) -> Value {
        let (outcome, exit_code, reason, detail) = match &self.stage {
            Stage::Sent => ("sent", None, None, None),
            Stage::Placed => ("placed", None, None, None),
            Stage::Running => ("running", None, None, None),
            Stage::Ended { exit_code } => ("ended", *exit_code, None, None),
            Stage::Failed { reason, detail, .. } => ("failed", None, Some(reason), detail.as_ref()),
            Stage::Decided(_) => ("decided", None, None, None),
            Stage::Vanished => ("vanished", None, None, None),
        };
        json!({
            "name": self.name,
            "instance_uuid": self.instance_uuid,
            "node_uuid": self.node.as_ref().map(|(uuid, _)| uuid),
            "hostname": self.node.as_ref().map(|(_, hostname)| hostname),
            "outcome": outcome,
            "exit_code": exit_code,
            "reason": reason,
            "detail": detail,
            "reasons": reasons_json(self.reasons()),
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto_frames::payload::{
        CommandRefused, InstanceDeleted, InstanceStopped, RefusalReason, StartFailure,
        StartFailureReason,
    };

    use super::*;

    fn tracker(ids: &[&str], until: Until) -> Tracker {
        let request = |id: &&str| StartRequest {
            name: "a.yaml".into(),
            instance_uuid: (*id).into(),
            payload: Bytes::new(),
        };
        Tracker::new(&ids.iter().map(request).collect::<Vec<_>>(), until)
    }

    fn placed(id: &str, host: &str) -> Event {
        Event::Placed(InstancePlaced {
            instance_uuid: id.into(),
            node_uuid: format!("{host}-uuid-0123"),
            hostname: host.into(),
        })
    }

    fn stopped(id: &str, exit_code: Option<i64>) -> Event {
        Event::InstanceStopped(InstanceStopped {
            instance_uuid: id.into(),
            exit_code,
            cut_off: false,
        })
    }

    fn failed(id: &str) -> Event {
        Event::StartFailure(Box::new(StartFailure {
            instance_uuid: id.into(),
            reason: StartFailureReason::FullCloud,
            detail: Some("no room".into()),
            ..StartFailure::default()
        }))
    }

    fn view(id: &str, state: PlacementState, reported: Option<&str>) -> InstanceView {
        InstanceView {
            instance_uuid: id.into(),
            state,
            reported: reported.map(Into::into),
            ..InstanceView::default()
        }
    }

    #[test]
    fn without_waiting_a_placement_is_the_end_of_it() {
        let mut tracker = tracker(&["i1", "i2"], Until::Placed);
        assert_eq!(
            tracker.observe(&placed("i1", "a")).unwrap().line(),
            "i1 placed on a (a-uuid-0)"
        );
        assert!(!tracker.is_settled());
        assert_eq!(
            tracker.observe(&failed("i2")).unwrap().line(),
            "i2 failed: full_cloud: no room"
        );
        assert!(tracker.is_settled());
        assert_eq!(tracker.exit(), Exit::Refused);
    }

    #[test]
    fn a_workload_that_ends_badly_says_so_in_the_exit_code() {
        for (exit_code, exit) in [
            (Some(0), Exit::Done),
            (Some(3), Exit::Workload),
            (None, Exit::Done),
        ] {
            let mut tracker = tracker(&["i1"], Until::Exited);
            tracker.observe(&placed("i1", "a"));
            assert_eq!(tracker.exit(), Exit::Timeout, "still open");
            tracker.observe(&stopped("i1", exit_code));
            assert!(tracker.is_settled());
            assert_eq!(tracker.exit(), exit, "{exit_code:?}");
        }
    }

    #[test]
    fn running_is_what_the_node_reports_as_active() {
        let mut tracker = tracker(&["i1"], Until::Running);
        tracker.observe(&placed("i1", "a"));
        for not_yet in [
            view("i1", PlacementState::Placed, None),
            view("i1", PlacementState::Running, Some("pending")),
            view("i1", PlacementState::InDoubt, Some("active")),
        ] {
            assert!(tracker.observe_listing(&[not_yet], |_| true).is_empty());
        }
        let active = view("i1", PlacementState::Running, Some("active"));
        assert_eq!(
            tracker.observe_listing(&[active], |_| true)[0].stage,
            Stage::Running
        );
        assert!(tracker.is_settled());
        assert_eq!(tracker.exit(), Exit::Done);
    }

    #[test]
    fn what_ends_before_it_was_seen_running_counts_as_ended() {
        let mut tracker = tracker(&["i1"], Until::Running);
        tracker.observe(&placed("i1", "a"));
        tracker.observe(&stopped("i1", Some(1)));
        assert!(tracker.is_settled());
        assert_eq!(tracker.exit(), Exit::Workload);
    }

    #[test]
    fn an_instance_that_the_scheduler_forgot_has_vanished() {
        let mut tracker = tracker(&["i1", "i2"], Until::Exited);
        tracker.observe(&placed("i1", "a"));
        let changed = tracker.observe_listing(&[], |_| true);
        assert_eq!(
            changed.len(),
            1,
            "i2 was not placed yet, so nobody need know it"
        );
        assert_eq!(changed[0].stage, Stage::Vanished);
        assert!(
            tracker.observe(&stopped("i1", Some(0))).is_none(),
            "an end is an end"
        );
    }

    #[test]
    fn a_start_given_to_a_second_node_is_there() {
        let mut tracker = tracker(&["i1"], Until::Exited);
        tracker.observe(&placed("i1", "a"));
        assert!(tracker.observe(&placed("i1", "a")).is_none(), "no news");
        assert_eq!(
            tracker
                .observe(&placed("i1", "b"))
                .unwrap()
                .node
                .as_ref()
                .unwrap()
                .1,
            "b"
        );
        tracker.observe(&Event::InstanceDeleted(InstanceDeleted {
            instance_uuid: "i1".into(),
            exit_code: None,
        }));
        assert_eq!(tracker.all()[0].line(), "i1 ended on b (b-uuid-0)");
    }

    #[test]
    fn a_refusal_that_names_nobody_is_for_the_only_start_without_an_answer() {
        let refused = Event::Refused(CommandRefused {
            ty: Kind::START.ty.0,
            operand: Kind::START.operand,
            reason: RefusalReason::NotPermitted,
            detail: "no".into(),
            ..CommandRefused::default()
        });
        let mut two = tracker(&["i1", "i2"], Until::Placed);
        assert!(two.observe(&refused).is_none(), "it could be either");
        two.observe(&placed("i1", "a"));
        assert_eq!(two.observe(&refused).unwrap().instance_uuid, "i2");
        assert!(two.observe(&placed("stranger", "a")).is_none());
    }

    #[test]
    fn a_failure_that_names_nobody_may_be_anybodys() {
        let mut one = tracker(&["i1"], Until::Exited);
        assert!(one.observe(&failed("")).is_none());
        one.observe(&placed("i1", "a"));
        assert!(
            one.observe(&failed("i1")).is_some(),
            "also after it was given to a node"
        );
        assert_eq!(one.exit(), Exit::Refused);
    }

    #[test]
    fn the_answer_to_a_dry_run_is_the_end_of_it() {
        for (fits, exit) in [(1, Exit::Done), (0, Exit::Refused)] {
            let mut tracker = tracker(&["i1"], Until::Exited);
            let decision = PlacementDecision {
                instance_uuid: "i1".into(),
                count: 1,
                fits,
                ..PlacementDecision::default()
            };
            assert!(
                tracker
                    .observe(&Event::Decided(Box::new(decision)))
                    .is_some()
            );
            assert!(tracker.is_settled());
            assert_eq!(tracker.exit(), exit);
        }
    }

    #[test]
    fn json_names_every_outcome() {
        let mut tracker = tracker(&["i1"], Until::Exited);
        assert_eq!(tracker.all()[0].json()["outcome"], "sent");
        tracker.observe(&placed("i1", "a"));
        tracker.observe(&stopped("i1", Some(3)));
        let json = tracker.all()[0].json();
        assert_eq!(
            (&json["outcome"], &json["exit_code"]),
            (&"ended".into(), &3.into())
        );
        assert_eq!(json["hostname"], "a");
        assert_eq!(json["reason"], Value::Null);
    }
}
