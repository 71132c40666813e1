//! `queue`, `history`, and STARTs that wait.

use proto_frames::payload::{
    Delete, HistoryRow, InstanceDeleted, InstanceQueued, InstanceStopped, InstanceView, OnNodeLoss,
    Payload, Query, QueryKind, QueryResult, Start, StartFailure, StartFailureReason,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, instance, instance_of, node, placed};

/// An instance that waits at this position.
fn waiting(begin: &str, position: u64) -> InstanceView {
    InstanceView {
        node_uuid: String::new(),
        hostname: String::new(),
        life: "waiting".into(),
        priority: Some(50),
        position: Some(position),
        waits_for: "2 nodes short of memory".into(),
        ..instance(begin, &node("4c", "node-a"))
    }
}

fn answer_queries(peers: &mut Peers, from: usize, frame: &Frame) {
    if frame.kind == Kind::QUERY {
        let a = node("4c", "node-a");
        let instances = [instance("aa", &a), waiting("bb", 1), waiting("cc", 2)];
        peers.send(
            from,
            Kind::QUERY_RESULT,
            answer(frame, &[a], &instances, 10),
        );
    }
}

/// Tells who sent a START that it waits.
fn queue(peers: &mut Peers, from: usize, start: &Frame) {
    let queued = InstanceQueued {
        instance_uuid: instance_of(start),
        position: 3,
        priority: 50,
        waiting: 12,
        deadline_ms: Some(600_000),
        detail: "2 nodes short of memory".into(),
    };
    peers.send(from, Kind::INSTANCE_QUEUED, queued.encode());
}

const RUN: &str = "run --mem 64 --cpus 1 --priority 50 --queue 10m --attempts 3 --relocate --on-node-loss restart";

async fn run(scheduler: &Scheduler, options: &str) -> crate::scheduler::Ran {
    let line = format!("{RUN} {options} -- true");
    scheduler
        .ctl(&line.split_whitespace().collect::<Vec<_>>())
        .await
}

#[tokio::test]
async fn the_queue_is_listed_in_its_order_and_nothing_else() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["queue"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("POSITION  INSTANCE"), "{ran:?}");
    assert!(lines[1].contains("1  bb000000"), "{ran:?}");
    assert!(lines[2].ends_with("2 nodes short of memory"), "{ran:?}");
    assert_eq!(lines.len(), 3);
    let json = scheduler.ctl(&["queue", "--json"]).await.json();
    assert_eq!(json["queue"][1]["position"], 2);
    let query = Query::decode(&scheduler.seen(Kind::QUERY)[0]).unwrap();
    assert_eq!(query.what, QueryKind::Queue);
}

#[tokio::test]
async fn instances_show_their_life_beside_what_waits() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["instances"]).await;
    let header = ran.out.lines().next().unwrap();
    assert!(header.ends_with("PRIORITY  ATTEMPTS  AGE  WHY"), "{header}");
    let line = ran.out.lines().nth(2).unwrap();
    assert!(
        line.starts_with("bb000000  -     -        waiting  "),
        "{line}"
    );
    assert!(line.ends_with("  2 nodes short of memory"), "{line}");
}

#[tokio::test]
async fn a_start_that_waits_is_left_to_wait() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            queue(peers, from, frame);
        }
    })
    .await;
    let ran = run(&scheduler, "").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let end = " waits, 3 of 12, priority 50, 10m left: 2 nodes short of memory\n";
    assert!(ran.out.ends_with(end), "{ran:?}");
    let start = Start::decode(&scheduler.seen(Kind::START)[0]).unwrap();
    let said = start.scheduling.unwrap();
    assert_eq!((said.priority, said.attempts), (Some(50), Some(3)));
    assert_eq!(said.queue.unwrap().ms(), 600_000);
    assert_eq!(
        (said.relocate, said.on_node_loss),
        (Some(true), OnNodeLoss::Restart)
    );
    let json = run(&scheduler, "--json").await.json();
    assert_eq!(json["instances"][0]["outcome"], "queued");
    assert_eq!(json["instances"][0]["position"], 3);
}

