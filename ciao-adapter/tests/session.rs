//! The session with a scheduler of which the test writes the script.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "../../tests/common/certs.rs"]
mod certs;
#[path = "common/process.rs"]
mod process;
#[path = "common/scripted.rs"]
mod scripted;

use ciao_adapter::session::{self, Requests, SessionEvent};
use ciao_scheduler::ctl::client::{Client, ClientError, MAX_BACKLOG};
use proto_frames::Kind;
use proto_frames::payload::{InstanceStopped, Payload as _, QueryKind, QueryResult, Topic};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::process::DEADLINE;
use crate::scripted::Scripted;

#[derive(Clone)]
struct Instances;

impl Requests for Instances {
    type Ask = ();
    type Listing = ();

    const TOPICS: &'static [Topic] = &[Topic::Instances];

    async fn send(&mut self, _client: &mut Client, (): ()) -> Result<(), ClientError> {
        Ok(())
    }

    async fn list(&mut self, client: &mut Client) -> Result<(), ClientError> {
        client.list(QueryKind::Instances, None).await.map(drop)
    }

    /// So many that the next listing comes by itself long after the test has given up.
    fn entries((): &()) -> usize {
        1_000_000
    }
}

#[tokio::test]
async fn events_that_were_dropped_are_told_and_listed_for_at_once() {
    let mut queries = 0;
    let scheduler = Scripted::playing(move |answers, _, frame| {
        if frame.kind != Kind::QUERY {
            return;
        }
        queries += 1;
        if queries == 1 {
            let stopped = InstanceStopped::default().encode();
            for _ in 0..=MAX_BACKLOG {
                answers.send(Kind::INSTANCE_STOPPED, stopped.clone());
            }
        }
        answers.page(frame, QueryResult::default());
    })
    .await;
    let (hear, mut heard) = mpsc::channel(1);
    tokio::spawn(session::run(scheduler.client(), Instances, hear));
    let mut next = async || timeout(DEADLINE, heard.recv()).await.unwrap().unwrap();
    // What it sends by is kept: without it, the session would end.
    let up @ SessionEvent::Up(_) = next().await else {
        panic!("there is no connection");
    };
    assert!(matches!(next().await, SessionEvent::Missed));
    for _ in 0..MAX_BACKLOG {
        assert!(matches!(next().await, SessionEvent::Event(_)));
    }
    for _ in 0..2 {
        assert!(matches!(next().await, SessionEvent::Listing(_)));
    }
    drop(up);
}
