//! What lists have shown on earlier pages, so that no instance is on two: one that is shown as `lost` or `waiting`, and
//! is on a node by the time that a later page shows that node's, was there all the while and is one. So is a node that
//! is shown as lost or expected, and is back by the time of a later page, or that came as a new one meanwhile.
//!
//! The core's pages know nothing of each other, and its cursor is a place. So a cursor of this interface names the list
//! that it goes on with, and its page:
//!
//! ```text
//! none:2f6e…0a@17.3      behind that instance, on page 3 of list 17
//! ```
//!
//! A page that is asked for again, as after a connection that broke, leaves out what earlier pages had, and nothing that
//! only it or later ones had. Lists that are given up are forgotten, the oldest first ([`MAX_SHOWN`]); a cursor of one
//! that is forgotten still leads on, as one that was made otherwise.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use proto_frames::Uuid;
use serde_json::{Map, Value};

use super::limits::MAX_SHOWN;
use sched_core::InstanceId;

/// What the rows of a list are, of which each is to be on one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// Instances: one that two nodes list is shown for both.
    Instances,
    /// Nodes.
    Nodes,
}

/// The lists whose next page may be asked for.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// By number; those of instances and those of nodes. Numbers are drawn at random: a client that guessed that of
    /// another could have rows left out of the other's pages.
    by_number: HashMap<u64, Shown>,
    /// Their numbers, the oldest first.
    oldest: VecDeque<u64>,
    /// Lists, and what is remembered of all of them.
    count: usize,
}

/// What the pages of one list have shown that may come once more: of instances what was on no node, and of each page
/// what was on the node that it ended with; of nodes all. By the instance or the node.
#[derive(Debug, Default)]
struct Shown(HashMap<InstanceId, Place>);

/// Where an instance or a node was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    page: u32,
    /// Its node; `None` where it was on none, and of a node.
    node: Option<Box<str>>,
}

/// The page of a list, beginning with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Page {
    /// `None` for the first page.
    list: Option<u64>,
    number: u32,
}

impl Page {
    /// The page that begins at a cursor, and the core's cursor in it.
    pub(super) fn at(after: Option<&str>) -> (Self, Option<&str>) {
        let Some(after) = after else {
            return (Self::default(), None);
        };
        let parts = after.rsplit_once('@').and_then(|(core, page)| {
            let (list, number) = page.split_once('.')?;
            let page = Self {
                list: Some(list.parse().ok()?),
                number: number.parse().ok()?,
            };
            Some((page, core))
        });
        match parts {
            Some((page, core)) => (page, Some(core)),
            None => (Self::default(), Some(after)),
        }
    }
}

impl Listings {
    /// Leaves out of a page what earlier ones of its list have shown elsewhere, and returns the cursor of the next page
    /// for that of the core.
    pub(super) fn pass(
        &self,
        listed: Listed,
        page: Page,
        rows: &mut Vec<Map<String, Value>>,
        next: Option<String>,
    ) -> Option<String> {
        let mut all = self.0.lock();
        let shown = page.list.and_then(|list| all.by_number.get(&list));
        if let Some(shown) = shown {
            rows.retain(|row| !shown.has(listed, row, page.number));
        }
        let next = next?;
        // Only a list that was begun here is gone on with: a cursor can be made up.
        let list = match page.list.filter(|list| all.by_number.contains_key(list)) {
            Some(list) => list,
            None => all.begin(),
        };
        let shown = all.by_number.entry(list).or_default();
        let before = shown.0.len();
        shown.add(listed, rows, page.number);
        let added = shown.0.len() - before;
        all.count += added;
        all.forget_oldest();
        Some(format!("{next}@{list}.{}", page.number.saturating_add(1)))
    }
}

impl Listed {
    /// The field by which a row is known.
    fn key(self) -> &'static str {
        match self {
            Self::Instances => "instance_uuid",
            Self::Nodes => "node_uuid",
        }
    }
}

impl All {
    /// Begins a list; its number.
    fn begin(&mut self) -> u64 {
        let (number, _) = Uuid::new_v4().as_u64_pair();
        if self.by_number.insert(number, Shown::default()).is_none() {
            self.oldest.push_back(number);
            self.count += 1;
        }
        number
    }

