//! The latest events, numbered, for any number of readers.
//!
//! The core sends its events to a session whose [`Door`] the ring is. Each gets a number and is kept until there are
//! too many; readers keep their own places and take what is behind them, so that a slow one costs nothing and delays no
//! other. What is too old is dropped; a reader that asks for it is told to read everything again.
//!
//! ```text
//! core ── take (its lock held) ──▶ push ──▶ kept: 17 18 19 … 65552
//!                                    │ stirred        ▲ behind(n, at most)
//!                                    ▼                │
//!                        pump: every 50 ms ── sort ──▶ interests ── tell ──▶ streams
//!                                          └─ latest ──▶ requests that wait for an outcome
//! ```
//!
//! Messages are kept as the core sent them. They are written as JSON only when a reader has them, and once for all
//! readers.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use proto_frames::payload::Topic;
use proto_frames::payload::identifier::usual_form;
use sched_model::value::{Record, Value as Typed, ValueWriter};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::sleep;

use super::interest::{About, Interests};
use super::json::to_json;
use crate::net::budget::Budget;
use crate::printable;
use crate::server::hub::Door;
use crate::server::wire::{self, EventVisitor};
use sched_core::Message;

/// Events kept: a minute of a thousand placements in a second. The documentation of the HTTP API names the number.
pub(super) const MAX_EVENTS: usize = 65_536;

/// Bytes of events kept, as messages count in queues: about what [`MAX_EVENTS`] of them take. The JSON of those that
/// were read comes on top.
pub(super) const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// How long events are gathered before readers are woken: thousands of streams are not to be woken for each. It is also
/// how late an event may be for a reader.
const GATHER: Duration = Duration::from_millis(50);

/// Events sorted for readers before the task yields to others of the runtime.
const SORTED_AT_A_TIME: usize = 256;

/// The key under which an event names its instance.
const INSTANCE: &str = "instance_uuid";

/// The key under which it names its node.
const NODE: &str = "node_uuid";

/// A place in the stream of events, behind the event with this number. Prints as `1f2e3d4c-17`; clients get it as
/// `sequence` and as `id` of an event, and give it back as `from` or `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventId {
    /// Which run of the scheduler: a random number, the first 32 bits of a UUID.
    pub(super) epoch: u32,
    /// How many events that run had told. The first has 1; 0 is the place before it.
    pub(super) sequence: u64,
}

/// One event, shared by the ring and the readers that look at it.
#[derive(Debug)]
pub(super) struct RingEvent {
    pub(super) sequence: u64,
    /// As the core sent it.
    message: Message,
    /// How it is told, from the first reader that has it on.
    told: OnceLock<Option<Told>>,
}

/// An event as it is told, with what requests that wait for an outcome look for.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) topic: Topic,
    /// The value of `event:`, such as `instance_placed`.
    pub(super) name: &'static str,
    /// What it says, as a JSON object on one line.
    pub(super) data: String,
    /// The value of `instance_uuid`, unless that is empty.
    pub(super) instance: Option<String>,
    /// The value of `node_uuid`, unless that is empty.
    pub(super) node: Option<String>,
    /// The value of `state`, which instance_state and drain_progress have.
    pub(super) state: Option<String>,
}

/// The latest events.
#[derive(Debug)]
pub(super) struct Ring {
    /// Set when the ring is made.
    epoch: u32,
    kept: Mutex<Kept>,
    /// The number of the latest event. Written under the lock of `kept`; [`Ring::end`] reads it without that lock.
    last: AtomicU64,
    /// Told of each event. Wakes the pump, which alone waits for it.
    stirred: Notify,
    /// The number of the latest event, told at most every [`GATHER`].
    latest: watch::Sender<u64>,
    /// The streams, and which events they want.
    pub(super) interests: Arc<Interests>,
}

/// The events that are kept.
#[derive(Debug, Default)]
struct Kept {
    /// In order, their numbers without gaps; with each what it counts against [`MAX_EVENT_BYTES`].
    events: VecDeque<(Arc<RingEvent>, usize)>,
    /// The sum of what they count.
    bytes: usize,
}

/// What there is behind a place.
#[derive(Debug)]
pub(super) enum Behind {
    /// These events, in order; none if it is the end.
    Events(Vec<Arc<RingEvent>>),
    /// Some of them are not kept any more, or the place is ahead of the latest event.
    Gone,
}

impl Ring {
    /// An empty ring of a new epoch.
    pub(super) fn new() -> Arc<Self> {
        let (epoch, ..) = proto_frames::Uuid::new_v4().as_fields();
        Arc::new(Self {
            epoch,
            kept: Mutex::default(),
            last: AtomicU64::new(0),
            stirred: Notify::new(),
            latest: watch::Sender::new(0),
            interests: Arc::default(),
        })
    }

