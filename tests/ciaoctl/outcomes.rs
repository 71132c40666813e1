//! How instances end is told truly, and still when it was missed: `wait`, `--reconnect`, `instances --all`, lost nodes.

use proto_frames::payload::{
    Delete, DeleteFailure, DeleteFailureReason, InstanceDeleted, InstanceStateEvent,
    InstanceStopped, InstanceView, Payload, PhaseName, PlacementState, Query, QueryKind,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, instance_of, node, placed};

fn ended(begin: &str, exit_code: Option<i64>) -> InstanceView {
    InstanceView {
        state: PlacementState::Ended,
        exit_code,
        age_s: 3,
        ended_at_ms: Some(1_795_000_000_123),
        waits_for: "ended".into(),
        ..instance(begin, &node("4c", "node-a"))
    }
}

fn running(begin: &str) -> InstanceView {
    InstanceView {
        state: PlacementState::Running,
        reported: Some("active".into()),
        ..instance(begin, &node("4c", "node-a"))
    }
}

fn stopped(view: &InstanceView, exit_code: Option<i64>) -> bytes::Bytes {
    let stopped = InstanceStopped {
        instance_uuid: view.instance_uuid.clone(),
        exit_code,
        ..InstanceStopped::default()
    };
    stopped.encode()
}

/// A scheduler that answers queries about these instances.
async fn listing(views: Vec<InstanceView>) -> Scheduler {
    Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::QUERY {
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &views, 10));
        }
    })
    .await
}

#[tokio::test]
async fn who_waits_for_an_instance_that_has_ended_is_told_how() {
    let views = vec![
        ended("aa", Some(0)),
        ended("bb", Some(3)),
        ended("cc", Some(-9)),
        ended("dd", None),
    ];
    let scheduler = listing(views).await;
    for (name, code, words) in [
        ("aa", 0, "exit status 0"),
        ("bb", 6, "exit status 3"),
        ("cc", 6, "killed by SIGKILL"),
        ("dd", 8, "exit status unknown"),
    ] {
        let ran = scheduler.ctl(&["wait", name]).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(
            ran.out.contains(&format!("on node-a (4c000000): {words}")),
            "{ran:?}"
        );
    }
    let ran = scheduler.ctl(&["wait", "ee"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}

#[tokio::test]
async fn what_ended_on_no_node_has_no_exit_status_that_could_be_unknown() {
    let none = InstanceView {
        node_uuid: String::new(),
        hostname: String::new(),
        waits_for: "no node fits".into(),
        ..ended("ee", None)
    };
    let scheduler = listing(vec![none, ended("dd", None)]).await;
    let ran = scheduler.ctl(&["instances", "--all"]).await;
    let row = |begin: &str| ran.out.lines().find(|line| line.starts_with(begin));
    let (none, unknown) = (row("ee").unwrap(), row("dd").unwrap());
    assert!(none.contains("ended  was not running"), "{ran:?}");
    assert!(unknown.contains("ended  exit status unknown"), "{ran:?}");
    let ran = scheduler.ctl(&["wait", "ee"]).await;
    assert_eq!(ran.code, Some(8), "{ran:?}");
    assert!(ran.out.ends_with(" ended: was not running\n"), "{ran:?}");
}

#[tokio::test]
async fn who_waits_for_an_instance_that_runs_hears_of_its_end() {
    let view = running("aa");
    let mut queries = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::QUERY {
            let views = std::slice::from_ref(&view);
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], views, 10));
            queries += 1;
            if queries == 2 {
                peers.send(from, Kind::INSTANCE_STOPPED, stopped(&view, Some(4)));
            }
        }
    })
    .await;
    let ran = scheduler.ctl(&["wait", "--json", "aa"]).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert_eq!(ran.json()["instances"][0]["exit_code"], 4);
}