    fn forget_oldest(&mut self) {
        while self.count > MAX_SHOWN {
            let Some(oldest) = self.oldest.pop_front() else {
                return;
            };
            let shown = self.by_number.remove(&oldest);
            self.count -= shown.map_or(0, |shown| 1 + shown.0.len());
        }
    }
}

impl Shown {
    /// Whether a page before this one has shown an instance elsewhere, or in the same place. One that two nodes list is
    /// shown for both: people have to see that.
    fn has(&self, listed: Listed, row: &Map<String, Value>, page: u32) -> bool {
        let place = self.0.get(&InstanceId::new(text(row, listed.key())));
        place.is_some_and(|place| {
            let is_same = place.node.as_deref() == Some(text(row, "node_uuid"));
            place.page < page && (place.node.is_none() || is_same)
        })
    }

    /// Adds what a page has. What an earlier page had stays that page's.
    fn add(&mut self, listed: Listed, rows: &[Map<String, Value>], page: u32) {
        let last = rows.last().map(|row| text(row, "node_uuid"));
        for row in rows {
            let node = text(row, "node_uuid");
            let on_none = listed == Listed::Nodes || is_on_none(row);
            if on_none || last == Some(node) {
                let node = (!on_none).then(|| node.into());
                let place = Place { page, node };
                let instance = InstanceId::new(text(row, listed.key()));
                self.0.entry(instance).or_insert(place);
            }
        }
    }
}

/// Whether the row is that of an instance on no node.
pub(super) fn is_on_none(row: &Map<String, Value>) -> bool {
    ["waiting", "lost"].contains(&text(row, "state"))
}

