//! All that wait for one pool, in two structures over the same waiters: one order of all, and classes of waiters with
//! the same shape, purpose and place.
//!
//! ```text
//!  Line
//!    order                      every waiter, by rank                       pages, positions, "who comes before"
//!    bunches                    classes by the nodes that they concern
//!      by_node, by_uuid, by_hostname     pinned: looked at for that node or host alone
//!      open                              for any node
//!        class (shape A, Start)          its waiters by rank, with the least that any of them asks for
//!        class (shape B, Resume)         ...
//! ```
//!
//! A node with room looks at its own bunches and at `open`, and at no others, however many there are. The walk is in
//! `search`.

use std::sync::Arc;

use indexmap::IndexMap;
use sched_model::Uuid;

use super::bunch::Bunch;
use super::ordered::Ordered;
use super::rank::Key;
use super::shape::Pin;
use super::summary::Promise;
use super::{AllowedNodes, ClassId, Purpose, Room, Shape, Waiter};
use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::slots::Slots;
use crate::tree::Summary;

/// Waiters of the same shape and purpose that may go to the same nodes. Exists as long as it has a waiter.
#[derive(Debug)]
pub(super) struct Class {
    /// Different from that of every other class there ever was, so that answers about a class can be remembered by it.
    pub(super) id: ClassId,
    pub(super) purpose: Purpose,
    pub(super) shape: Arc<Shape>,
    pub(super) waiters: Ordered,
    /// The one node its waiters wait for, if that is not said by their STARTs: they are to be resumed there, say.
    only: Option<NodeKey>,
    /// Its place in its bunch; does not change.
    seat: u32,
}

impl Class {
    /// What its bunch has to know about it: the least its waiters ask for, and the rank of the first.
    fn promise(&self) -> Promise {
        Promise {
            least: self.waiters.least(),
            head: self.waiters.first().unwrap_or(Key::LAST),
        }
    }
}

/// By what the class of a waiter is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ClassName {
    only: Option<NodeKey>,
    purpose: Purpose,
    shape: Arc<Shape>,
}

/// Bunches that concern a node: by key, by UUID, by host name, and the open one. A search goes through them in this
/// order.
pub(super) const BUNCHES: u8 = 4;

/// All that wait for one pool.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// All waiters, by rank.
    pub(super) order: Ordered,
    by_name: IndexMap<ClassName, u32>,
    classes: Slots<Class>,
    bunches: Bunches,
    /// Classes there ever were; the next one's number.
    numbered: u64,
}

/// Bunches of classes by the nodes that they concern. A bunch that is keyed exists as long as it has a class.
#[derive(Debug, Default)]
struct Bunches {
    /// Classes for any node.
    open: Bunch,
    by_node: IndexMap<NodeKey, Bunch>,
    by_uuid: IndexMap<Uuid, Bunch>,
    by_hostname: IndexMap<Box<str>, Bunch>,
    /// Classes that name a node by a name that no node can have. They only wait for their deadlines.
    nowhere: Bunch,
}

impl Line {
    /// Puts a waiter in and returns the number of its class. The waiter shares the class's shape from then on, so that
    /// shapes are not kept once for each waiter.
    pub(super) fn insert(&mut self, key: Key, waiter: &mut Waiter) -> u32 {
        self.order.insert(key, waiter.asked);
        let number = self.class_for(waiter);
        let class = self
            .classes
            .at_mut(number)
            .expect("a class that is found by name is there");
        class.waiters.insert(key, waiter.asked);
        waiter.shape = Arc::clone(&class.shape);
        self.bunches.tell(class);
        number
    }

    /// Takes a waiter out of the order and out of its class, which is dropped with its last waiter.
    pub(super) fn remove(&mut self, key: Key, number: u32) {
        self.order.remove(key);
        let Some(class) = self.classes.at_mut(number) else {
            return;
        };
        class.waiters.remove(key);
        if class.waiters.len() > 0 {
            return self.bunches.tell(class);
        }
        self.bunches.leave(class);
        let name = ClassName {
            only: class.only,
            purpose: class.purpose,
            shape: Arc::clone(&class.shape),
        };
        self.by_name.swap_remove(&name);
        self.classes.remove(number);
    }

    /// One of the bunches that concern a node, by its number below [`BUNCHES`]. The open one comes last: it is mostly
    /// the largest, and a waiter found before rules out much of it.
    #[inline]
    pub(super) fn bunch(&self, number: u8, room: &Room<'_>) -> Option<&Bunch> {
        let bunches = &self.bunches;
        match number {
            0 => bunches.by_node.get(&room.node),
            1 => bunches.by_uuid.get(&room.uuid),
            2 => bunches.by_hostname.get(room.hostname),
            _ => Some(&bunches.open),
        }
    }

    /// The class with a number.
    #[inline]
    pub(super) fn class(&self, number: u32) -> Option<&Class> {
        self.classes.at(number)
    }

