//! `delete`, `stop`, `evacuate`, `restore`.

use proto_frames::payload::{
    Delete, DeleteFailure, DeleteFailureReason, Evacuate, InstanceDeleted, InstanceStopped,
    InstanceView, Payload, Query, QueryKind, QueryResult, RefusalReason,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, node, refusal};

/// Answers queries about three instances on two nodes.
fn answer_queries(peers: &mut Peers, from: usize, frame: &Frame) {
    if frame.kind == Kind::QUERY {
        let (a, b) = (node("4c", "node-a"), node("4d", "node-b"));
        let instances = [
            instance("aa11", &a),
            instance("aa22", &b),
            instance("bb", &b),
        ];
        peers.send(
            from,
            Kind::QUERY_RESULT,
            answer(frame, &[a, b], &instances, 10),
        );
    }
}

fn deletes(scheduler: &Scheduler) -> Vec<Delete> {
    scheduler
        .seen(Kind::DELETE)
        .iter()
        .map(|payload| Delete::decode(payload).unwrap())
        .collect()
}

#[tokio::test]
async fn a_unique_beginning_finds_the_instance_and_its_node() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["delete", "aa2", "bb"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = instance("aa22", &node("4d", "node-b")).instance_uuid;
    assert!(
        ran.out
            .starts_with(&format!("{id} deletion requested on node-b\n")),
        "{ran:?}"
    );
    let deletes = deletes(&scheduler);
    assert_eq!(deletes.len(), 2);
    assert_eq!((&deletes[0].instance_uuid, deletes[0].stop), (&id, false));
    assert_eq!(deletes[0].workload_agent_uuid, node("4d", "").node_uuid);
}

#[tokio::test]
async fn an_ambiguous_beginning_lists_what_it_can_mean_and_does_nothing() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["delete", "bb", "aa"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.err
            .starts_with("ciaoctl: \"aa\" means 2 instances; give more of the UUID:\n  aa11"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("on node-a\n") && ran.err.contains("on node-b\n"),
        "{ran:?}"
    );
    let ran = scheduler.ctl(&["delete", "cc"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(deletes(&scheduler).is_empty());
}

#[tokio::test]
async fn waiting_ends_when_each_is_gone_or_has_failed_to_go() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame);
        if frame.kind == Kind::DELETE {
            let delete = Delete::decode(&frame.payload).unwrap();
            let instance_uuid = delete.instance_uuid;
            if instance_uuid.starts_with("bb") {
                let node_uuid = delete.workload_agent_uuid;
                let reason = DeleteFailureReason::NoInstance;
                peers.send(
                    from,
                    Kind::DELETE_FAILURE,
                    DeleteFailure {
                        node_uuid,
                        instance_uuid,
                        reason,
                    }
                    .encode(),
                );
            } else {
                let deleted = InstanceDeleted {
                    instance_uuid,
                    ..InstanceDeleted::default()
                };
                peers.send(from, Kind::INSTANCE_DELETED, deleted.encode());
            }
        }
    })
    .await;
    let ran = scheduler
        .ctl(&["delete", "--wait", "--json", "aa1", "bb"])
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let json = ran.json();
    assert_eq!(json["instances"][0]["outcome"], "deleted");
    assert_eq!(json["instances"][1]["outcome"], "failed");
    assert_eq!(json["instances"][1]["reason"], "no_instance");
}

#[tokio::test]
async fn waiting_for_what_does_not_happen_is_a_timeout() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler
        .ctl(&["delete", "--wait", "--timeout", "2s", "bb"])
        .await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
}

#[tokio::test]
async fn stop_takes_an_instance_off_its_node_only() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame);
        if frame.kind == Kind::DELETE {
            let instance_uuid = Delete::decode(&frame.payload).unwrap().instance_uuid;
            let stopped = InstanceStopped {
                instance_uuid,
                ..InstanceStopped::default()
            };
            peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
        }
    })
    .await;
    let ran = scheduler.ctl(&["stop", "--wait", "bb"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.ends_with(" stopped on node-b\n"), "{ran:?}");
    assert!(deletes(&scheduler)[0].stop);
}

#[tokio::test]
async fn a_refused_command_is_told_with_the_schedulers_words() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::EVACUATE {
            let refused = refusal(
                Kind::EVACUATE,
                RefusalReason::NoSuchNode,
                "node-a has just gone",
            );
            peers.send(from, Kind::COMMAND_REFUSED, refused);
        }
        answer_queries(peers, from, frame);
    })
    .await;
    let ran = scheduler.ctl(&["evacuate", "--yes", "node-a"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: the scheduler refuses this: node-a has just gone (no_such_node)\n"
    );
}

#[tokio::test]
async fn evacuate_does_nothing_until_it_is_confirmed() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["evacuate", "node-a"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("stops everything on node-a"), "{ran:?}");
    assert!(ran.err.contains("say --yes"), "{ran:?}");
    assert!(scheduler.seen(Kind::EVACUATE).is_empty());
}

