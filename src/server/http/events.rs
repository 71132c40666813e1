//! `GET /v1/events`: what happens, as server-sent events. Each stream has a place in the ring of events and a chunk that is
//! being written; a slow reader has no more than that, and is told to read everything again once what it has not read is gone.

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
use tokio::time::{Instant, sleep_until};

use super::call::{Answer, Call, text_response};
use super::interest::{Filter, Interest};
use super::limits::{EVENT_CHUNK, EVENT_HEARTBEAT, EVENTS_PER_LOOK};
use super::problem::Problem;
use super::ring::{Behind, EventId, Ring, RingEvent};
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

/// GET /v1/events.
pub(super) async fn events(call: Call) -> Answer {
    let words = call.query.words("topics");
    let mut topics: Vec<String> = words.into_iter().flatten().map(str::to_owned).collect();
    topics.sort_unstable();
    topics.dedup();
    let filter = Filter {
        topics,
        instance: call.query.text("instance").map(str::to_owned),
        node: call.query.text("node").map(str::to_owned),
    };
    let last = call.headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok());
    let ring = &call.app.ring;
    // Before its place is read: what comes behind that is sorted for it.
    let interest = ring.interests.register(&filter);
    let mut first = String::new();
    let sequence = match last.or(call.query.text("from")) {
        None | Some("" | "now") => {
            let end = ring.end();
            // An id from the start, so that a stream without events can be resumed as well.
            let _ = write!(first, "id: {end}\nevent: begin\ndata: {{}}\n\n");
            end.sequence
        }
        Some(text) => match text.parse::<EventId>() {
            // Not told yet, so not by this scheduler.
            Ok(id) if id.epoch == ring.end().epoch && id.sequence > ring.end().sequence => {
                resync(&mut first, ring, "too_old")
            }
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
        interest,
        sequence,
        goal: ring.end().sequence,
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
    interest: Interest,
    /// The number of the last event that was looked at, or is certainly none of its own.
    sequence: u64,
    /// Up to which event it has to look for its own.
    goal: u64,
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
            if self.sequence >= self.goal {
                let Some((first, last)) = self.interest.take() else {
                    return;
                };
                self.sequence = self.sequence.max(first - 1);
                self.goal = last;
                continue;
            }
            let events = match self.ring.behind(self.sequence, EVENTS_PER_LOOK) {
                Behind::Events(events) => events,
                Behind::Gone => {
                    let ring = Arc::clone(&self.ring);
                    self.sequence = resync(&mut self.ready, &ring, "too_old");
                    return;
                }
            };
            if events.is_empty() {
                self.goal = self.sequence;
            }
            for event in events {
                self.sequence = event.sequence;
                self.tell(&event);
                if self.ready.len() >= EVENT_CHUNK {
                    return;
                }
            }
        }
    }

    /// Adds an event to the chunk, if it is one of its own.
    fn tell(&mut self, event: &RingEvent) {
        let filter = self.interest.filter();
        let is_own = || event.about().is_some_and(|about| filter.takes(&about));
        if *filter != Filter::default() && !is_own() {
            return;
        }
        if let Some(told) = event.told() {
            let id = EventId {
                sequence: event.sequence,
                ..self.ring.end()
            };
            let (name, data) = (told.name, &told.data);
            // Writing to a string cannot fail.
            let _ = write!(self.ready, "id: {id}\nevent: {name}\ndata: {data}\n\n");
        }
    }

    fn news(&self) -> News {
        let told = self.interest.told();
        let until = Instant::now() + EVENT_HEARTBEAT;
        Box::pin(async move {
            tokio::select! {
                () = told => true,
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use proto_frames::payload::InstancePlaced;

    use super::super::ring::MAX_EVENTS;
    use super::*;
    use crate::server::hub::Door as _;
    use sched_core::Message;

    fn place(ring: &Ring, instance: &str) {
        ring.take(Message::InstancePlaced(InstancePlaced {
            instance_uuid: instance.to_owned(),
            ..InstancePlaced::default()
        }));
    }

    fn stream(ring: &Arc<Ring>, filter: &Filter) -> Stream {
        Stream {
            ring: Arc::clone(ring),
            interest: ring.interests.register(filter),
            sequence: 0,
            goal: 0,
            ready: String::new(),
            news: None,
            leaving: Box::pin(std::future::pending()),
            is_over: false,
        }
    }

    async fn text(stream: &mut Stream) -> String {
        let frame = stream.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_what_seldom_happens_misses_nothing_however_much_else_does() {
        let ring = Ring::new();
        let pump = Arc::clone(&ring);
        let pump = tokio::spawn(async move { pump.pump().await });
        let of_a = Filter {
            instance: Some("a".to_owned()),
            ..Filter::default()
        };
        let (mut own, mut slow) = (stream(&ring, &of_a), stream(&ring, &Filter::default()));
        for round in 0..3 {
            for number in 0..MAX_EVENTS {
                place(&ring, &format!("b{number}"));
                if number % 1_000 == 0 {
                    // The clock goes on by itself while all wait: what came is sorted.
                    sleep_until(Instant::now() + EVENT_HEARTBEAT / 100).await;
                }
            }
            place(&ring, "a");
            let told = loop {
                match text(&mut own).await {
                    heartbeat if heartbeat == ":\n\n" => {}
                    told => break told,
                }
            };
            assert!(told.contains("event: instance_placed"), "{round}: {told}");
            assert!(told.contains("\"instance_uuid\":\"a\""), "{told}");
            assert_eq!(told.matches("event: ").count(), 1, "{told}");
        }
        // One that has all of them and does not read is told what it missed.
        assert!(text(&mut slow).await.contains("event: resync"));
        pump.abort();
    }
}
