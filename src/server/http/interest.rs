//! Which streams want which events.
//!
//! A stream waits until there is an event of its own, rather than look at each: thousands that follow what does not
//! happen cost nothing while much else does. Streams with the same filter are one group. The ring's pump sorts each
//! event: it finds the groups that want it through an index by instance, node or topic, and widens the group's span of
//! unseen events. Then it tells the groups, and each stream widens its own span and wakes:
//!
//! ```text
//! event 7 about instance a ── sort ──▶ group {instance: a}: found (7, 7) ── tell ──▶ its streams: span (7, 7)
//! event 9 about instance a ── sort ──▶ group {instance: a}: found (9, 9) ── tell ──▶ a slow stream's span: (7, 9)
//! ```
//!
//! A span is two numbers however far a stream is behind, and between them are events of others too, so the stream
//! filters what it reads from the ring once more.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::payload::Topic;
use tokio::sync::Notify;

/// Which events a stream wants: those for which all that it names holds. The default takes all. Its order is that of
/// the map of groups and means nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Filter {
    /// One of these topics; any if there are none. Sorted and without duplicates, so that equal filters share a group.
    pub(super) topics: Vec<String>,
    /// About this instance, by its identifier as events have it.
    pub(super) instance: Option<String>,
    /// About this node, by its UUID as events have it.
    pub(super) node: Option<String>,
}

/// What an event is about, which is all that filters look at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct About {
    pub(super) topic: Topic,
    pub(super) instance: Option<String>,
    pub(super) node: Option<String>,
}

impl Filter {
    /// Whether an event is one of those that the filter names. An event that names no instance is not about one that
    /// the filter names.
    pub(super) fn takes(&self, about: &About) -> bool {
        let has =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let is_topic = |topic: &String| topic == about.topic.as_str();
        (self.topics.is_empty() || self.topics.iter().any(is_topic))
            && has(&self.instance, &about.instance)
            && has(&self.node, &about.node)
    }
}

/// The streams that are open, by what they want. Its lock is taken by the pump, by streams that begin and end, and
/// never under the core's lock.
#[derive(Debug, Default)]
pub(super) struct Interests(Mutex<Registered>);

/// Groups and their indexes. A filter is in exactly one index, and only while its group has a stream.
#[derive(Debug, Default)]
struct Registered {
    /// The number of the stream that was registered last.
    last_id: u64,
    /// The streams, by their filters.
    groups: BTreeMap<Filter, Group>,
    /// Filters that name an instance, by it, whatever else they name.
    by_instance: BTreeMap<String, Vec<Filter>>,
    /// Filters that name a node and no instance, by the node.
    by_node: BTreeMap<String, Vec<Filter>>,
    /// All others. Each event is tried on each of these; there are at most as many as sets of topics.
    by_topic: Vec<Filter>,
}

/// The streams that want the same.
#[derive(Debug, Default)]
struct Group {
    /// By the streams' numbers.
    slots: BTreeMap<u64, Arc<Slot>>,
    /// The span of events that were sorted for the group since its streams were told last.
    found: Option<Span>,
}

/// Numbers of a first and a last event, both inclusive.
pub(super) type Span = (u64, u64);

/// What one stream has been told of and has not looked at. Shared by the group, which writes, and the stream, which
/// takes.
#[derive(Debug, Default)]
struct Slot {
    span: Mutex<Option<Span>>,
    /// Keeps one notification, so that one that comes before the stream waits is not lost.
    told: Notify,
}

/// One stream's place among those that are open. Dropping it takes the stream out, and its group with the last stream.
#[derive(Debug)]
pub(super) struct Interest {
    id: u64,
    filter: Filter,
    slot: Arc<Slot>,
    interests: Arc<Interests>,
}

impl Interests {
    /// Registers a stream: it is told of events that are sorted from now on. Those that came before it has to look for
    /// in the ring.
    pub(super) fn register(self: &Arc<Self>, filter: &Filter) -> Interest {
        let mut registered = self.0.lock();
        registered.last_id += 1;
        let id = registered.last_id;
        let slot = Arc::<Slot>::default();
        if !registered.groups.contains_key(filter) {
            registered.index(filter).push(filter.clone());
        }
        let group = registered.groups.entry(filter.clone()).or_default();
        group.slots.insert(id, Arc::clone(&slot));
        Interest {
            id,
            filter: filter.clone(),
            slot,
            interests: Arc::clone(self),
        }
    }

