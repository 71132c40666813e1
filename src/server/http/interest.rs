//! Which streams want which events. A stream waits until there is an event of its own, rather than look at each: thousands
//! that follow what does not happen cost nothing while much else does.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::payload::Topic;
use tokio::sync::Notify;

/// Which events a stream has: those of all that it names.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Filter {
    /// These topics; all if there are none.
    pub(super) topics: Vec<String>,
    /// About this instance.
    pub(super) instance: Option<String>,
    /// About this node.
    pub(super) node: Option<String>,
}

/// What an event is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct About {
    pub(super) topic: Topic,
    pub(super) instance: Option<String>,
    pub(super) node: Option<String>,
}

impl Filter {
    /// Whether a stream has this event.
    pub(super) fn takes(&self, about: &About) -> bool {
        let has =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let is_topic = |topic: &String| topic == about.topic.as_str();
        (self.topics.is_empty() || self.topics.iter().any(is_topic))
            && has(&self.instance, &about.instance)
            && has(&self.node, &about.node)
    }
}

/// The streams that wait, by what they want.
#[derive(Debug, Default)]
pub(super) struct Interests(Mutex<Registered>);

#[derive(Debug, Default)]
struct Registered {
    last_id: u64,
    groups: BTreeMap<Filter, Group>,
    /// Filters that name an instance, by it; those that name none and a node, by that; all others.
    by_instance: BTreeMap<String, Vec<Filter>>,
    by_node: BTreeMap<String, Vec<Filter>>,
    by_topic: Vec<Filter>,
}

/// The streams that want the same.
#[derive(Debug, Default)]
struct Group {
    slots: BTreeMap<u64, Arc<Slot>>,
    /// The first and the last event for them that they have not been told of.
    found: Option<Span>,
}

/// Numbers of a first and a last event.
pub(super) type Span = (u64, u64);

/// What one stream has been told of and has not looked at.
#[derive(Debug, Default)]
struct Slot {
    span: Mutex<Option<Span>>,
    told: Notify,
}

/// One stream's place among those that wait; gives it up when dropped.
#[derive(Debug)]
pub(super) struct Interest {
    id: u64,
    filter: Filter,
    slot: Arc<Slot>,
    interests: Arc<Interests>,
}

impl Interests {
    /// Registers a stream: it is told of events that are sorted from now on.
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

    /// Whether no stream is open.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().groups.is_empty()
    }

    /// Notes an event for those who want it. They are told with [`Interests::tell`].
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

    /// Notes that these events were not looked at: each may be for any stream.
    pub(super) fn sort_any(&self, (first, last): Span) {
        for group in self.0.lock().groups.values_mut() {
            let first = group.found.map_or(first, |(earlier, _)| earlier);
            group.found = Some((first, last));
        }
    }

    /// Wakes those for whom there is something.
    pub(super) fn tell(&self) {
        for group in self.0.lock().groups.values_mut() {
            if let Some(found) = group.found.take() {
                group.slots.values().for_each(|slot| slot.add(found));
            }
        }
    }
}

impl Registered {
    fn index(&mut self, filter: &Filter) -> &mut Vec<Filter> {
        match (&filter.instance, &filter.node) {
            (Some(instance), _) => self.by_instance.entry(instance.clone()).or_default(),
            (None, Some(node)) => self.by_node.entry(node.clone()).or_default(),
            (None, None) => &mut self.by_topic,
        }
    }

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
    fn add(&self, (first, last): Span) {
        let mut span = self.span.lock();
        let first = span.map_or(first, |(earlier, _)| earlier);
        *span = Some((first, last));
        drop(span);
        self.told.notify_one();
    }
}

impl Interest {
    /// Where events for this stream are that it has not looked at: the first, and the last; others are between.
    pub(super) fn take(&self) -> Option<Span> {
        self.slot.span.lock().take()
    }

    /// Waits until there are any.
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
