//! Lines and objects for the lifecycle of instances, for drains and for nodes short of memory. [`super::text`] calls
//! these for its events; [`crate::ctl::operation`] and the `drain` command also use parts of the lines.
//!
//! The functions for people return the end of a line, without the instance or node in front, unless they say
//! otherwise.

use proto_frames::payload::{
    ArrayView, CommandFailure, DrainProgress, DrainState, InstanceQueued, InstanceStateEvent,
    LeadershipTransfer, NodePressure, PressureState, ReloadState, Reloaded, TransferState,
    UnmovableInstance,
};
use serde_json::{Value, json};

use super::text::node;
use crate::ctl::hosts::Hosts;
use crate::ctl::units::span_of_ms;

/// `waits, 3 of 12, priority 50, 29s left: no room`.
///
/// `deadline_ms` is what is left of the time that the START may wait.
#[must_use]
pub fn queued(event: &InstanceQueued) -> String {
    let (position, waiting) = (event.position, event.waiting);
    let left = event.deadline_ms.map_or_else(String::new, |ms| {
        let ms = i64::try_from(ms).unwrap_or(i64::MAX);
        format!(", {} left", span_of_ms(ms))
    });
    let priority = event.priority;
    let why = because(&event.detail);
    if position == 0 {
        return format!("waits{why}"); // the scheduler has not said where
    }
    format!("waits, {position} of {waiting}, priority {priority}{left}{why}")
}

/// `suspended on 4cb19522`, `migrating from 4cb19522 to beef0000: drain`.
///
/// In front of the nodes is the state in the protocol's words, behind them the detail, if there is one.
#[must_use]
pub fn transition(event: &InstanceStateEvent, hosts: &Hosts) -> String {
    let (node, target) = (
        hosts.named(&event.node_uuid),
        hosts.named(&event.target_node_uuid),
    );
    let place = match (&*node, &*target) {
        ("", "") => String::new(),
        (node, "") => format!(" on {node}"),
        ("", target) => format!(" to {target}"),
        (node, target) => format!(" from {node} to {target}"),
    };
    format!("{}{place}{}", event.state, because(&event.detail))
}

/// `migrate of instance i1 failed: no_room: …`, `drain of node n1 failed: timeout: …`.
///
/// Names its subject itself: the instance, or the node where the command was a drain.
#[must_use]
pub fn command_failure(event: &CommandFailure, hosts: &Hosts) -> String {
    let subject = match event.instance_uuid.as_str() {
        "" => node(&event.node_uuid, hosts),
        instance => format!("instance {instance}"),
    };
    let why = because(&event.detail);
    format!(
        "{} of {subject} failed: {}{why}",
        event.command, event.reason
    )
}

/// How many of those that fit nowhere else one line names.
const NAMED_UNMOVABLE: usize = 2;

/// `moving: 1 of 4 moved, 2 on their way, 1 left; 1 fits nowhere else: i1 (it is pinned)`.
///
/// A check that found nothing to move says only that; any other check says how many there are and how many fit nowhere
/// else.
#[must_use]
pub fn drain(event: &DrainProgress) -> String {
    // A check names them in its own words.
    if event.state == DrainState::Checking {
        return drain_counts(event);
    }
    let named = event.unmovable.iter().take(NAMED_UNMOVABLE);
    let named: Vec<_> = named
        .map(|it| match &*it.name {
            "" => format!("{} ({})", it.instance_uuid, it.detail),
            name => format!("{name} ({})", it.detail),
        })
        .collect();
    let more = if event.unmovable.len() > NAMED_UNMOVABLE {
        ", and others"
    } else {
        ""
    };
    let named = because(&format!("{}{more}", named.join(", ")));
    format!("{}{named}", drain_counts(event))
}