#[tokio::test]
async fn with_wait_a_start_is_followed_out_of_the_queue_to_its_end() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            queue(peers, from, frame);
            let instance_uuid = instance_of(frame);
            peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_uuid));
            let exit_code = Some(0);
            let stopped = InstanceStopped {
                instance_uuid,
                exit_code,
                ..InstanceStopped::default()
            };
            peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
        }
    })
    .await;
    let ran = run(&scheduler, "--wait").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let whats: Vec<&str> = ran
        .out
        .lines()
        .map(|line| line.split([' ', ',']).nth(1).unwrap())
        .collect();
    assert_eq!(whats, ["waits", "placed", "ended"]);
}

#[tokio::test]
async fn a_start_that_waited_in_vain_has_failed() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            queue(peers, from, frame);
            let failure = StartFailure {
                instance_uuid: instance_of(frame),
                reason: StartFailureReason::QueueTimeout,
                detail: Some("no room within 10m".into()),
                ..StartFailure::default()
            };
            peers.send(from, Kind::START_FAILURE, failure.encode());
        }
    })
    .await;
    let ran = run(&scheduler, "--wait=running").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let end = " failed: queue_timeout: no room within 10m\n";
    assert!(ran.out.ends_with(end), "{ran:?}");
}

#[tokio::test]
async fn what_waits_can_be_deleted() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        answer_queries(peers, from, frame);
        if frame.kind == Kind::DELETE {
            let instance_uuid = Delete::decode(&frame.payload).unwrap().instance_uuid;
            let exit_code = None;
            let deleted = InstanceDeleted {
                instance_uuid,
                exit_code,
                ..InstanceDeleted::default()
            };
            peers.send(from, Kind::INSTANCE_DELETED, deleted.encode());
        }
    })
    .await;
    let ran = scheduler.ctl(&["delete", "--wait", "bb"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.ends_with(" removed from the queue\n"), "{ran:?}");
    let sent = Delete::decode(&scheduler.seen(Kind::DELETE)[0]).unwrap();
    assert!(
        !sent.workload_agent_uuid.is_empty(),
        "a DELETE names a node"
    );
}

/// Answers queries for the history of the instance with this id, and lists no instance.
fn answer_history(peers: &mut Peers, from: usize, frame: &Frame, known: &str) {
    let query = Query::decode(&frame.payload).unwrap();
    let row = |what: &str, node_uuid: String| HistoryRow {
        at_ms: 1_795_000_000_000,
        what: what.into(),
        node_uuid,
        detail: "attempt 1".into(),
        ..HistoryRow::default()
    };
    let rows = vec![
        row("queued", String::new()),
        row("placed", node("4c", "").node_uuid),
    ];
    let is_known = query.matching.as_deref() == Some(known);
    let result = QueryResult {
        id: query.id,
        history: if query.what == QueryKind::History && is_known {
            rows
        } else {
            Vec::new()
        },
        what: query.what,
        ..QueryResult::default()
    };
    peers.send(from, Kind::QUERY_RESULT, result.encode());
}

#[tokio::test]
async fn a_history_is_told_also_of_an_instance_that_is_gone() {
    let scheduler =
        Scheduler::playing(|peers, from, frame| answer_history(peers, from, frame, "gone-1")).await;
    let ran = scheduler.ctl(&["history", "gone-1"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("TIME "), "{ran:?}");
    assert!(lines[1].ends_with("queued  -         attempt 1"), "{ran:?}");
    assert!(lines[2].ends_with("placed  4c000000  attempt 1"), "{ran:?}");
    let json = scheduler.ctl(&["history", "gone-1", "--json"]).await.json();
    assert_eq!(json["history"][1]["what"], "placed");
    let ran = scheduler.ctl(&["history", "gone-2"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}
