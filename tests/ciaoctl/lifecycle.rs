//! `suspend`, `resume`, `migrate` and `update`.

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, InstanceStateEvent, InstanceView, LifecycleCommand,
    Migrate, Payload, PhaseName, PlacementState, RefusalReason, Span, Suspend, Topic, Update,
    Watch,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, node, refusal};

/// The only instance, which runs on node-a.
fn running() -> InstanceView {
    InstanceView {
        state: PlacementState::Running,
        ..instance("aa", &node("4c", "node-a"))
    }
}

/// Answers queries about that instance, as it is now, and two nodes.
fn answer_queries(peers: &mut Peers, from: usize, frame: &Frame, now: &InstanceView) {
    if frame.kind == Kind::QUERY {
        let nodes = [node("4c", "node-a"), node("be", "node-b")];
        let all = answer(frame, &nodes, std::slice::from_ref(now), 10);
        peers.send(from, Kind::QUERY_RESULT, all);
    }
}

/// Sends an InstanceState event.
fn tell(peers: &mut Peers, to: usize, state: PhaseName, on: &str, target: &str) {
    let whole = |begin: &str| match begin {
        "" => String::new(),
        begin => node(begin, "").node_uuid,
    };
    let event = InstanceStateEvent {
        instance_uuid: running().instance_uuid,
        node_uuid: whole(on),
        state,
        target_node_uuid: whole(target),
        ..InstanceStateEvent::default()
    };
    peers.send(to, Kind::INSTANCE_STATE, event.encode());
}

fn fail(peers: &mut Peers, to: usize, command: LifecycleCommand, reason: CommandFailureReason) {
    let failure = CommandFailure {
        command,
        instance_uuid: running().instance_uuid,
        node_uuid: running().node_uuid,
        reason,
        detail: "so it is".into(),
    };
    peers.send(to, Kind::COMMAND_FAILURE, failure.encode());
}

#[tokio::test]
async fn a_suspend_is_shown_until_the_instance_is_suspended() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame, &running());
        if frame.kind == Kind::SUSPEND {
            tell(peers, from, PhaseName::Suspending, "4c", "");
            tell(peers, from, PhaseName::Suspended, "4c", "");
        }
    })
    .await;
    let ran = scheduler.ctl(&["suspend", "aa"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = running().instance_uuid;
    let lines =
        format!("{id} suspending on node-a (4c000000)\n{id} suspended on node-a (4c000000)\n");
    assert_eq!(ran.out, lines);
    let sent = Suspend::decode(&scheduler.seen(Kind::SUSPEND)[0]).unwrap();
    assert_eq!(sent.instance_uuid, id);
    assert_eq!(sent.workload_agent_uuid, running().node_uuid);
    let watched = Watch::decode(scheduler.seen(Kind::WATCH).last().unwrap()).unwrap();
    assert_eq!(watched.topics, [Topic::Instances, Topic::Failures]);
}

#[tokio::test]
async fn a_command_that_fails_says_why_and_by_its_exit_code_what_to_do() {
    for (reason, code) in [
        (CommandFailureReason::NotSupported, 1),
        (CommandFailureReason::Timeout, 4),
        (CommandFailureReason::NoInstance, 5),
    ] {
        let words = reason.to_string();
        let scheduler = Scheduler::playing(move |peers, from, frame| {
            answer_queries(peers, from, frame, &running());
            if frame.kind == Kind::SUSPEND {
                fail(
                    peers,
                    from,
                    LifecycleCommand::Resume,
                    CommandFailureReason::Failed,
                );
                fail(peers, from, LifecycleCommand::Suspend, reason.clone());
            }
        })
        .await;
        let ran = scheduler.ctl(&["suspend", "aa"]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let id = running().instance_uuid;
        assert_eq!(ran.out, format!("{id} not suspended: {words}: so it is\n"));
    }
}

#[tokio::test]
async fn a_refused_command_is_an_error_with_the_schedulers_words() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::RESUME {
            let refused = refusal(Kind::RESUME, RefusalReason::Unsupported, "not here");
            peers.send(from, Kind::COMMAND_REFUSED, refused);
        }
        answer_queries(peers, from, frame, &running());
    })
    .await;
    let ran = scheduler.ctl(&["resume", "aa"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: the scheduler refuses this: not here (unsupported)\n"
    );
}

