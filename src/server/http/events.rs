//! `GET /v1/events`: what happens, as server-sent events.
//!
//! A stream holds a place in the [`Ring`] of events and a chunk that is being written, nothing else; a slow reader
//! delays no other, and is told to read everything once more when what it has not read is gone from the ring. Two
//! events are made here rather than by the core:
//!
//! ```text
//! id: 1f2e3d4c-17
//! event: begin            the stream begins now; from here on nothing is missed
//! data: {}
//!
//! id: 1f2e3d4c-90211
//! event: resync           events are missing: read what you need, then go on from this id
//! data: {"reason":"too_old","sequence":"1f2e3d4c-90211"}
//!
//! id: 1f2e3d4c-90212
//! event: instance_placed  the others: names and data as SSNTP has them
//! data: {"instance_uuid":"…","node_uuid":"…"}
//!
//! :                       every 15 s without an event
//! ```
//!
//! A stream with a filter is not woken for each event of the cluster: its [`Interest`] tells it between which numbers
//! its own are, see [`interest`](super::interest).

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use proto_frames::payload::Topic;
use proto_frames::payload::cut::shorten;
use proto_frames::payload::identifier::usual_form;
use proto_frames::{Frame as WireFrame, Kind, Uuid};
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::call::{Answer, Call, stream_response};
use super::interest::{Filter, Interest};
use super::limits::{EVENT_CHUNK, EVENT_HEARTBEAT, EVENTS_PER_LOOK};
use super::problem::Problem;
use super::ring::{Behind, EventId, Ring, RingEvent};
use crate::server::wire;
use sched_core::{Command, Input, SessionId};

/// The topics that can be followed. STATS are not among them: each node sends one every few seconds, which would push
/// all else out of the ring, and `/v1/nodes` has what they say.
pub(super) const TOPICS: &[&str] = &["nodes", "instances", "failures", "placements", "scheduler"];

/// The command with which the door's session subscribes to all [`TOPICS`]. It is made as a value: there is no frame,
/// and the parcel, which is never sent on, is empty.
pub(super) fn subscription(session: SessionId) -> Input {
    let topics = TOPICS.iter().map(|&topic| Topic::from(topic));
    Input::Command {
        session,
        command: Command::Watch(topics.collect()),
        parcel: wire::parcel(WireFrame::new(Kind::WATCH, Uuid::nil(), Bytes::new())),
    }
}

/// `GET /v1/events`. Where the stream begins:
///
/// - without `from`, or `now`: behind the latest event, with an event `begin`;
/// - `Last-Event-ID`, which browsers send when they connect once more, or else `from`: behind that event. The id of
///   another run of the scheduler, or one that was not given out yet, gets a `resync` instead.
///
/// Whether the events behind an id are still kept shows when the stream is first polled.
///
/// # Errors
/// 400 `invalid_parameter`: `from` or `Last-Event-ID` is no id.
pub(super) async fn events(call: Call) -> Answer {
    let words = call.query.words("topics");
    let mut topics: Vec<String> = words.into_iter().flatten().map(str::to_owned).collect();
    topics.sort_unstable();
    topics.dedup();
    let named = |key: &str| call.query.text(key).map(|id| usual_form(id).into_owned());
    let filter = Filter {
        topics,
        instance: named("instance"),
        node: named("node"),
    };
    let last = call.headers.get("last-event-id");
    let last = last.and_then(|value| value.to_str().ok());
    let ring = &call.app.ring;
    // Registered before its place is read: from here on events are sorted for it, so none falls between.
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
            // An id of this run that was not given out yet.
            Ok(id) if id.epoch == ring.end().epoch && id.sequence > ring.end().sequence => {
                resync(&mut first, ring, "unknown_id")
            }
            Ok(id) if id.epoch == ring.end().epoch => id.sequence,
            // Of an earlier run of the scheduler.
            Ok(_) => resync(&mut first, ring, "unknown_epoch"),
            Err(()) => {
                let detail = format!("'{}' is no event's id, nor `now`", shorten(text));
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
    Ok(stream_response("text/event-stream", Body::new(stream)))
}

/// Adds the event that says that events are missing, and why: `too_old`, `unknown_epoch` or `unknown_id`. Returns the number behind
/// which the stream goes on, which is the latest.
fn resync(out: &mut String, ring: &Ring, reason: &str) -> u64 {
    let end = ring.end();
    let data = json!({"reason": reason, "sequence": end.to_string()});
    // Writing to a string cannot fail.
    let _ = write!(out, "id: {end}\nevent: resync\ndata: {data}\n\n");
    end.sequence
}

/// Ends when there is something for the stream (`true`), or when it has been silent for [`EVENT_HEARTBEAT`] (`false`).
type News = Pin<Box<dyn Future<Output = bool> + Send>>;

/// The body of one answer, which hyper polls whenever it can write.
struct Stream {
    ring: Arc<Ring>,
    /// Where its own events are. Dropping it ends the sorting for this stream.
    interest: Interest,
    /// The number of the last event that was looked at, or that is certainly not one of this stream's.
    sequence: u64,
    /// Up to which event it has to look for its own: it has been told that none is behind that. At the start all that
    /// the ring has.
    goal: u64,
    /// What is to be written next, at most [`EVENT_CHUNK`] and one event.
    ready: String,
    /// The wait for the next event, kept between polls, so that the heartbeat counts from the last write.
    news: Option<News>,
    /// Ends the stream when the scheduler is about to leave; clients connect to the next one with their last id.
    leaving: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// `leaving` has ended, and must not be polled again.
    is_over: bool,
}

impl Stream {
    /// Looks at events until there is a chunk of its own, or none is left up to `goal`. Bounded by [`EVENT_CHUNK`] in
    /// bytes; events that are not its own are looked at [`EVENTS_PER_LOOK`] at a time under the ring's lock.
    fn gather(&mut self) {
        while self.ready.len() < EVENT_CHUNK {
            if self.sequence >= self.goal {
                // All events up to `goal` are looked at. Are there more of its own?
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
            // Cannot be while `goal` is ahead of `sequence`, but would loop for ever.
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

    /// Adds an event to the chunk, if it is one of its own. The filter is tried before the event is written as JSON,
    /// which is done once for all streams that have it.
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

    /// Begins to wait for an event of this stream's, or for the heartbeat.
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
                // A comment, which clients ignore.
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
