//! Tests of what is well and what is not.

use proto_frames::payload::{
    CertificateView, ConditionView, InstanceView, NodeView, PlacementState, StatusView, StoreState,
    StoreView,
};

use super::{CERTIFICATE_SOON_S, Seen, health};

const NOW_S: i64 = 1_800_000_000;

fn node(name: &str, status: &str) -> NodeView {
    NodeView {
        node_uuid: format!("{name}-uuid"),
        hostname: name.to_owned(),
        status: status.to_owned(),
        ..NodeView::default()
    }
}

fn waiting(waits_for: &str, age_s: i64) -> InstanceView {
    InstanceView {
        instance_uuid: "it".to_owned(),
        state: PlacementState::Waiting,
        waits_for: waits_for.to_owned(),
        age_s,
        ..InstanceView::default()
    }
}

fn store(state: StoreState) -> StoreView {
    StoreView {
        state,
        detail: "no space".to_owned(),
        since_s: Some(61),
        ..StoreView::default()
    }
}

fn certificate(ends_at_s: i64) -> CertificateView {
    CertificateView {
        file: "cert.pem".to_owned(),
        ends_at_s,
    }
}

fn well() -> Seen {
    Seen {
        status: Some(StatusView {
            version: "1.2.3".to_owned(),
            uptime_s: 61,
            store: store(StoreState::Written),
            certificates: vec![certificate(NOW_S + 10 * CERTIFICATE_SOON_S)],
            well: Some(true),
            ..StatusView::default()
        }),
        nodes: vec![node("a", "READY"), node("b", "FULL")],
        now_ms: NOW_S * 1000,
        ..Seen::default()
    }
}

/// The one thing that is not well.
fn problem(change: impl FnOnce(&mut Seen)) -> String {
    let mut seen = well();
    change(&mut seen);
    let mut problems = health(&seen).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0).what
}

#[test]
fn nothing_is_said_of_a_cluster_that_is_well_but_how_it_is() {
    let health = health(&well());
    assert!(health.is_well(), "{health:?}");
    let glance: Vec<String> = health
        .glance
        .iter()
        .map(|(what, how)| format!("{what}: {how}"))
        .collect();
    let expected = [
        "scheduler: 1.2.3, up 1m 1s",
        "store: written",
        "nodes: 2: 1 FULL, 1 READY",
        "instances: 0",
        "queue: empty",
        "certificates: the first ends in 300d: cert.pem of scheduler",
    ];
    assert_eq!(glance, expected);
    let json = health.json(&well());
    assert_eq!(
        (&json["well"], &json["nodes"]["READY"]),
        (&true.into(), &1.into())
    );
}

#[test]
fn what_the_scheduler_lists_is_not_well_and_what_does_not_list_it_is_not_said_to_be() {
    let condition = ConditionView {
        kind: "node_lost".to_owned(),
        what: "node c is lost".to_owned(),
        since_s: Some(300),
        advice: "bring it back".to_owned(),
        ..ConditionView::default()
    };
    let mut seen = well();
    let status = seen.status.as_mut().unwrap();
    (status.well, status.conditions) = (Some(false), vec![condition.clone()]);
    let health = health(&seen);
    assert_eq!(health.problems, [condition]);
    let json = health.json(&seen);
    assert_eq!(json["problems"][0], "node c is lost");
    assert_eq!(json["conditions"][0]["since_s"], 300);
    let text = problem(|seen| seen.status.as_mut().unwrap().well = None);
    assert!(text.contains("older than this program"), "{text}");
    let text = problem(|seen| seen.status = None);
    assert!(text.contains("older than this program"), "{text}");
}

#[test]
fn a_cordoned_node_is_not_counted_as_ready() {
    let mut seen = well();
    seen.nodes[0].cordoned = true;
    let glance = health(&seen).glance;
    let nodes = glance.into_iter().find(|(what, _)| *what == "nodes");
    assert_eq!(nodes.unwrap().1, "2: 1 CORDONED, 1 FULL");
}

#[test]
fn nodes_that_are_full_are_well_and_said_to_be_full() {
    let mut seen = well();
    let room = |seen: &Seen| {
        let glance = health(seen).glance;
        glance.into_iter().find(|(what, _)| *what == "room")
    };
    assert_eq!(room(&seen), None);
    seen.nodes[0].cordoned = true;
    let health = health(&seen);
    assert!(health.is_well(), "{health:?}");
    let (_, text) = room(&seen).unwrap();
    assert_eq!(text, "none: the only node that takes work is full");
    seen.nodes[0] = node("a", "FULL");
    let (_, text) = room(&seen).unwrap();
    assert_eq!(text, "none: all 2 nodes that take work are full");
}

#[test]
fn a_certificate_is_a_problem_a_month_before_its_end_wherever_it_is() {
    let text = problem(|seen| seen.own_certificates = vec![("own.pem".into(), NOW_S - 60)]);
    assert!(text.contains("own.pem of ciaoctl ended 1m ago"), "{text}");
    let mut seen = well();
    seen.own_certificates = vec![("own.pem".into(), NOW_S + CERTIFICATE_SOON_S)];
    assert!(health(&seen).is_well());
}

#[test]
fn what_waits_is_shown_by_what_it_lacks() {
    let mut seen = well();
    let lacks = |word: &str, age_s| InstanceView {
        blocked_by: word.to_owned(),
        ..waiting(
            "none of 2 compute nodes fits: 2 without 'zone = b'; 1 short of gpu",
            age_s,
        )
    };
    seen.queue = vec![lacks("gpu", 30), lacks("gpu", 90), lacks("", 5)];
    let health = health(&seen);
    assert!(health.is_well(), "to wait is no fault: {health:?}");
    let queue = health.glance.iter().find(|(what, _)| *what == "queue");
    let expected = "3 waiting, the oldest for 1m 30s: 2 gpu, 1 room";
    assert_eq!(queue.unwrap().1, expected);
}

#[test]
fn workloads_that_failed_recently_are_told_and_no_fault_of_the_cluster() {
    let mut seen = well();
    let ended = |code, minutes: i64| InstanceView {
        state: PlacementState::Ended,
        exit_code: Some(code),
        ended_at_ms: Some(NOW_S * 1000 - minutes * 60_000),
        ..InstanceView::default()
    };
    seen.ended = vec![ended(1, 5), ended(1, 70), ended(0, 1), ended(-15, 1)];
    let health = health(&seen);
    assert!(health.is_well());
    let failed = health.glance.iter().find(|(what, _)| *what == "failed");
    assert!(
        failed.unwrap().1.starts_with("1 workload ended"),
        "{failed:?}"
    );
}