#[tokio::test]
async fn a_resume_of_which_nobody_tells_the_end_is_seen_in_the_list() {
    let mut now = running();
    now.life = "suspended".into();
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        answer_queries(peers, from, frame, &now);
        if frame.kind == Kind::RESUME {
            now.life.clear();
        }
    })
    .await;
    let ran = scheduler.ctl(&["resume", "aa"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.ends_with(" running on node-a (4c000000)\n"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_move_names_its_target_and_is_shown_to_its_end() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame, &running());
        if frame.kind == Kind::MIGRATE {
            tell(peers, from, PhaseName::Migrating, "4c", "be");
            tell(peers, from, PhaseName::Running, "be", "");
        }
    })
    .await;
    let line = ["migrate", "aa", "--to", "node-b", "--deadline", "90s"];
    let ran = scheduler.ctl(&line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = running().instance_uuid;
    let lines = format!(
        "{id} migrating from node-a (4c000000) to node-b (be000000)\n{id} moved to node-b (be000000)\n"
    );
    assert_eq!(ran.out, lines);
    let sent = Migrate::decode(&scheduler.seen(Kind::MIGRATE)[0]).unwrap();
    assert_eq!(sent.target_node_uuid, node("be", "").node_uuid);
    assert_eq!(sent.deadline, Some(Span::from_ms(90_000)));
    let ran = scheduler.ctl(&["migrate", "aa", "--to", "node-c"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}

#[tokio::test]
async fn a_move_that_does_not_end_is_given_up_and_may_still_be_done() {
    let mut moving = running();
    moving.life = "migrating".into();
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        answer_queries(peers, from, frame, &moving);
        if frame.kind == Kind::MIGRATE {
            tell(peers, from, PhaseName::Migrating, "4c", "be");
        }
    })
    .await;
    let ran = scheduler.ctl(&["migrate", "aa", "--timeout", "2s"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let end = " to node-b (be000000); gave up waiting, it may still be done\n";
    assert!(ran.out.ends_with(end), "{ran:?}");
    let line = ["migrate", "aa", "--timeout", "2s", "--json"];
    let ran = scheduler.ctl(&line).await;
    assert_eq!(ran.json()["instances"][0]["outcome"], "under_way");
}

#[tokio::test]
async fn a_move_that_is_undone_is_told_with_its_reason() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame, &running());
        if frame.kind == Kind::MIGRATE {
            tell(peers, from, PhaseName::Migrating, "4c", "be");
            tell(peers, from, PhaseName::Running, "4c", "");
            fail(
                peers,
                from,
                LifecycleCommand::Migrate,
                CommandFailureReason::NoRoom,
            );
        }
    })
    .await;
    let ran = scheduler.ctl(&["migrate", "aa"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.ends_with(" not moved: no_room: so it is\n"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn what_is_not_waited_for_is_only_sent() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| answer_queries(peers, from, frame, &running()))
            .await;
    let ran = scheduler.ctl(&["migrate", "aa", "--no-wait"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = running().instance_uuid;
    assert_eq!(ran.out, format!("{id} asked to migrate\n"));
    assert!(scheduler.seen(Kind::WATCH).is_empty());
}

#[tokio::test]
async fn an_update_sends_what_is_to_change_and_nothing_else() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame, &running());
        if frame.kind == Kind::UPDATE {
            tell(peers, from, PhaseName::Updated, "4c", "");
        }
    })
    .await;
    let line = "update aa --mem-mb 512 --resource gpu=0 --priority 7 --move --json";
    let ran = scheduler.ctl(&line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let end = &ran.json()["instances"][0];
    assert_eq!(end["outcome"], "done");
    assert_eq!(
        (&end["state"], &end["hostname"]),
        (&"updated".into(), &"node-a".into())
    );
    let sent = Update::decode(&scheduler.seen(Kind::UPDATE)[0]).unwrap();
    let expected = Update {
        instance_uuid: running().instance_uuid,
        workload_agent_uuid: running().node_uuid,
        mem_mb: Some(512),
        resources: [("gpu".to_owned(), 0)].into(),
        priority: Some(7),
        may_move: true,
        ..Update::default()
    };
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn an_update_that_makes_no_sense_is_refused_before_anything_is_sent() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| answer_queries(peers, from, frame, &running()))
            .await;
    for (line, words) in [
        ("update aa", "required"),
        (
            "update aa --resource gpu=1 --resource gpu=2",
            "gpu is there twice",
        ),
        (
            "migrate aa --deadline 8days",
            "migrate.deadline: longer than 168h",
        ),
    ] {
        let ran = scheduler.ctl(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(words), "{ran:?}");
    }
    assert!(scheduler.seen(Kind::UPDATE).is_empty());
    assert!(scheduler.seen(Kind::MIGRATE).is_empty());
}