/// As [`drain`], but those that fit nowhere else are counted and not named.
#[must_use]
pub fn drain_counts(event: &DrainProgress) -> String {
    let unmovable = match event.unmovable_count {
        0 => String::new(),
        1 => "; 1 fits nowhere else".to_owned(),
        count => format!("; {count} fit nowhere else"),
    };
    let why = because(&event.detail);
    let (state, total) = (&event.state, event.total);
    if event.state == DrainState::Checking && total == 0 {
        return format!("{state}: nothing to move");
    }
    if event.state == DrainState::Checking {
        // The reason of each follows where they are named.
        let why = if event.unmovable.is_empty() { &why } else { "" };
        return format!("{state}: {total} to move{unmovable}{why}");
    }
    let (moving, left, moved) = (event.moving, event.left, drain_moved(event, total));
    format!("{state}: {moved}, {moving} on their way, {left} left{unmovable}{why}")
}

/// `2 of 4 moved`, and what ended by itself or was deleted, which the node has reported gone as well.
fn drain_moved(event: &DrainProgress, total: u32) -> String {
    let moved = event.moved.saturating_sub(event.ended);
    match event.ended {
        0 => format!("{moved} of {total} moved"),
        ended => format!("{moved} of {total} moved, {ended} ended"),
    }
}

/// What a drain that is done has done: `2 moved, 1 ended`.
#[must_use]
pub fn drain_done(event: &DrainProgress) -> String {
    let moved = event.moved.saturating_sub(event.ended);
    match (moved, event.ended) {
        (moved, 0) => format!("{moved} moved"),
        (0, ended) => format!("{ended} ended"),
        (moved, ended) => format!("{moved} moved, {ended} ended"),
    }
}

/// An instance that cannot be moved: its name and UUID, or its UUID alone.
#[must_use]
pub fn unmovable_label(it: &UnmovableInstance) -> String {
    match &*it.name {
        "" => it.instance_uuid.clone(),
        name => format!("{name} ({})", it.instance_uuid),
    }
}

/// `(host) gets no new work: short of memory …`.
///
/// The scheduler sends the host name along; it stands in brackets because the caller puts the UUID of the node in
/// front.
#[must_use]
pub fn pressure(event: &NodePressure) -> String {
    let host = match &*event.hostname {
        "" => String::new(),
        host => format!("({host}) "),
    };
    let what = match &event.state {
        PressureState::Begun => format!("gets no new work{}", because(&event.detail)),
        PressureState::Over => "is not short of memory any more".to_owned(),
        PressureState::Moved => format!(
            "is short of memory: instance {} is moved away",
            event.instance_uuid
        ),
        PressureState::Stuck => "is short of memory, and nothing on it can be moved".to_owned(),
        PressureState::Other(state) => format!("{state}{}", because(&event.detail)),
    };
    format!("{host}{what}")
}

/// `instance_uuid` is empty except where an instance is moved away.
pub(super) fn pressure_json(event: &NodePressure) -> Value {
    json!({
        "event": "node_pressure", "node_uuid": event.node_uuid, "hostname": event.hostname,
        "state": event.state.as_str(), "detail": event.detail, "instance_uuid": event.instance_uuid,
    })
}

/// What came of reading files again.
#[must_use]
pub fn reloaded(event: &Reloaded) -> String {
    match &event.state {
        ReloadState::Taken => "scheduler has read its files again".to_owned(),
        state => format!(
            "scheduler has {state} what is in its files, and goes on as before{}",
            because(&event.reason)
        ),
    }
}

/// Which scheduler leads next, or why this one goes on.
#[must_use]
pub fn transfer(event: &LeadershipTransfer) -> String {
    match (&event.state, &*event.to) {
        (TransferState::Begun, "") => format!("{} hands over to any that stands by", event.from),
        (TransferState::Begun, to) => format!("{} hands over to {to}", event.from),
        (state, _) => format!("handing over is {state}{}", because(&event.reason)),
    }
}

/// `to` is null where any of several may lead next.
pub fn transfer_json(event: &LeadershipTransfer) -> Value {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    json!({
        "event": "leadership_transfer", "state": event.state.as_str(), "from": text(&event.from), "to": text(&event.to),
        "reason": event.reason,
    })
}

/// How far an array is.
#[must_use]
pub fn array(event: &ArrayView) -> String {
    let named = match &*event.name {
        "" => event.array_uuid.clone(),
        name => format!("{} ({name})", event.array_uuid),
    };
    let (ended, all, failed) = (event.ended(), event.elements, event.not_succeeded());
    let state = &event.state;
    format!("array {named} {state}: {ended} of {all} ended, {failed} of these without success")
}