    /// All waiters for this node and no other, class by class.
    pub(super) fn waiting_for(&self, node: NodeKey) -> impl Iterator<Item = Key> {
        let bunches = self.bunches.by_node.get(&node).into_iter();
        let classes = bunches.flat_map(Bunch::classes);
        classes
            .filter_map(|class| self.class(class))
            .flat_map(|class| class.waiters.iter_from(Key::FIRST))
    }

    /// The class of a waiter, made where it does not exist yet.
    fn class_for(&mut self, waiter: &Waiter) -> u32 {
        let only = match waiter.place {
            AllowedNodes::Only(node) => Some(node),
            AllowedNodes::Anywhere => None,
        };
        let name = ClassName {
            only,
            purpose: waiter.purpose,
            shape: Arc::clone(&waiter.shape),
        };
        if let Some(&number) = self.by_name.get(&name) {
            return number;
        }
        self.numbered += 1;
        let number = self.classes.insert(Class {
            // Even in one pool, odd in the other.
            id: ClassId(2 * self.numbered + waiter.pool as u64),
            purpose: waiter.purpose,
            shape: Arc::clone(&waiter.shape),
            waiters: Ordered::default(),
            only,
            seat: 0,
        });
        let bunch = self.bunches.bunch_for(only, &waiter.shape);
        let seat = bunch.seat(number);
        if let Some(class) = self.classes.at_mut(number) {
            class.seat = seat;
        }
        self.by_name.insert(name, number);
        number
    }

    /// Recomputes what is kept of the classes and compares; `asked` says who waits and what for.
    ///
    /// # Errors
    /// Names the first thing that does not hold.
    pub(super) fn check(
        &self,
        asked: impl Fn(Key, u32) -> Option<Resources>,
    ) -> Result<(), &'static str> {
        let mut keys: Vec<Key> = Vec::new();
        for (number, class) in self.classes.iter_from(0) {
            let waiters = &class.waiters;
            if !waiters.is_consistent() || waiters.len() == 0 {
                return Err("a class is not in order");
            }
            let of_class = waiters.iter_from(Key::FIRST);
            keys.extend(of_class.filter(|&key| asked(key, number).is_some()));
            let seated = self
                .bunches
                .find(class)
                .and_then(|bunch| bunch.class(class.seat));
            if seated != Some(number) {
                return Err("a class is not in its seat");
            }
        }
        keys.sort_unstable();
        if !self.order.is_consistent() || !self.order.iter_from(Key::FIRST).eq(keys) {
            return Err("the order and the classes do not have the same waiters");
        }
        let promise = |number| self.class(number).map_or(Promise::NONE, Class::promise);
        if self.by_name.len() != self.classes.len()
            || !self
                .bunches
                .iter()
                .all(|bunch| bunch.is_consistent(promise))
        {
            return Err("a bunch does not promise what its classes do");
        }
        Ok(())
    }
}

impl Bunches {
    /// The bunch for a class, made where it is missing.
    fn bunch_for(&mut self, only: Option<NodeKey>, shape: &Shape) -> &mut Bunch {
        if let Some(node) = only {
            return self.by_node.entry(node).or_default();
        }
        match shape.pin() {
            Pin::None => &mut self.open,
            Pin::Node(uuid) => self.by_uuid.entry(uuid).or_default(),
            Pin::Host(hostname) => self.by_hostname.entry(hostname).or_default(),
            Pin::Nowhere => &mut self.nowhere,
        }
    }

    /// Tells a class's bunch what it promises now.
    fn tell(&mut self, class: &Class) {
        self.bunch_for(class.only, &class.shape)
            .promise(class.seat, class.promise());
    }

    /// Takes a class out of its bunch, which is dropped with its last class.
    fn leave(&mut self, class: &Class) {
        if !self.bunch_for(class.only, &class.shape).leave(class.seat) {
            return;
        }
        if let Some(node) = class.only {
            self.by_node.swap_remove(&node);
            return;
        }
        match class.shape.pin() {
            Pin::None | Pin::Nowhere => {}
            Pin::Node(uuid) => {
                self.by_uuid.swap_remove(&uuid);
            }
            Pin::Host(hostname) => {
                self.by_hostname.swap_remove(&hostname);
            }
        }
    }

    /// The bunch a class is in.
    fn find(&self, class: &Class) -> Option<&Bunch> {
        if let Some(node) = class.only {
            return self.by_node.get(&node);
        }
        match class.shape.pin() {
            Pin::None => Some(&self.open),
            Pin::Node(uuid) => self.by_uuid.get(&uuid),
            Pin::Host(hostname) => self.by_hostname.get(&hostname),
            Pin::Nowhere => Some(&self.nowhere),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Bunch> {
        let by_name = self.by_uuid.values().chain(self.by_hostname.values());
        [&self.open, &self.nowhere]
            .into_iter()
            .chain(self.by_node.values())
            .chain(by_name)
    }
}