    /// The place behind the latest event. Read under the core's lock together with rows, it is where these rows hold,
    /// because events are pushed under that lock.
    pub(super) fn end(&self) -> EventId {
        EventId {
            epoch: self.epoch,
            sequence: self.last.load(Ordering::SeqCst),
        }
    }

    /// At most so many of the events behind this number. Cheap for long lists: events are shared, and the first is
    /// found by its number.
    pub(super) fn behind(&self, sequence: u64, at_most: usize) -> Behind {
        let kept = self.kept.lock();
        let last = self.last.load(Ordering::SeqCst);
        let first = kept.events.front().map_or(last + 1, |(it, _)| it.sequence);
        if sequence > last || sequence + 1 < first {
            return Behind::Gone;
        }
        let skip = usize::try_from(sequence + 1 - first).unwrap_or(usize::MAX);
        let events = kept.events.iter().skip(skip).take(at_most);
        Behind::Events(events.map(|(event, _)| Arc::clone(event)).collect())
    }

    /// A receiver of the number of the latest event, told at most every [`GATHER`]. For requests that wait for an
    /// outcome.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// Sorts what has come for the streams that want it, and wakes them. Runs as one task of the daemon, off the core's
    /// lock; never returns. With a flood of events it sorts [`SORTED_AT_A_TIME`] and yields.
    pub(super) async fn pump(&self) {
        let mut sorted = 0;
        loop {
            self.stirred.notified().await;
            sleep(GATHER).await;
            let last = self.last.load(Ordering::SeqCst);
            while sorted < last {
                sorted = self.sort(sorted, last);
                yield_now().await;
            }
            self.interests.tell();
            self.latest.send_replace(last);
        }
    }

    /// Sorts some of the events behind this number for the streams that want them; the number of the last that was
    /// sorted. Without streams there is nothing to sort, and the events are only passed over. If the pump was so late
    /// that events were dropped unsorted, all streams are told to look for themselves ([`Interests::sort_any`]).
    fn sort(&self, sequence: u64, last: u64) -> u64 {
        let events = match self.behind(sequence, SORTED_AT_A_TIME) {
            Behind::Events(events) if !self.interests.is_empty() => events,
            Behind::Events(events) => {
                return events.last().map_or(last, |event| event.sequence);
            }
            Behind::Gone => {
                self.interests.sort_any((sequence + 1, last));
                return last;
            }
        };
        for event in &events {
            if let Some(about) = event.about() {
                self.interests.sort(event.sequence, &about);
            }
        }
        events.last().map_or(last, |event| event.sequence)
    }

    /// Adds an event under the next number, and drops the oldest beyond the limits. Called under the core's lock: no
    /// JSON is written here.
    fn push(&self, message: Message) {
        let cost = wire::cost(&message);
        let mut kept = self.kept.lock();
        let sequence = self.last.load(Ordering::SeqCst) + 1;
        let event = Arc::new(RingEvent {
            sequence,
            message,
            told: OnceLock::new(),
        });
        kept.bytes += cost;
        kept.events.push_back((event, cost));
        while kept.events.len() > MAX_EVENTS || kept.bytes > MAX_EVENT_BYTES {
            let Some((_, cost)) = kept.events.pop_front() else {
                break;
            };
            kept.bytes -= cost;
        }
        // Stored after the event is kept, so that no reader looks for one that is not there.
        self.last.store(sequence, Ordering::SeqCst);
        drop(kept);
        self.stirred.notify_one();
    }
}

