//! Commands on instances are followed by events and looks, to their end.

use proto_frames::payload::{CommandRefused, InstanceDeleted, InstanceStopped, RefusalReason};

use super::*;

const A: &str = "4cb19522-aaaa";
const B: &str = "beef0000-bbbb";

/// An instance on host `a`, or in the queue where `node` is empty.
fn instance(node: &str) -> InstanceView {
    InstanceView {
        instance_uuid: "i1".into(),
        node_uuid: node.into(),
        hostname: if node.is_empty() { "" } else { "a" }.into(),
        state: PlacementState::Running,
        ..InstanceView::default()
    }
}

fn operation(command: LifecycleCommand) -> Operation {
    Operation::new(command, &instance(A), None)
}

fn transition(state: PhaseName, node: &str, target: &str) -> Event {
    Event::Transition(Box::new(InstanceStateEvent {
        instance_uuid: "i1".into(),
        node_uuid: node.into(),
        state,
        target_node_uuid: target.into(),
        ..InstanceStateEvent::default()
    }))
}

fn failure(command: LifecycleCommand, reason: CommandFailureReason) -> Event {
    Event::CommandFailure(Box::new(CommandFailure {
        command,
        instance_uuid: "i1".into(),
        reason,
        detail: "why".into(),
        ..CommandFailure::default()
    }))
}

fn stopped(id: &str) -> Event {
    Event::InstanceStopped(InstanceStopped {
        instance_uuid: id.into(),
        exit_code: None,
        ..InstanceStopped::default()
    })
}

#[test]
fn a_suspend_is_done_when_the_instance_is_suspended() {
    let mut suspend = operation(LifecycleCommand::Suspend);
    assert_eq!(suspend.line(), "i1 asked to suspend");
    assert!(suspend.observe(&transition(PhaseName::Suspending, A, "")));
    assert_eq!(suspend.line(), "i1 suspending on a (4cb19522)");
    assert!(
        !suspend.observe(&transition(PhaseName::Suspending, A, "")),
        "no news"
    );
    assert_eq!(suspend.exit(), Exit::Timeout);
    assert!(suspend.observe(&transition(PhaseName::Suspended, A, "")));
    assert_eq!(suspend.line(), "i1 suspended on a (4cb19522)");
    assert_eq!((suspend.is_over(), suspend.exit()), (true, Exit::Done));
    assert!(
        !suspend.observe(&transition(PhaseName::Running, A, "")),
        "over is over"
    );
}

#[test]
fn a_resume_is_done_when_it_runs_by_event_or_by_look() {
    let mut by_event = operation(LifecycleCommand::Resume);
    by_event.observe(&transition(PhaseName::Resuming, A, ""));
    by_event.observe(&transition(PhaseName::Running, A, ""));
    assert_eq!(by_event.line(), "i1 running on a (4cb19522)");
    let mut by_look = operation(LifecycleCommand::Resume);
    let mut listed = instance(A);
    listed.life = "resuming".into();
    assert!(!by_look.look(Some(&listed)));
    listed.life.clear();
    assert!(by_look.look(Some(&listed)));
    assert_eq!(by_look.exit(), Exit::Done);
}

#[test]
fn a_move_is_done_when_the_instance_runs_elsewhere() {
    let mut migrate = operation(LifecycleCommand::Migrate);
    assert!(
        !migrate.look(Some(&instance(A))),
        "it has not begun to move"
    );
    migrate.observe(&transition(PhaseName::Migrating, A, B));
    let line = "i1 migrating from a (4cb19522) to beef0000";
    assert_eq!(migrate.line(), line);
    assert!(!migrate.observe(&stopped("i1")), "it leaves its node");
    migrate.observe(&transition(PhaseName::Running, B, ""));
    assert_eq!(migrate.line(), "i1 moved to beef0000");
    assert_eq!(migrate.exit(), Exit::Done);
    assert_eq!(migrate.json()["node_uuid"], B);
}

#[test]
fn a_target_that_was_named_has_its_host_name_in_lines() {
    let target = NodeRef {
        node_uuid: B.into(),
        hostname: "b".into(),
    };
    let mut migrate = Operation::new(LifecycleCommand::Migrate, &instance(A), Some(target));
    migrate.observe(&transition(PhaseName::Migrating, A, B));
    assert!(
        migrate
            .line()
            .ends_with("from a (4cb19522) to b (beef0000)")
    );
    let mut listed = instance(B);
    listed.hostname = "b".into();
    assert!(migrate.look(Some(&listed)));
    assert_eq!(migrate.line(), "i1 moved to b (beef0000)");
}

