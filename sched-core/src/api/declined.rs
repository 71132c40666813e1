//! Why a START or a command comes to nothing, beside that no node fits: as data. The sentences are the server's.

use sched_model::{CommandFailureReason, PhaseName, Uuid};

use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::no_fit::Countable;

/// Why a START was not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It would have to wait for nodes that are still coming back, and too many wait for them already.
    Crowded,
    /// It would have to be kept, and what is kept is as much as may be.
    TooMany,
    /// A DELETE came before it was written to any node.
    Cancelled,
    /// The scheduler is shutting down.
    Leaving,
    /// Its node was lost, or denies having it.
    Lost,
    /// What it says must be understood is not: the place in the list, and the key.
    NotUnderstood(usize, Box<str>),
    /// An expression names a fact that there is not.
    NoSuchFact {
        /// The key of the list.
        key: &'static str,
        /// The place in it.
        at: usize,
        /// What the expression names.
        name: Box<str>,
        /// The facts that there are.
        known: Box<str>,
    },
    /// A dry run of an original peer, which could not be answered.
    DryRunOfOriginal,
    /// A dry run that is one of a batch.
    DryRunOfBatch,
    /// One of a batch that comes after others.
    AfterInBatch,
    /// Earlier STARTs of its batch state another size.
    BatchCount {
        /// The batch.
        batch: Box<str>,
        /// The size that the earlier STARTs state.
        earlier: u32,
        /// The size that this one states.
        count: u32,
    },
    /// All STARTs of its batch have come.
    BatchComplete {
        /// The batch.
        batch: Box<str>,
        /// So many they are.
        count: u32,
    },
    /// Too many batches wait for their last START.
    TooManyBatches {
        /// Whether those of its operator alone are too many.
        of_operator: bool,
        /// So many may wait.
        batches: usize,
        /// With so many bytes.
        bytes: usize,
    },
    /// Its instance waits in another batch.
    OtherBatch(Box<str>),
    /// Its instance waits in this batch.
    WaitsInBatch(Box<str>),
    /// Another START of its batch was deleted.
    BatchLost {
        /// The batch.
        batch: Box<str>,
        /// The instance that was deleted.
        instance: InstanceId,
    },
    /// The rest of its batch did not come.
    BatchLate {
        /// The batch.
        batch: Box<str>,
        /// So many came.
        came: usize,
        /// So many it is of.
        count: u32,
        /// After so many seconds.
        seconds: u64,
    },
    /// Another living instance of its tenant has the name that it asks for.
    NameTaken {
        /// The name.
        name: Box<str>,
        /// The other instance.
        other: InstanceId,
    },
    /// Its instance waits for room.
    Waits,
    /// Its instance is lost, and its node expected back.
    ExpectedBack,
    /// Its instance is lost and deleted, and may run until the lease of its node is over.
    DeletedUnderLease,
    /// Its instance is in this state.
    Is(PhaseName),
    /// Its instance is lost, and this node of it has not said yet whether it has it.
    NotListedYet(Uuid),
    /// Its instance was lost after it had come.
    LostSince,
    /// Its instance is there, and was made by another START.
    OtherStart,
    /// Its instance is there, and has less than it asks for.
    AsksForMore,
    /// Only so many instances were tried.
    OnlyTried(u32),
    /// Another array of this UUID is there.
    OtherArray,
    /// There is no array of this UUID.
    NoSuchArray,
    /// Each element of an array is placed alone: it cannot be this.
    NotInArray(&'static str),
    /// The elements of an array are to come after the array itself.
    ArrayAfterItself,
    /// Another array of its tenant that has not ended has the name that it asks for.
    ArrayNameTaken {
        /// The name.
        name: Box<str>,
        /// The other array.
        other: Uuid,
    },
    /// As many arrays, or as many bytes of them, are kept as may be.
    TooManyArrays {
        /// Whether those of operators are too many.
        of_operators: bool,
        /// So many may be.
        arrays: usize,
        /// With so many bytes.
        bytes: usize,
    },
}