/// As in the list of arrays.
pub fn array_json(event: &ArrayView) -> Value {
    let mut object = crate::ctl::commands::arrays::json_of(event);
    object["event"] = "array_state".into();
    object
}

/// `line` is null where the mistake is in no line.
pub fn reloaded_json(event: &Reloaded) -> Value {
    json!({
        "event": "reloaded", "state": event.state.as_str(), "by": event.by, "file": event.file,
        "line": event.line, "reason": event.reason,
    })
}

/// A detail behind a colon, or nothing.
///
/// Every line that can have a detail ends with it, so that a detail may contain colons of its own.
#[must_use]
pub fn because(detail: &str) -> String {
    match detail {
        "" => String::new(),
        detail => format!(": {detail}"),
    }
}

/// `position` is 0 where the scheduler did not say it; `deadline_ms` is null where the START may wait without limit.
pub(super) fn queued_json(event: &InstanceQueued) -> Value {
    json!({
        "event": "instance_queued", "instance_uuid": event.instance_uuid, "position": event.position,
        "waiting": event.waiting, "priority": event.priority, "deadline_ms": event.deadline_ms, "detail": event.detail,
    })
}

/// `target_node_uuid` is empty unless the instance is being moved.
pub(super) fn transition_json(event: &InstanceStateEvent) -> Value {
    json!({
        "event": "instance_state", "instance_uuid": event.instance_uuid, "state": event.state.as_str(),
        "node_uuid": event.node_uuid, "target_node_uuid": event.target_node_uuid, "priority": event.priority,
        "detail": event.detail,
    })
}

/// `instance_uuid` is empty for the drain of a node.
pub(super) fn command_failure_json(event: &CommandFailure) -> Value {
    json!({
        "event": "command_failure", "command": event.command.as_str(), "instance_uuid": event.instance_uuid,
        "node_uuid": event.node_uuid, "reason": event.reason.as_str(), "detail": event.detail,
    })
}