impl Door for Ring {
    fn take(&self, message: Message) {
        // The first message to every session. It is no event.
        if !matches!(message, Message::Connected { .. }) {
            self.push(message);
        }
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

impl RingEvent {
    /// The event as it is told; `None` for a message that is no event to clients. The first call writes the JSON.
    pub(super) fn told(&self) -> Option<&Told> {
        let told = self
            .told
            .get_or_init(|| wire::visit(&self.message, Telling));
        told.as_ref()
    }

    /// What the event is about; `None` for a message that is no event to clients. Does not write the JSON where that
    /// has not been done.
    pub(super) fn about(&self) -> Option<About> {
        match self.told.get() {
            Some(told) => told.as_ref().map(|told| About {
                topic: told.topic.clone(),
                instance: told.instance.clone(),
                node: told.node.clone(),
            }),
            None => wire::visit(&self.message, Sorting),
        }
    }
}

/// Reads what an event is about without writing it: most events of a large cluster are no stream's.
struct Sorting;

impl EventVisitor for Sorting {
    type Out = About;

    fn event<T: Record>(self, topic: Topic, _: &'static str, it: &T) -> About {
        let mut fields = Subjects::default();
        it.write_fields(&mut fields);
        About {
            topic,
            instance: fields.instance,
            node: fields.node,
        }
    }
}

/// The instance and the node that a record names: a writer that passes over all but these two keys.
#[derive(Default)]
struct Subjects {
    /// The text written last, unless it is empty. Only used in the writer of a single field.
    text: Option<String>,
    instance: Option<String>,
    node: Option<String>,
}

impl ValueWriter for Subjects {
    fn write_text(&mut self, text: &str) {
        self.text = (!text.is_empty()).then(|| usual_form(text).into_owned());
    }

    fn write_int(&mut self, _: i128) {}

    fn write_bool(&mut self, _: bool) {}

    fn write_null(&mut self) {}

    fn write_list<T: Typed>(&mut self, _: &[T]) {}

    fn write_entries<T: Typed>(&mut self, _: &BTreeMap<String, T>) {}

    fn write_record<T: Record>(&mut self, _: &T) {}

    fn write_field<T: Typed>(&mut self, key: &str, field: &T) {
        let into = match key {
            INSTANCE => &mut self.instance,
            NODE => &mut self.node,
            _ => return,
        };
        let mut text = Self::default();
        field.write(&mut text);
        *into = text.text;
    }
}

/// Writes an event as JSON.
struct Telling;

impl EventVisitor for Telling {
    type Out = Told;

    fn event<T: Record>(self, topic: Topic, name: &'static str, it: &T) -> Told {
        let fields = to_json(it);
        let text = |key: &str| {
            let text = fields.get(key).and_then(Value::as_str);
            let text = text.filter(|text| !text.is_empty());
            text.map(|text| usual_form(text).into_owned())
        };
        let (instance, node, state) = (text(INSTANCE), text(NODE), text("state"));
        Told {
            topic,
            name,
            data: printable::json(Value::Object(fields).to_string()),
            instance,
            node,
            state,
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.epoch, self.sequence)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (epoch, sequence) = text.split_once('-').ok_or(())?;
        let epoch = u32::from_str_radix(epoch, 16).map_err(|_| ())?;
        let sequence = sequence.parse().map_err(|_| ())?;
        Ok(Self { epoch, sequence })
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::InstancePlaced;

    use super::*;

    fn placed(number: usize) -> Message {
        Message::InstancePlaced(InstancePlaced {
            instance_uuid: number.to_string(),
            ..InstancePlaced::default()
        })
    }

    fn numbers(behind: Behind) -> Vec<u64> {
        match behind {
            Behind::Events(events) => events.iter().map(|event| event.sequence).collect(),
            Behind::Gone => panic!("gone"),
        }
    }

    #[test]
    fn each_reader_has_its_own_place_and_what_is_too_old_is_gone() {
        let ring = Ring::new();
        assert_eq!(numbers(ring.behind(0, 10)), [0; 0]);
        for number in 0..MAX_EVENTS + 10 {
            ring.take(placed(number));
        }
        let last = u64::try_from(MAX_EVENTS + 10).unwrap();
        assert_eq!(ring.end().sequence, last);
        assert!(matches!(ring.behind(9, 1), Behind::Gone));
        assert_eq!(numbers(ring.behind(10, 2)), [11, 12]);
        assert_eq!(numbers(ring.behind(last - 1, 9)), [last]);
        assert_eq!(numbers(ring.behind(last, 9)), [0; 0]);
        assert!(matches!(ring.behind(last + 1, 1), Behind::Gone));
    }

    #[test]
    fn large_events_are_kept_in_smaller_numbers() {
        let ring = Ring::new();
        for _ in 0..100 {
            ring.take(Message::InstancePlaced(InstancePlaced {
                hostname: "x".repeat(1024 * 1024),
                ..InstancePlaced::default()
            }));
        }
        assert!(matches!(ring.behind(50, 1), Behind::Gone));
        assert_eq!(numbers(ring.behind(99, 1)), [100]);
    }

    #[test]
    fn an_event_says_what_other_formats_say_and_its_id_is_read_as_it_was_written() {
        let ring = Ring::new();
        ring.take(placed(7));
        let Behind::Events(events) = ring.behind(0, 1) else {
            panic!("gone")
        };
        let told = events[0].told().unwrap();
        assert_eq!(
            (told.name, told.instance.as_deref()),
            ("instance_placed", Some("7"))
        );
        let fresh = wire::visit(&events[0].message, Sorting);
        assert_eq!(fresh, events[0].about());
        assert_eq!(fresh.unwrap().instance.as_deref(), Some("7"));
        let id = ring.end();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("now".parse::<EventId>(), Err(()));
    }
}