#[tokio::test]
async fn a_lost_connection_is_made_up_for_and_what_was_missed_is_learned() {
    let mut connections = 0;
    let scheduler =
        Scheduler::playing(
            move |peers: &mut Peers, from, frame: &Frame| match frame.kind {
                Kind::START => {
                    peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame)));
                    connections = 1;
                    peers.close(from);
                }
                Kind::QUERY => {
                    let view = InstanceView {
                        instance_uuid: ID.to_owned(),
                        age_s: 0,
                        ..ended("11", Some(5))
                    };
                    let views = if connections == 1 {
                        vec![view]
                    } else {
                        Vec::new()
                    };
                    peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &views, 10));
                }
                _ => {}
            },
        )
        .await;
    let file = scheduler.certs.path().join("a.yaml");
    let text = format!(
        "start:\n  instance_uuid: {ID}\n  vm_type: process\n  command: [\"true\"]\n  requirements:\n    mem_mb: 64\n    \
         vcpus: 1\n"
    );
    std::fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let ran = scheduler.ctl(&["start", "--wait", &file]).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.err.contains("connected again"), "{ran:?}");
    assert_eq!(scheduler.seen(Kind::START).len(), 1, "sent once");
    let ran = scheduler
        .ctl(&["start", "--wait", "--reconnect", "0s", &file])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
}

#[tokio::test]
async fn what_is_to_be_waited_for_is_looked_for_again_where_no_answer_came() {
    let view = ended("aa", Some(4));
    let mut queries = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::QUERY {
            queries += 1;
            if queries > 1 {
                let views = std::slice::from_ref(&view);
                peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], views, 10));
            }
        }
    })
    .await;
    let ran = scheduler
        .ctl(&["--timeout", "2s", "wait", "--reconnect", "60s", "aa"])
        .await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
}

#[tokio::test]
async fn who_is_not_to_reconnect_is_told_that_no_answer_came() {
    let view = running("aa");
    let mut queries = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::QUERY {
            queries += 1;
            if queries == 1 {
                let views = std::slice::from_ref(&view);
                peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], views, 10));
            }
        }
    })
    .await;
    let ran = scheduler
        .ctl(&["--timeout", "1s", "wait", "--reconnect", "0s", "aa"])
        .await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.err.contains("no answer to QUERY"), "{ran:?}");
}

const ID: &str = "11111111-2222-4333-8444-555555555555";