/// How far a drain is, for programs.
///
/// The `drain` command prints the same object without the key `event`. `misfits` names a limited number of instances;
/// `misfit_count` counts all of them.
#[must_use]
pub fn drain_json(event: &DrainProgress) -> Value {
    let object = |it: &UnmovableInstance| json!({"instance_uuid": it.instance_uuid, "name": it.name, "detail": it.detail});
    let unmovable: Vec<Value> = event.unmovable.iter().map(object).collect();
    json!({
        "event": "drain_progress", "node_uuid": event.node_uuid, "state": event.state.as_str(), "total": event.total,
        "moved": event.moved, "ended": event.ended, "moving": event.moving, "left": event.left, "misfits": unmovable,
        "misfit_count": event.unmovable_count, "detail": event.detail,
    })
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::{CommandFailureReason, LifecycleCommand, PhaseName};

    use super::*;

    #[test]
    fn a_start_that_waits_says_where_and_why() {
        let mut event = InstanceQueued {
            instance_uuid: "i1".into(),
            position: 3,
            priority: 50,
            waiting: 12,
            ..InstanceQueued::default()
        };
        assert_eq!(queued(&event), "waits, 3 of 12, priority 50");
        event.deadline_ms = Some(185_000);
        event.detail = "no room".into();
        let expected = "waits, 3 of 12, priority 50, 3m 5s left: no room";
        assert_eq!(queued(&event), expected);
    }

    #[test]
    fn a_move_event_names_both_nodes() {
        let event = |node: &str, target: &str| InstanceStateEvent {
            node_uuid: node.into(),
            target_node_uuid: target.into(),
            state: PhaseName::Migrating,
            ..InstanceStateEvent::default()
        };
        for (event, text) in [
            (event("", ""), "migrating"),
            (event("4cb19522-aaaa", ""), "migrating on 4cb19522"),
            (event("", "beef0000-bbbb"), "migrating to beef0000"),
            (event("a", "b"), "migrating from a to b"),
        ] {
            assert_eq!(transition(&event, &Hosts::default()), text);
        }
    }

    #[test]
    fn a_drain_counts_what_ended_apart_from_what_is_moved() {
        let mut event = DrainProgress {
            state: DrainState::Moving,
            total: 4,
            moved: 3,
            ended: 2,
            left: 1,
            ..DrainProgress::default()
        };
        let expected = "moving: 1 of 4 moved, 2 ended, 0 on their way, 1 left";
        assert_eq!(drain(&event), expected);
        assert_eq!(drain_done(&event), "1 moved, 2 ended");
        assert_eq!(drain_json(&event)["ended"], 2);
        event.ended = 0;
        assert_eq!(drain_done(&event), "3 moved");
        // Of a scheduler that counts wrongly.
        event.ended = 5;
        assert_eq!(drain_done(&event), "5 ended");
    }

    #[test]
    fn what_cannot_be_moved_is_named_with_its_reason_once() {
        let mut event = DrainProgress {
            state: DrainState::Checking,
            total: 2,
            unmovable_count: 1,
            unmovable: vec![UnmovableInstance {
                instance_uuid: "i1".into(),
                detail: "it is pinned".into(),
                name: "web".into(),
            }],
            detail: "it is pinned".into(),
            ..DrainProgress::default()
        };
        assert_eq!(drain(&event), "checking: 2 to move; 1 fits nowhere else");
        assert_eq!(unmovable_label(&event.unmovable[0]), "web (i1)");
        event.state = DrainState::Moving;
        event.detail = String::new();
        let expected =
            "moving: 0 of 2 moved, 0 on their way, 0 left; 1 fits nowhere else: web (it is pinned)";
        assert_eq!(drain(&event), expected);
    }

    #[test]
    fn a_drain_counts_what_is_moved_and_what_cannot_be() {
        let mut event = DrainProgress {
            state: DrainState::Moving,
            total: 4,
            moved: 1,
            moving: 2,
            left: 1,
            ..DrainProgress::default()
        };
        assert_eq!(
            drain(&event),
            "moving: 1 of 4 moved, 2 on their way, 1 left"
        );
        event.unmovable_count = 1;
        assert!(drain(&event).ends_with("1 left; 1 fits nowhere else"));
        let unmovable = |instance: &str| UnmovableInstance {
            instance_uuid: instance.into(),
            detail: "pinned".into(),
            ..UnmovableInstance::default()
        };
        event.unmovable = vec![unmovable("i1")];
        assert!(drain(&event).ends_with("; 1 fits nowhere else: i1 (pinned)"));
        assert!(drain_counts(&event).ends_with("; 1 fits nowhere else"));
        event.unmovable = ["i1", "i2", "i3"].map(unmovable).into();
        assert!(drain(&event).ends_with(": i1 (pinned), i2 (pinned), and others"));
        event.state = DrainState::Checking;
        event.unmovable_count = 2;
        assert_eq!(drain(&event), "checking: 4 to move; 2 fit nowhere else");
    }

    #[test]
    fn a_node_under_pressure_says_what_is_done_about_it() {
        let event = |state| NodePressure {
            hostname: "h".into(),
            state,
            detail: "short of swap".into(),
            instance_uuid: "i1".into(),
            ..NodePressure::default()
        };
        for (state, line) in [
            (PressureState::Begun, "(h) gets no new work: short of swap"),
            (PressureState::Over, "(h) is not short of memory any more"),
            (
                PressureState::Moved,
                "(h) is short of memory: instance i1 is moved away",
            ),
            (PressureState::from("worse"), "(h) worse: short of swap"),
        ] {
            assert_eq!(pressure(&event(state)), line);
        }
    }

    #[test]
    fn a_failed_command_says_of_what() {
        let mut event = CommandFailure {
            command: LifecycleCommand::Migrate,
            instance_uuid: "i1".into(),
            node_uuid: "n1".into(),
            reason: CommandFailureReason::NoRoom,
            detail: "nowhere".into(),
        };
        let expected = "migrate of instance i1 failed: no_room: nowhere";
        let hosts = Hosts::default();
        assert_eq!(command_failure(&event, &hosts), expected);
        event.instance_uuid.clear();
        assert!(command_failure(&event, &hosts).starts_with("migrate of node n1 failed"));
    }
}
