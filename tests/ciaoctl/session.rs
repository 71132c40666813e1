//! The session that other programs build on: `ctl::client`.

use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::client::{Client, ClientConfig, ClientError, StartError};
use ciao_scheduler::ctl::commands::start::follow;
use ciao_scheduler::ctl::commands::wait::{Losses, News, Reconnect};
use ciao_scheduler::ctl::event::Event;
use ciao_scheduler::ctl::start_file::StartRequest;
use ciao_scheduler::ctl::track::{Stage, Until};
use ciao_scheduler::net::tls::{LastRead, TrustFiles};
use proto_frames::Kind;
use proto_frames::payload::{
    CommandRefused, InstanceStopped, InstanceView, Payload, PlacementState, Query, QueryKind,
    QueryResult, RefusalReason, Start, StartFailure, StartFailureReason, Topic, Watch,
};

use crate::scheduler::{DEADLINE, Scheduler, answer, instance, instance_of, node, placed};

async fn connect(scheduler: &Scheduler, answer_timeout: Duration) -> Client {
    let config = config(scheduler, answer_timeout);
    Client::connect(&config).await.unwrap()
}

fn config(scheduler: &Scheduler, answer_timeout: Duration) -> ClientConfig {
    ClientConfig {
        server: format!("localhost:{}", scheduler.address.port()),
        server_name: None,
        cert: scheduler.certs.path().join("cert-Controller-localhost.pem"),
        trust: TrustFiles::without_crls(scheduler.certs.path().join("CAcert-localhost.pem")),
        connect_timeout: DEADLINE,
        answer_timeout,
        last: LastRead::default(),
    }
}

fn start(instance_uuid: &str) -> Bytes {
    Start {
        instance_uuid: instance_uuid.into(),
        ..Start::default()
    }
    .encode()
}

#[tokio::test]
async fn a_start_is_answered_by_its_own_placement_and_other_events_are_kept() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            let stopped = InstanceStopped {
                instance_uuid: "other".into(),
                exit_code: Some(0),
                ..InstanceStopped::default()
            };
            peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
            peers.send(from, Kind::INSTANCE_PLACED, placed("other"));
            peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame)));
        }
    })
    .await;
    let mut client = connect(&scheduler, DEADLINE).await;
    client.watch(&[Topic::Instances]).await.unwrap();
    assert_eq!(
        client.start("i1", start("i1")).await.unwrap().hostname,
        "node-a"
    );
    assert!(matches!(
        client.next_event().await.unwrap(),
        Event::InstanceStopped(_)
    ));
    assert!(
        matches!(client.next_event().await.unwrap(), Event::Placed(placed) if placed.instance_uuid == "other")
    );
    let topics = Watch::decode(scheduler.seen(Kind::WATCH).last().unwrap())
        .unwrap()
        .topics;
    assert_eq!(
        topics,
        [Topic::Instances, Topic::Placements],
        "a start needs placements, and keeps what was watched"
    );
}

#[tokio::test]
async fn a_start_that_fails_is_an_error_with_the_reason() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            let reason = StartFailureReason::NoComputeNodes;
            let failure = StartFailure {
                instance_uuid: instance_of(frame),
                reason,
                ..StartFailure::default()
            };
            peers.send(from, Kind::START_FAILURE, failure.encode());
        }
    })
    .await;
    let error = connect(&scheduler, DEADLINE)
        .await
        .start("i1", start("i1"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, StartError::Failed(failure) if failure.reason == StartFailureReason::NoComputeNodes)
    );
    assert_eq!(error.to_string(), "could not be started: no_cn");
}