#[test]
fn a_move_that_is_undone_has_failed() {
    let mut told = operation(LifecycleCommand::Migrate);
    told.observe(&transition(PhaseName::Migrating, A, B));
    told.observe(&transition(PhaseName::Running, A, ""));
    assert!(!told.is_over(), "why is still to come");
    told.observe(&failure(
        LifecycleCommand::Migrate,
        CommandFailureReason::Timeout,
    ));
    assert_eq!(told.line(), "i1 not moved: timeout: why");
    assert_eq!(told.exit(), Exit::Timeout);
    let mut seen = operation(LifecycleCommand::Migrate);
    seen.observe(&transition(PhaseName::Migrating, A, B));
    assert!(seen.look(Some(&instance(A))));
    let expected = "i1 not moved: failed: it is back on a (4cb19522)";
    assert_eq!(seen.line(), expected);
    assert_eq!(seen.exit(), Exit::Refused);
}

#[test]
fn a_queued_instance_is_moved_by_telling_it_where_to_wait_for() {
    for event in [
        transition(PhaseName::Waiting, "", B),
        transition(PhaseName::Placing, B, ""),
        Event::Queued(Box::new(InstanceQueued {
            instance_uuid: "i1".into(),
            position: 1,
            waiting: 2,
            ..InstanceQueued::default()
        })),
    ] {
        let mut migrate = Operation::new(LifecycleCommand::Migrate, &instance(""), None);
        assert!(migrate.observe(&event));
        assert_eq!(migrate.exit(), Exit::Done, "{}", migrate.line());
    }
    let mut migrate = Operation::new(LifecycleCommand::Migrate, &instance(""), None);
    migrate.observe(&transition(PhaseName::Waiting, "", B));
    assert_eq!(migrate.line(), "i1 waits for room on beef0000");
}

#[test]
fn an_update_is_done_in_place_or_elsewhere() {
    let mut in_place = operation(LifecycleCommand::Update);
    assert!(!in_place.look(Some(&instance(A))), "a list cannot tell");
    in_place.observe(&transition(PhaseName::Updated, A, ""));
    assert_eq!(in_place.line(), "i1 updated on a (4cb19522)");
    let mut elsewhere = operation(LifecycleCommand::Update);
    elsewhere.observe(&transition(PhaseName::Migrating, A, B));
    elsewhere.observe(&transition(PhaseName::Running, B, ""));
    assert_eq!(elsewhere.exit(), Exit::Done);
    let mut nowhere = operation(LifecycleCommand::Update);
    nowhere.observe(&failure(
        LifecycleCommand::Migrate,
        CommandFailureReason::NoRoom,
    ));
    assert_eq!(nowhere.line(), "i1 not updated: no_room: why");
}

#[test]
fn failures_end_in_the_exit_code_that_says_what_to_do() {
    for (reason, exit) in [
        (CommandFailureReason::NoInstance, Exit::NotFound),
        (CommandFailureReason::NotSupported, Exit::Refused),
        (CommandFailureReason::WrongState, Exit::Refused),
        (CommandFailureReason::Timeout, Exit::Timeout),
        ("odd".into(), Exit::Refused),
    ] {
        let mut suspend = operation(LifecycleCommand::Suspend);
        assert!(suspend.observe(&failure(LifecycleCommand::Suspend, reason)));
        assert_eq!(suspend.exit(), exit);
    }
    let mut suspend = operation(LifecycleCommand::Suspend);
    let other = failure(LifecycleCommand::Resume, CommandFailureReason::Failed);
    assert!(!suspend.observe(&other), "of another command");
}

#[test]
fn a_refusal_of_this_command_is_its_end() {
    let refused = |kind: Kind| {
        Event::Refused(CommandRefused {
            ty: kind.ty.0,
            operand: kind.operand,
            reason: RefusalReason::NotPermitted,
            detail: "no".into(),
            ..CommandRefused::default()
        })
    };
    for (command, kind) in [
        (LifecycleCommand::Suspend, Kind::SUSPEND),
        (LifecycleCommand::Resume, Kind::RESUME),
        (LifecycleCommand::Migrate, Kind::MIGRATE),
        (LifecycleCommand::Update, Kind::UPDATE),
    ] {
        let mut it = operation(command);
        assert!(!it.observe(&refused(Kind::DELETE)));
        assert!(it.observe(&refused(kind)));
        assert_eq!(it.exit(), Exit::Refused);
    }
}

#[test]
fn an_instance_that_ends_meanwhile_ends_the_command() {
    let deleted = Event::InstanceDeleted(InstanceDeleted {
        instance_uuid: "i1".into(),
        ..InstanceDeleted::default()
    });
    for event in [stopped("i1"), deleted, transition(PhaseName::Gone, "", "")] {
        let mut resume = operation(LifecycleCommand::Resume);
        assert!(resume.observe(&event));
        assert!(resume.line().starts_with("i1 not resumed: ended"));
        assert_eq!(resume.exit(), Exit::Refused);
    }
    let mut resume = operation(LifecycleCommand::Resume);
    assert!(!resume.observe(&stopped("i2")), "another one");
    assert!(resume.look(None));
    assert_eq!(resume.json()["reason"], "gone");
}