    /// Whether no stream is open, so that nothing need be sorted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().groups.is_empty()
    }

    /// Notes an event for the groups that want it; their streams are told with [`Interests::tell`]. Looks at the
    /// filters of the event's instance and node and at those that name neither, not at all.
    pub(super) fn sort(&self, sequence: u64, about: &About) {
        let mut registered = self.0.lock();
        let Registered {
            groups,
            by_instance,
            by_node,
            by_topic,
            ..
        } = &mut *registered;
        let of_instance = about.instance.as_ref().and_then(|it| by_instance.get(it));
        let of_node = about.node.as_ref().and_then(|it| by_node.get(it));
        let filters = by_topic
            .iter()
            .chain(of_instance.into_iter().flatten())
            .chain(of_node.into_iter().flatten());
        for filter in filters.filter(|filter| filter.takes(about)) {
            if let Some(group) = groups.get_mut(filter) {
                let first = group.found.map_or(sequence, |(first, _)| first);
                group.found = Some((first, sequence));
            }
        }
    }

    /// Notes that these events were not looked at, because the ring has dropped some: each may be for any stream.
    /// Streams find out by reading the ring, and send a `resync` where it has less than they need.
    pub(super) fn sort_any(&self, (first, last): Span) {
        for group in self.0.lock().groups.values_mut() {
            let first = group.found.map_or(first, |(earlier, _)| earlier);
            group.found = Some((first, last));
        }
    }

    /// Tells each group's streams what was found for them since the last time, and wakes them.
    pub(super) fn tell(&self) {
        for group in self.0.lock().groups.values_mut() {
            if let Some(found) = group.found.take() {
                group.slots.values().for_each(|slot| slot.add(found));
            }
        }
    }
}

impl Registered {
    /// The list that a filter belongs in; made where it is not there.
    fn index(&mut self, filter: &Filter) -> &mut Vec<Filter> {
        match (&filter.instance, &filter.node) {
            (Some(instance), _) => self.by_instance.entry(instance.clone()).or_default(),
            (None, Some(node)) => self.by_node.entry(node.clone()).or_default(),
            (None, None) => &mut self.by_topic,
        }
    }

    /// Takes a stream out; with the last of its group the group, its filter, and the entry of the index if that becomes
    /// empty.
    fn forget(&mut self, filter: &Filter, id: u64) {
        if let Some(group) = self.groups.get_mut(filter) {
            group.slots.remove(&id);
            if !group.slots.is_empty() {
                return;
            }
        }
        self.groups.remove(filter);
        let filters = self.index(filter);
        filters.retain(|it| it != filter);
        if filters.is_empty() {
            match (&filter.instance, &filter.node) {
                (Some(instance), _) => drop(self.by_instance.remove(instance)),
                (None, Some(node)) => drop(self.by_node.remove(node)),
                (None, None) => {}
            }
        }
    }
}

impl Slot {
    /// Widens the span by this one, which is behind it, and wakes the stream.
    fn add(&self, (first, last): Span) {
        let mut span = self.span.lock();
        let first = span.map_or(first, |(earlier, _)| earlier);
        *span = Some((first, last));
        drop(span);
        self.told.notify_one();
    }
}

impl Interest {
    /// Where events for this stream are that it has not looked at; `None` if there are none. Those in between may be
    /// others'.
    pub(super) fn take(&self) -> Option<Span> {
        self.slot.span.lock().take()
    }

    /// Waits until there are any. The future does not borrow the stream, which keeps it between polls.
    pub(super) fn told(&self) -> impl Future<Output = ()> + Send + use<> {
        let slot = Arc::clone(&self.slot);
        async move { slot.told.notified().await }
    }

    /// Which events the stream has.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.interests.0.lock().forget(&self.filter, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(topic: Topic, instance: &str, node: &str) -> About {
        About {
            topic,
            instance: Some(instance.to_owned()),
            node: Some(node.to_owned()),
        }
    }

    fn filter(topics: &[&str], instance: Option<&str>, node: Option<&str>) -> Filter {
        Filter {
            topics: topics.iter().map(|&topic| topic.to_owned()).collect(),
            instance: instance.map(str::to_owned),
            node: node.map(str::to_owned),
        }
    }

    #[test]
    fn a_stream_is_told_of_its_own_events_alone() {
        let interests = Arc::<Interests>::default();
        let all = interests.register(&filter(&[], None, None));
        let failures = interests.register(&filter(&["failures"], None, None));
        let a = interests.register(&filter(&[], Some("a"), None));
        let node = interests.register(&filter(&["placements"], None, Some("n")));
        interests.sort(1, &about(Topic::Placements, "a", "m"));
        interests.sort(2, &about(Topic::Placements, "b", "n"));
        assert_eq!(all.take(), None, "not before it is told");
        interests.tell();
        interests.sort(3, &about(Topic::Instances, "a", "n"));
        interests.tell();
        assert_eq!(all.take(), Some((1, 3)));
        assert_eq!(failures.take(), None);
        assert_eq!(a.take(), Some((1, 3)));
        assert_eq!(node.take(), Some((2, 2)));
        assert_eq!(node.take(), None);
        interests.sort_any((4, 9));
        interests.tell();
        assert_eq!(failures.take(), Some((4, 9)));
    }

    #[test]
    fn nothing_is_left_of_streams_that_have_ended() {
        let interests = Arc::<Interests>::default();
        let filters = [
            filter(&[], None, None),
            filter(&["nodes"], Some("a"), Some("n")),
            filter(&["nodes"], None, Some("n")),
        ];
        let streams: Vec<Interest> = filters
            .iter()
            .chain(&filters)
            .map(|filter| interests.register(filter))
            .collect();
        assert_eq!(interests.0.lock().groups.len(), 3);
        drop(streams);
        let left = interests.0.lock();
        assert!(left.groups.is_empty() && left.by_instance.is_empty());
        assert!(left.by_node.is_empty() && left.by_topic.is_empty());
    }
}