#[tokio::test]
async fn a_start_that_is_refused_is_an_error_at_once_unless_another_is_meant() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::START {
            let refused = |instance: &str| CommandRefused {
                ty: Kind::START.ty.0,
                operand: Kind::START.operand,
                name: Kind::START.to_string(),
                reason: RefusalReason::NotPermitted,
                detail: format!("{instance} is refused"),
                instance_uuid: Some(instance.to_owned()),
            };
            let refusals = ["other".to_owned(), instance_of(frame)];
            for instance in &refusals {
                peers.send(from, Kind::COMMAND_REFUSED, refused(instance).encode());
            }
        }
    })
    .await;
    let mut client = connect(&scheduler, DEADLINE).await;
    let error = client.start("i1", start("i1")).await.unwrap_err();
    assert!(
        matches!(&error, StartError::Client(ClientError::Refused(refused)) if refused.detail == "i1 is refused"),
        "{error:?}"
    );
    assert!(
        matches!(client.kept_event(), Some(Event::Refused(refused)) if refused.detail == "other is refused")
    );
}

#[tokio::test]
async fn an_answer_that_comes_after_its_query_was_given_up_is_not_taken_for_another() {
    let mut late = None;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        let result = answer(frame, &[node("4c", "node-a")], &[], 10);
        match late.take() {
            None => late = Some(result),
            Some(first) => {
                peers.send(from, Kind::QUERY_RESULT, first);
                peers.send(
                    from,
                    Kind::QUERY_RESULT,
                    answer(frame, &[node("be", "node-b")], &[], 10),
                );
            }
        }
    })
    .await;
    let mut client = connect(&scheduler, Duration::from_secs(1)).await;
    let error = client.list(QueryKind::Nodes, None).await.unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer { .. }), "{error}");
    let listing = client.list(QueryKind::Nodes, None).await.unwrap();
    assert_eq!(listing.nodes[0].hostname, "node-b");
    assert!(client.kept_event().is_none());
}

#[tokio::test]
async fn a_listing_without_an_end_is_an_error() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let query = Query::decode(&frame.payload).unwrap();
        let result = QueryResult {
            id: query.id,
            what: query.what,
            next: Some("0".into()),
            ..QueryResult::default()
        };
        peers.send(from, Kind::QUERY_RESULT, result.encode());
    })
    .await;
    let error = connect(&scheduler, DEADLINE)
        .await
        .list(QueryKind::Nodes, None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("has no end"), "{error}");
}

/// As while its machine sleeps: nothing is closed, and the first query is not answered.
#[tokio::test]
async fn a_scheduler_that_stops_answering_is_as_a_lost_connection() {
    let mut queries = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::START => peers.send(from, Kind::INSTANCE_PLACED, placed(&instance_of(frame))),
        Kind::QUERY => {
            queries += 1;
            if queries > 1 {
                let ended = InstanceView {
                    instance_uuid: "i1".to_owned(),
                    state: PlacementState::Ended,
                    age_s: 0,
                    exit_code: Some(5),
                    ..instance("11", &node("4c", "node-a"))
                };
                let result = answer(frame, &[], &[ended], 10);
                peers.send(from, Kind::QUERY_RESULT, result);
            }
        }
        _ => {}
    })
    .await;
    let reconnect = Reconnect {
        after: Losses::All,
        config: config(&scheduler, Duration::from_secs(1)),
        patience: DEADLINE,
    };
    let mut client = connect(&scheduler, Duration::from_secs(1)).await;
    let requests = [StartRequest {
        name: "a".to_owned(),
        instance_uuid: "i1".to_owned(),
        payload: start("i1"),
    }];
    let mut remarks = Vec::new();
    let changed = &mut |news: News<'_>| {
        if let News::Connection(remark) = news {
            remarks.push(remark);
        }
        Ok(())
    };
    let until = Until::Exited;
    let followed = follow(
        &mut client,
        &requests,
        until,
        DEADLINE,
        Some(&reconnect),
        changed,
    );
    let tracker = followed.await.unwrap();
    let stage = &tracker.all()[0].stage;
    assert_eq!(stage, &Stage::Ended { exit_code: Some(5) });
    assert!(
        remarks[0].contains("no answer to QUERY within 1s"),
        "{remarks:?}"
    );
    assert_eq!(remarks.last().unwrap(), "connected again");
    assert_eq!(scheduler.seen(Kind::START).len(), 1, "sent once");
}
