//! `GET /v1/events`: what happens, as server-sent events. Each stream has a place in the ring of events and a chunk that is
//! being written; a slow reader has no more than that, and is told to look anew once what it has not read is gone.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use hyper::body::Frame;
use proto_frames::payload::Topic;
use proto_frames::{Frame as WireFrame, Kind, Uuid};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::call::{Answer, Call, text_response};
use super::limits::{EVENT_CHUNK, EVENT_HEARTBEAT, EVENTS_PER_LOOK};
use super::problem::Problem;
use super::ring::{Behind, EventId, Ring, Told};
use super::routes::topic;
use crate::server::wire;
use sched_core::{Command, Input, SessionId};

/// The topics that can be followed. Not STATS: they are each node's own every few seconds, and `/v1/nodes` has what they say.
pub(super) const TOPICS: &[&str] = &["nodes", "instances", "failures", "placements"];

/// What the session that hears events subscribes to.
pub(super) fn subscription(session: SessionId) -> Input {
    let topics = TOPICS.iter().map(|&topic| Topic::from(topic));
    Input::Command {
        session,
        command: Command::Watch(topics.collect()),
        parcel: wire::parcel(WireFrame::new(Kind::WATCH, Uuid::nil(), Bytes::new())),
    }
}

/// Which events a stream has.
#[derive(Debug, Default)]
struct Filter {
    topics: Option<Vec<Topic>>,
    instance: Option<String>,
    node: Option<String>,
}

impl Filter {
    fn takes(&self, told: &Told) -> bool {
        let has =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let is_topic = |topics: &Vec<Topic>| topics.contains(&told.topic);
        self.topics.as_ref().is_none_or(is_topic)
            && has(&self.instance, &told.instance)
            && has(&self.node, &told.node)
    }
}

/// GET /v1/events.
pub(super) async fn events(call: Call) -> Answer {
    let words = call.query.words("topics");
    let topics: Option<Vec<Topic>> = words.map(|words| words.filter_map(topic).collect());
    let filter = Filter {
        topics: topics.filter(|topics| !topics.is_empty()),
        instance: call.query.text("instance").map(str::to_owned),
        node: call.query.text("node").map(str::to_owned),
    };
    let last = call.headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok());
    let ring = &call.app.ring;
    let mut first = String::new();
    let sequence = match last.or(call.query.text("from")) {
        None | Some("" | "now") => {
            let end = ring.end();
            // An id from the start, so that a stream without events can be resumed as well.
            let _ = write!(first, "id: {end}\nevent: begin\ndata: {{}}\n\n");
            end.sequence
        }
        Some(text) => match text.parse::<EventId>() {
            Ok(id) if id.epoch == ring.end().epoch => id.sequence,
            // Of an earlier run of the scheduler.
            Ok(_) => resync(&mut first, ring, "unknown_epoch"),
            Err(()) => {
                let detail = format!("'{text}' is no event's id, nor `now`");
                return Err(Problem::parameter("from", detail));
            }
        },
    };
    let app = Arc::clone(&call.app);
    let stream = Stream {
        ring: Arc::clone(ring),
        filter,
        sequence,
        ready: first,
        news: None,
        leaving: Box::pin(async move { app.hub.leaving().await }),
        is_over: false,
    };
    Ok(text_response(
        StatusCode::OK,
        "text/event-stream",
        Body::new(stream),
    ))
}

/// Says that events are missing; the place to go on from.
fn resync(out: &mut String, ring: &Ring, reason: &str) -> u64 {
    let end = ring.end();
    let data = json!({"reason": reason, "sequence": end.to_string()});
    // Writing to a string cannot fail.
    let _ = write!(out, "id: {end}\nevent: resync\ndata: {data}\n\n");
    end.sequence
}

/// Waits for news, or for so long that the reader is to hear that the stream is still there.
type News = Pin<Box<dyn Future<Output = bool> + Send>>;

/// The body of one answer.
struct Stream {
    ring: Arc<Ring>,
    filter: Filter,
    /// The number of the last event that was looked at.
    sequence: u64,
    /// What is to be written next.
    ready: String,
    news: Option<News>,
    leaving: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_over: bool,
}

impl Stream {
    /// Looks at what there is until there is a chunk of it, or no more.
    fn gather(&mut self) {
        while self.ready.len() < EVENT_CHUNK {
            let events = match self.ring.behind(self.sequence, EVENTS_PER_LOOK) {
                Behind::Events(events) if events.is_empty() => return,
                Behind::Events(events) => events,
                Behind::Gone => {
                    let ring = Arc::clone(&self.ring);
                    self.sequence = resync(&mut self.ready, &ring, "too_old");
                    return;
                }
            };
            for event in events {
                self.sequence = event.sequence;
                if let Some(told) = event.told().filter(|told| self.filter.takes(told)) {
                    let id = EventId {
                        sequence: event.sequence,
                        ..self.ring.end()
                    };
                    let (name, data) = (told.name, &told.data);
                    let _ = write!(self.ready, "id: {id}\nevent: {name}\ndata: {data}\n\n");
                    if self.ready.len() >= EVENT_CHUNK {
                        return;
                    }
                }
            }
        }
    }

    fn news(&mut self) -> News {
        let mut listening: watch::Receiver<u64> = self.ring.listen();
        let (ring, seen) = (Arc::clone(&self.ring), self.sequence);
        let until = Instant::now() + EVENT_HEARTBEAT;
        Box::pin(async move {
            // What came before this was listened to is not waited for.
            if ring.end().sequence > seen && *listening.borrow_and_update() > seen {
                return true;
            }
            tokio::select! {
                told = listening.wait_for(|last| *last > seen) => told.is_ok(),
                () = sleep_until(until) => false,
            }
        })
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            if this.is_over || this.leaving.as_mut().poll(cx).is_ready() {
                this.is_over = true;
                return Poll::Ready(None);
            }
            this.gather();
            if !this.ready.is_empty() {
                this.news = None;
                let chunk = std::mem::take(&mut this.ready);
                return Poll::Ready(Some(Ok(Frame::data(chunk.into()))));
            }
            let mut news = match this.news.take() {
                Some(news) => news,
                None => this.news(),
            };
            match news.as_mut().poll(cx) {
                Poll::Pending => {
                    this.news = Some(news);
                    return Poll::Pending;
                }
                Poll::Ready(true) => {}
                Poll::Ready(false) => this.ready.push_str(":\n\n"),
            }
        }
    }
}