#[tokio::test]
async fn a_name_means_the_last_that_had_it_and_no_uuid_that_begins_so() {
    let run = |begin, code, at| InstanceView {
        name: "b".into(),
        ended_at_ms: Some(at),
        ..ended(begin, Some(code))
    };
    let other = ended("bb", Some(2));
    let views = vec![
        run("aa", 0, 1_795_000_000_000),
        run("cc", 3, 1_795_000_001_000),
        other,
    ];
    let scheduler = listing(views).await;
    let ran = scheduler.ctl(&["wait", "b"]).await;
    assert!(ran.out.starts_with("cc000000-"), "{ran:?}");
    assert_eq!(ran.code, Some(6), "{ran:?}");
    scheduler.ctl(&["history", "b"]).await;
    let asked = scheduler.seen(Kind::QUERY).into_iter();
    let asked: Vec<Query> = asked.map(|it| Query::decode(&it).unwrap()).collect();
    let of_history = asked.iter().rfind(|it| it.what == QueryKind::History);
    let id = of_history.and_then(|it| it.matching.as_deref());
    assert!(id.unwrap_or_default().starts_with("cc000000-"), "{asked:?}");
    // What is deleted is to be one thing.
    let ran = scheduler.ctl(&["delete", "b"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.err
            .starts_with("ciaoctl: \"b\" means 2 instances; give more of the UUID:\n  cc000000"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn ended_instances_are_listed_where_all_are_asked_for() {
    let scheduler = listing(vec![running("aa"), ended("bb", Some(-15))]).await;
    let ran = scheduler.ctl(&["instances"]).await;
    assert!(!ran.out.contains("bb"), "{ran:?}");
    let ran = scheduler.ctl(&["instances", "--all"]).await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 3, "{ran:?}");
    for part in ["ended", "killed by SIGTERM", "node-a", "3s ago"] {
        assert!(lines[2].contains(part), "{ran:?}");
    }
    let ran = scheduler.ctl(&["instances", "--all", "--json"]).await;
    assert_eq!(ran.json()["instances"][1]["exit_code"], -15);
}

#[tokio::test]
async fn what_is_deleted_on_a_lost_node_is_said_to_run_until_that_returns() {
    let lost = InstanceView {
        state: PlacementState::InDoubt,
        life: "lost".into(),
        ..instance("aa", &node("4c", ""))
    };
    let plain = InstanceView {
        state: PlacementState::Lost,
        ..instance("bb", &node("4c", "node-a"))
    };
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        let views = [lost.clone(), plain.clone()];
        match frame.kind {
            Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &views, 10)),
            Kind::DELETE => {
                let delete = Delete::decode(&frame.payload).unwrap();
                let instance_uuid = delete.instance_uuid;
                if instance_uuid == plain.instance_uuid && !delete.forget {
                    let failure = DeleteFailure {
                        node_uuid: delete.workload_agent_uuid,
                        instance_uuid,
                        reason: DeleteFailureReason::NoInstance,
                    };
                    return peers.send(from, Kind::DELETE_FAILURE, failure.encode());
                }
                if !delete.forget {
                    let event = InstanceStateEvent {
                        instance_uuid: instance_uuid.clone(),
                        state: PhaseName::Lost,
                        ..InstanceStateEvent::default()
                    };
                    peers.send(from, Kind::INSTANCE_STATE, event.encode());
                }
                let deleted = InstanceDeleted {
                    instance_uuid,
                    ..InstanceDeleted::default()
                };
                peers.send(from, Kind::INSTANCE_DELETED, deleted.encode());
            }
            _ => {}
        }
    })
    .await;
    let ran = scheduler.ctl(&["delete", "--wait", "aa"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out
            .contains("will be deleted when its node 4c000000 returns"),
        "{ran:?}"
    );
    let ran = scheduler.ctl(&["delete", "--wait", "bb"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("its node is lost"), "{ran:?}");
    let ran = scheduler.ctl(&["instance", "forget", "aa", "bb"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.matches("forgotten").count(), 2, "{ran:?}");
    assert!(
        Delete::decode(&scheduler.seen(Kind::DELETE)[3])
            .unwrap()
            .forget
    );
}

/// One called `web` that ended then.
fn web(begin: &str, (began, ended_at): (i64, i64), tenant: &str) -> InstanceView {
    InstanceView {
        name: "web".into(),
        tenant: tenant.into(),
        began_at_ms: Some(began),
        ended_at_ms: Some(ended_at),
        ..ended(begin, Some(0))
    }
}

#[tokio::test]
async fn a_name_that_several_had_one_after_the_other_means_the_latest_and_that_is_said() {
    let scheduler = listing(vec![web("aa", (1, 2), ""), web("bb", (3, 4), "")]).await;
    for command in [
        &["wait"][..],
        &["history"],
        &["describe", "instance"],
        &["logs"],
    ] {
        let ran = scheduler.ctl(&[command, &["web"]].concat()).await;
        let said = "ciaoctl: 2 instances called \"web\" have ended, one after the other: this is of the latest, bb000000-";
        assert!(ran.err.contains(said), "{command:?}: {ran:?}");
        let ran = scheduler.ctl(&[command, &["bb"]].concat()).await;
        assert!(!ran.err.contains("one after the other"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_name_that_several_tenants_had_or_several_at_once_is_ambiguous() {
    for ended in [
        vec![web("aa", (1, 2), "red"), web("bb", (3, 4), "b\u{1b}[2Jlue")],
        vec![web("aa", (1, 4), ""), web("bb", (3, 5), "")],
    ] {
        let scheduler = listing(ended).await;
        for command in [
            &["wait"][..],
            &["history"],
            &["describe", "instance"],
            &["logs"],
            &["delete"],
        ] {
            let ran = scheduler.ctl(&[command, &["web"]].concat()).await;
            assert_eq!(ran.code, Some(5), "{command:?}: {ran:?}");
            assert!(ran.err.contains("\"web\" means 2 instances"), "{ran:?}");
            assert!(ran.err.contains("  bb000000-"), "{ran:?}");
            assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
        }
    }
}

#[tokio::test]
async fn a_list_with_several_runs_of_an_instance_says_which_each_is() {
    let earlier = InstanceView {
        run: Some(1),
        earlier: true,
        ..ended("aa", Some(-9))
    };
    let last = InstanceView {
        run: Some(2),
        ..ended("aa", Some(0))
    };
    let scheduler = listing(vec![running("bb"), earlier, last]).await;
    let ran = scheduler.ctl(&["instances", "--all"]).await;
    let rows: Vec<Vec<&str>> = ran
        .out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let at = rows[0].iter().position(|it| *it == "RUN").unwrap();
    let runs: Vec<&str> = rows[1..].iter().map(|row| row[at]).collect();
    assert_eq!(runs, ["-", "1", "2"], "{ran:?}");
}