/// Why a command about an instance is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// No node is known to have it.
    NoNode,
    /// Its node has not said yet that it has it.
    NotListedYet,
    /// The same of this node.
    NotListedYetBy(Uuid),
    /// Its node is not connected.
    NodeNotConnected(Uuid),
    /// It is in this state.
    Is(PhaseName),
    /// It is in this state, on no node.
    OnNoNode(PhaseName),
    /// It is in this state, and can be moved once it runs.
    NotMovable(PhaseName),
    /// It is in this state, and can be changed while it runs.
    NotChangeable(PhaseName),
    /// It waits for room, and the command does not say where.
    WaitsAnywhere,
    /// How to start it again is not known.
    NoStart,
    /// The same of an instance on a node that is to be drained.
    NoStartKept,
    /// Its lifecycle does not have that: the core's own fault.
    Illegal,
    /// No node of this name is connected to move it to.
    NoTarget(Box<str>),
    /// It is on this node already.
    AlreadyThere(Uuid),
    /// Its START asks for this node alone.
    OtherPin(Box<str>),
    /// The command does not say what is to change.
    NothingToChange,
    /// The launcher of its node cannot suspend.
    CannotSuspend(Uuid),
    /// The launcher of its node cannot change what it has.
    CannotChange(Uuid),
    /// Its node is short of these: how much more is needed, and how much is free.
    ShortOf(Uuid, Box<[(Countable, i64, i64)]>),
    /// It would ask for so many custom resources.
    TooManyResources {
        /// So many.
        asked: usize,
        /// So many it may ask for.
        max: usize,
    },
    /// Its node has too few vcpus free for it.
    TooFewVcpus {
        /// So many it needs.
        asked: i64,
        /// Its node.
        node: Uuid,
        /// So many are free.
        free: i64,
    },
    /// On its node there are as many other members of its group as there may be.
    NoPlace {
        /// Its group.
        group: Box<str>,
        /// Its node.
        node: Uuid,
    },
    /// No other node fits; which is not looked into.
    NoOtherNode,
}

impl Refusal {
    /// Bytes of the names in it.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::NotUnderstood(_, text)
            | Self::OtherBatch(text)
            | Self::WaitsInBatch(text)
            | Self::BatchCount { batch: text, .. }
            | Self::BatchComplete { batch: text, .. }
            | Self::BatchLost { batch: text, .. }
            | Self::BatchLate { batch: text, .. }
            | Self::NameTaken { name: text, .. }
            | Self::ArrayNameTaken { name: text, .. } => text.len(),
            Self::NoSuchFact { name, known, .. } => name.len() + known.len(),
            _ => 0,
        }
    }
}

impl Objection {
    /// Bytes of the names in it.
    pub(crate) fn text_len(&self) -> usize {
        let name_len = |of: &Countable| match of {
            Countable::Every(_) => 0,
            Countable::Custom(name) => name.len(),
        };
        match self {
            Self::NoTarget(text) | Self::OtherPin(text) | Self::NoPlace { group: text, .. } => {
                text.len()
            }
            Self::ShortOf(_, short) => short
                .iter()
                .map(|(of, ..)| size_of::<(Countable, i64, i64)>() + name_len(of))
                .sum(),
            _ => 0,
        }
    }
}

/// Why an instance is not moved, or not changed: the CommandFailure that its asker is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declined {
    /// The reason on the wire.
    pub(crate) reason: CommandFailureReason,
    /// For people.
    pub(crate) why: Cause,
    /// Whether waiting alone does not help: a drain does not try such an instance again by itself.
    pub(crate) is_lasting: bool,
}

impl Declined {
    /// A reason that may pass.
    pub(crate) fn new(reason: CommandFailureReason, why: impl Into<Cause>) -> Self {
        Self {
            reason,
            why: why.into(),
            is_lasting: false,
        }
    }

    /// A reason that stays until something is done about it.
    pub(crate) fn lasting(reason: CommandFailureReason, why: impl Into<Cause>) -> Self {
        Self {
            is_lasting: true,
            ..Self::new(reason, why)
        }
    }
}
