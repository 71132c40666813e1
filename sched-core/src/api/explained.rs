//! What is told about an outcome without its sentences, and beside it what those are about: the server writes them in
//! before anything is sent.

use std::ops::{Deref, DerefMut};

use sched_model::{CommandFailure, StartFailure};

use crate::api::cause::Cause;
use crate::api::condition::Condition;
use crate::api::ids::InstanceId;

/// What is told to peers, and why it is so. The payload's texts for people are empty until the server has worded the cause
/// in them; where there is no cause they are as others wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explained<T, C = Cause> {
    /// The payload, without its texts.
    pub payload: T,
    /// Why it is so.
    pub cause: C,
}

impl<T, C> Explained<T, C> {
    /// What is told, and why.
    pub fn new(payload: T, cause: C) -> Self {
        Self { payload, cause }
    }
}

impl<T, C: Default> From<T> for Explained<T, C> {
    /// What others have worded.
    fn from(payload: T) -> Self {
        Self::new(payload, C::default())
    }
}

impl<T, C> Deref for Explained<T, C> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.payload
    }
}

impl<T, C> DerefMut for Explained<T, C> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.payload
    }
}

impl Explained<StartFailure> {
    /// The same before it was worded.
    pub(crate) fn unworded(&self) -> Self {
        let mut plain = self.clone();
        if plain.cause != Cause::Plain {
            plain.payload.detail = None;
        }
        plain
    }
}

impl Explained<CommandFailure> {
    /// The same before it was worded.
    pub(crate) fn unworded(&self) -> Self {
        let mut plain = self.clone();
        if plain.cause != Cause::Plain {
            plain.payload.detail = String::new();
        }
        plain
    }
}

/// What the sentences in a page of rows are about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowCauses {
    /// Why each instance of the page waits, or ended; one for each row.
    pub instances: Vec<Cause>,
    /// Why each thing in a history came about; one for each row.
    pub history: Vec<Cause>,
    /// How the drains of nodes stand, with the place of each node's row.
    pub drains: Vec<(usize, DrainSummary)>,
    /// What is not well, where the status is asked for.
    pub conditions: Vec<Condition>,
    /// Why there are no rows, where the query is at fault.
    pub problem: Option<QueryProblem>,
}

/// How a drain stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainSummary {
    /// So many instances have left the node for another, or wait for one.
    pub moved: usize,
    /// So many have left it and went nowhere else: they ended, or were deleted.
    pub ended: usize,
    /// Of so many.
    pub total: usize,
    /// So many do not fit elsewhere.
    pub unmovable: usize,
    /// What the drain waits for.
    pub waits: DrainWaits,
}

/// What a drain that goes on waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainWaits {
    /// For its node to say what it has.
    pub is_node_silent: bool,
    /// For these to leave the node.
    pub leaving: NamedInstances,
    /// For these to run on another, before more are moved.
    pub starting: NamedInstances,
    /// For room elsewhere for these.
    pub without_room: NamedInstances,
}

/// Instances of which a sentence names the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedInstances {
    /// How many there are.
    pub count: usize,
    /// The first of them; `None` if there are none.
    pub first: Option<NamedInstance>,
}

/// An instance and what it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedInstance {
    /// The instance.
    pub instance: InstanceId,
    /// Empty where it has no name.
    pub name: Box<str>,
}

/// What is wrong with a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryProblem {
    /// No instance of this name is known, or was recently.
    UnknownInstance(InstanceId),
    /// No earlier page gave this as its next.
    UnknownCursor(Box<str>),
    /// There is no such kind of query.
    UnknownKind(Box<str>),
}

/// What the sentences about a drain are about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DrainCauses {
    /// Why it has ended; `None` where its state says it all.
    pub end: Option<DrainEnd>,
    /// So many instances were not tried, because that takes too long.
    pub untried: usize,
    /// Why each of the unmovable instances that are listed does not fit.
    pub unmovable: Vec<Cause>,
    /// What it waits for, while it goes on.
    pub waits: DrainWaits,
}

/// Why a drain has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainEnd {
    /// A command said so.
    Asked,
    /// Its node is to take work again.
    Uncordoned,
    /// What is left cannot be moved.
    NothingMovable,
    /// Its time is over.
    TimeOver,
    /// Its node is lost.
    NodeLost,
}