fn text<'a>(row: &'a Map<String, Value>, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::{InstanceView, NodeView, PlacementState};

    use super::super::json::to_json;
    use super::*;

    fn row(id: &str, state: PlacementState, node: &str) -> Map<String, Value> {
        to_json(&InstanceView {
            instance_uuid: id.to_owned(),
            node_uuid: node.to_owned(),
            state,
            ..InstanceView::default()
        })
    }

    /// What is left of a page that begins at `after`, and where the next one does.
    fn pass(
        listings: &Listings,
        after: Option<&str>,
        rows: &[(&str, PlacementState, &str)],
        next: Option<&str>,
    ) -> (String, Option<String>) {
        let (page, _) = Page::at(after);
        let rows = rows
            .iter()
            .map(|(id, state, node)| row(id, state.clone(), node));
        let mut rows: Vec<_> = rows.collect();
        let next = listings.pass(Listed::Instances, page, &mut rows, next.map(str::to_owned));
        let ids: Vec<&str> = rows.iter().map(|row| text(row, "instance_uuid")).collect();
        (ids.join(" "), next)
    }

    #[test]
    fn what_was_lost_and_is_back_is_on_the_page_that_showed_it_lost() {
        use PlacementState::{Lost, Running, Waiting};
        let listings = Listings::default();
        let first = [("a", Lost, "n"), ("b", Waiting, "")];
        let (shown, next) = pass(&listings, None, &first, Some("none:b"));
        let list = next
            .as_deref()
            .and_then(|next| next.strip_prefix("none:b@"));
        let list = list
            .and_then(|list| list.strip_suffix(".1"))
            .expect("page 1");
        assert_eq!(shown, "a b");
        assert_eq!(Page::at(next.as_deref()).1, Some("none:b"));
        let second = [("c", Lost, "n"), ("x", Running, "m"), ("a", Running, "n")];
        let (shown, after) = pass(&listings, next.as_deref(), &second, Some("3:1"));
        assert_eq!(
            (shown, after.clone()),
            ("c x".to_owned(), Some(format!("3:1@{list}.2")))
        );
        // The same page once more: it has lost nothing of what only it has shown.
        let again = [
            ("x", Running, "m"),
            ("a", Running, "n"),
            ("c", Running, "n"),
        ];
        let (shown, _) = pass(&listings, next.as_deref(), &again, Some("3:1"));
        assert_eq!(shown, "x c");
        let third = [
            ("x", Running, "m"),
            ("b", Running, "n"),
            ("d", Running, "n"),
        ];
        let (shown, end) = pass(&listings, after.as_deref(), &third, None);
        assert_eq!((&*shown, end), ("d", None));
        // It is another list, from its first page.
        assert_eq!(pass(&listings, None, &third, None).0, "x b d");
    }

    #[test]
    fn what_stands_on_two_nodes_is_shown_for_both() {
        use PlacementState::Running;
        let listings = Listings::default();
        let (_, next) = pass(&listings, None, &[("a", Running, "n")], Some("1:4"));
        let rows = [("a", Running, "n"), ("a", Running, "m")];
        let (page, _) = Page::at(next.as_deref());
        let mut rows: Vec<_> = rows.map(|(id, state, node)| row(id, state, node)).into();
        listings.pass(Listed::Instances, page, &mut rows, None);
        let nodes: Vec<&str> = rows.iter().map(|row| text(row, "node_uuid")).collect();
        assert_eq!(nodes, ["m"]);
    }

    #[test]
    fn a_node_is_on_the_page_that_showed_it_first() {
        let pass = |listings: &Listings, after: Option<&str>, rows: &[(&str, &str)]| {
            let (page, _) = Page::at(after);
            let row = |(id, status): &(&str, &str)| {
                to_json(&NodeView {
                    node_uuid: (*id).to_owned(),
                    status: (*status).to_owned(),
                    ..NodeView::default()
                })
            };
            let mut rows: Vec<_> = rows.iter().map(row).collect();
            let next = listings.pass(Listed::Nodes, page, &mut rows, Some("0".to_owned()));
            let ids: Vec<&str> = rows.iter().map(|row| text(row, "node_uuid")).collect();
            (ids.join(" "), next)
        };
        let listings = Listings::default();
        let first = [("a", "EXPECTED"), ("b", "LOST")];
        let (shown, next) = pass(&listings, None, &first);
        assert_eq!(shown, "a b");
        for _ in 0..2 {
            let rows = [("c", "READY"), ("a", "READY")];
            assert_eq!(pass(&listings, next.as_deref(), &rows).0, "c");
        }
        assert_eq!(pass(&listings, None, &first).0, "a b", "it is another list");
    }

    #[test]
    fn cursors_that_were_made_otherwise_lead_on() {
        let listings = Listings::default();
        for after in [
            "none:a",
            "none:a@b",
            "none:a@1",
            "none:a@1.x",
            "none:a@99.1",
            "@",
            "@1.1",
        ] {
            let (_, core) = Page::at(Some(after));
            assert!(core.is_some_and(|core| after.starts_with(core)), "{after}");
            let rows = [("a", PlacementState::Running, "n")];
            assert_eq!(pass(&listings, Some(after), &rows, None).0, "a", "{after}");
        }
    }

    #[test]
    fn a_cursor_that_was_made_up_changes_no_list_of_another_and_takes_no_memory_for_good() {
        let listings = Listings::default();
        let waits = PlacementState::Waiting;
        let (_, next) = pass(&listings, None, &[("a", waits.clone(), "")], Some("none:a"));
        for made_up in 0..1000 {
            let cursor = format!("none:a@{made_up}.0");
            pass(
                &listings,
                Some(&cursor),
                &[("b", waits.clone(), "")],
                Some("none:b"),
            );
        }
        let rows = [("b", PlacementState::Running, "n")];
        assert_eq!(pass(&listings, next.as_deref(), &rows, None).0, "b");
        for _ in 0..2 * MAX_SHOWN {
            pass(&listings, None, &[], Some("none:z"));
        }
        let all = listings.0.lock();
        assert!(all.count <= MAX_SHOWN && all.by_number.len() <= MAX_SHOWN);
    }

    #[test]
    fn lists_that_are_given_up_are_forgotten() {
        let listings = Listings::default();
        for list in 0..50 {
            let ids: Vec<String> = (0..MAX_SHOWN / 10)
                .map(|it| format!("{list}-{it}"))
                .collect();
            let waits = PlacementState::Waiting;
            let rows: Vec<_> = ids.iter().map(|id| (&**id, waits.clone(), "")).collect();
            pass(&listings, None, &rows, Some("none:z"));
            let all = listings.0.lock();
            assert!(all.count <= MAX_SHOWN);
            let counted: usize = all.by_number.values().map(|it| 1 + it.0.len()).sum();
            assert_eq!(counted, all.count);
        }
    }
}