#[tokio::test]
async fn evacuate_waits_until_the_node_is_empty_and_in_maintenance() {
    let mut left = 3;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::QUERY {
            let mut a = node("4c", "node-a");
            a.instances = left;
            a.status = if left < 3 { "MAINTENANCE" } else { "READY" }.into();
            peers.send(
                from,
                Kind::QUERY_RESULT,
                answer(frame, &[a, node("4d", "node-b")], &[], 10),
            );
            left = (left - 1).max(0);
        }
    })
    .await;
    let ran = scheduler.ctl(&["evacuate", "--yes", "--wait", "4c"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, "node-a (4c000000) evacuated\n");
    let evacuate = Evacuate::decode(&scheduler.seen(Kind::EVACUATE)[0]).unwrap();
    assert_eq!(evacuate.workload_agent_uuid, node("4c", "").node_uuid);
    assert!(scheduler.seen(Kind::QUERY).len() >= 4);
}

#[tokio::test]
async fn restore_waits_until_the_node_takes_work_but_not_for_ever() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::QUERY {
            let (mut a, b) = (node("4c", "node-a"), node("4d", "node-b"));
            a.status = "MAINTENANCE".into();
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &[a, b], &[], 10));
        }
    })
    .await;
    assert_eq!(
        scheduler.ctl(&["restore", "--wait", "node-b"]).await.code,
        Some(0)
    );
    let ran = scheduler
        .ctl(&["restore", "--wait", "--timeout", "2s", "node-a"])
        .await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: node-a (4c000000) back in service: not within 2s\n"
    );
    assert_eq!(scheduler.seen(Kind::RESTORE).len(), 2);
}

#[tokio::test]
async fn all_or_those_selected_are_deleted_once_it_is_sure_that_they_are_meant() {
    for (options, expected) in [
        (&["--all"][..], &["aa11", "aa22", "bb"][..]),
        (&["--selector", "host = node-b"], &["aa22", "bb"]),
        (&["-l", "host = node-b", "-l", "mem_mb > 64"], &[]),
    ] {
        let scheduler = Scheduler::playing(answer_queries).await;
        for command in ["delete", "stop"] {
            let args = [&[command][..], options].concat();
            // There is no terminal to ask at.
            let ran = scheduler.ctl(&args).await;
            if expected.is_empty() {
                assert_eq!((ran.code, &*ran.out), (Some(0), ""), "{ran:?}");
                continue;
            }
            assert_eq!(ran.code, Some(2), "{ran:?}");
            let count = format!("{} instances ", expected.len());
            assert!(
                ran.err.contains(&count) && ran.err.contains("--yes"),
                "{ran:?}"
            );
            assert!(deletes(&scheduler).is_empty(), "{ran:?}");
        }
        let ran = scheduler
            .ctl(&[&["delete", "--yes"][..], options].concat())
            .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let deleted: Vec<String> = deletes(&scheduler)
            .into_iter()
            .map(|it| it.instance_uuid)
            .collect();
        assert_eq!(deleted.len(), expected.len());
        for (id, begin) in deleted.iter().zip(expected) {
            assert!(id.starts_with(begin), "{deleted:?}");
        }
    }
    let scheduler = Scheduler::playing(answer_queries).await;
    for line in [
        "delete",
        "delete --all aa11",
        "delete --all --selector host=a",
        "delete --selector colour=red",
        "delete --selector state=runing",
        "stop --selector state!=Lost",
    ] {
        let ran = scheduler.ctl(&line.split(' ').collect::<Vec<_>>()).await;
        assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
    }
}

#[tokio::test]
async fn what_has_ended_is_not_said_to_be_unknown() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind != Kind::QUERY {
            return;
        }
        let query = Query::decode(&frame.payload).unwrap();
        let ended = InstanceView {
            instance_uuid: "dd110000-0000-4000-8000-000000000000".into(),
            name: "web".into(),
            ended_at_ms: Some(0),
            ..InstanceView::default()
        };
        let result = QueryResult {
            id: query.id,
            instances: if query.what == QueryKind::Ended {
                vec![ended]
            } else {
                Vec::new()
            },
            what: query.what,
            ..QueryResult::default()
        };
        peers.send(from, Kind::QUERY_RESULT, result.encode());
    })
    .await;
    for name in ["web", "dd11", "DD11"] {
        let ran = scheduler.ctl(&["delete", name]).await;
        assert_eq!(ran.code, Some(5), "{ran:?}");
        let expected = "instance dd110000-0000-4000-8000-000000000000 ended ";
        assert!(
            ran.err.contains(expected) && ran.err.contains(" ago: "),
            "{ran:?}"
        );
    }
    let ran = scheduler.ctl(&["delete", "other"]).await;
    assert!(ran.err.contains("no instance is called"), "{ran:?}");
    assert!(deletes(&scheduler).is_empty());
}
