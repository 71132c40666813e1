//! Why something became of an instance, or of a command: as data, for its history and those who are told. The sentences
//! are the server's.

use std::sync::Arc;

use sched_model::{AfterEnd, StartFailureReason, Uuid};

use crate::api::declined::{Objection, Refusal};
use crate::api::ids::InstanceId;
use crate::api::no_fit::NoFit;
use crate::api::text::ShortText;

/// Why an instance came to a state, or a command came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cause {
    /// Its state says it all.
    #[default]
    Plain,
    /// It was not the scheduler's doing.
    NotFromHere,
    /// A cut-off node had not resumed it.
    CutOffBeforeResumed,
    /// Its launcher did not suspend or resume it in time.
    NotDoneInTime,
    /// Its preemptor needs its room no longer.
    RoomNotNeeded,
    /// Its node is drained.
    NodeDrained,
    /// Its node guards itself against a shortage of memory.
    NodeShortOfMemory,
    /// It cannot be started again any more.
    StartForgotten,
    /// Its START was kept, and is refused now.
    StartUnreadable,
    /// A node has room.
    RoomFound,
    /// Its node has room for it again.
    RoomAgain,
    /// Its victims have left.
    RoomFreed,
    /// Victims did not leave in time.
    VictimsLate,
    /// It was moved to a node that has no room yet.
    WaitsForOneNode,
    /// A command said so.
    Asked,
    /// A command said so of what was so already.
    StaysAsAsked,
    /// Its launcher is told to ship it.
    ShipsIt,
    /// Its launcher is told to stop it, to start it elsewhere.
    StopsIt,
    /// The target of its move has it.
    Moved,
    /// Its node has it no longer.
    LeftNode,
    /// Its state is on the target of its move.
    Shipped,
    /// Its launcher says so.
    NotStopped,
    /// Its move was cancelled.
    NotLeftInTime,
    /// Its node's connection has ended.
    NodeLost,
    /// Its node had not been told of it.
    NodeLostUntold,
    /// Its node had not been told to stop it.
    NodeLostBeforeStop,
    /// It is stopped now that its node is back.
    DeletedWhileLost,
    /// It is stopped once its node is back.
    DeletedLost,
    /// Its node has returned and lists it.
    NodeBack,
    /// Its node has returned and does not list it.
    NodeBackWithout,
    /// The lease of its lost node is over.
    NodeHasStoppedIt,
    /// A node lists it that was not known to have it.
    Found,
    /// Its launcher has changed it.
    Changed,
    /// Its launcher is told to change it.
    Changing,
    /// An UPDATE said so.
    PriorityChanged,
    /// An UPDATE said so.
    DemandChanged,
    /// An UPDATE is carried out.
    HasItsDemand,
    /// It moves to be changed.
    NoRoomToChange,
    /// Its launcher did not say that it changed it.
    NotChangedInTime,
    /// It moves to be resumed: its node has no vcpus or no place in its group for it.
    NoVcpusHere,
    /// It ended.
    Ended,
    /// It was stopped because its node is evacuated.
    Evacuated,
    /// Its node has told of its end although no one here knew of it.
    KeptByNode,
    /// Its end and its new start were reported together.
    EndedAndBegan,
    /// Its node does not list it any more, and has not said how it ended.
    NotListed,
    /// What its history begins with, if it is not managed.
    KnownSince,
    /// An operator does not wait for its node.
    Forgotten,
    /// It was stopped.
    Stopped,
    /// It was deleted.
    Deleted,
    /// A DELETE ends its move.
    BeingDeleted,
    /// It ended while its START is on its way.
    StartedAgain,
    /// What its launcher was told comes to nothing.
    EndedOnNode,
    /// Its node does not list what it was given.
    NodeWithoutIt,
    /// Its node did late what it was told.
    EndedAfterAll,
    /// Its node lists it no longer.
    LostByNode,
    /// Its launcher did not say that it stopped it.
    NotStoppedInTime,
    /// Its launcher says that it runs.
    NotSuspended,
    /// It could not be resumed for long.
    TriedOnAll,
    /// A new START replaces it.
    Restarted,
    /// Time has passed since nodes refused it.
    RefusalsOver,
    /// The lease of its node is over, as its launcher says.
    CutOff,
    /// It ended by itself with this exit status, or minus the signal, and is placed again for the so manieth time of so
    /// many.
    Retried(i64, u32, u32),
    /// It waits for this instance or array to end, as its START names it, and for so many others.
    ComesAfter(Box<str>, usize),
    /// All that it was to come after has ended.
    OthersEnded,
    /// It was to come after an instance, which has ended in another way.
    OtherwiseEnded(Box<OtherEnd>),
    /// It was to come after an array, which has ended in another way.
    ArrayOtherwiseEnded(Box<OtherArrayEnd>),
    /// It was to come after an instance or an array that is not known, as its START names it.
    OtherUnknown(Box<str>),
    /// Its launcher did what it was told.
    EndedAsTold,
    /// It can be neither shipped nor started again.
    CannotBeShipped,
    /// It ended while it was to move.
    EndedBeforeMove,
    /// Its node is lost, and may run it.
    MayRunOnLostNode,
    /// Its node is lost since then.
    KnownSinceNodeLost,
    /// Its node was given it, and has not listed it yet.
    GivenUnlisted,
    /// Its node lists it since then.
    ListedSince,
    /// It waits for vcpus, and what it was suspended for is gone.
    PreemptorGone,
    /// It has left for a preemptor.
    LeftFor(InstanceId),
    /// It is to leave for a preemptor.
    LeavesFor(InstanceId),
    /// One victim is to leave for it.
    VictimLeaves(InstanceId),
    /// So many victims are to leave for it.
    VictimsLeave(usize),
    /// It waits until so many victims have left.
    VictimsToLeave(usize),
    /// A victim did not leave for it.
    VictimStays(InstanceId),
    /// This node refused it once more as full.
    StillFull(Uuid),
    /// The target of its move is not connected any more.
    TargetGone(Uuid),
    /// The target of its move is lost.
    TargetLost(Uuid),
    /// This node could not start it, and what its launcher says of that; may be empty.
    NotStarted(Uuid, StartFailureReason, ShortText),
    /// Its launcher could not suspend it, and why.
    CannotSuspend(Box<str>),
    /// Its launcher could not resume it, and why.
    CannotResume(Box<str>),
    /// Its launcher could not ship it, and why.
    CannotShip(Box<str>),
    /// Its launcher could not change it, and why.
    CannotChange(Box<str>),
    /// A START was not placed.
    Refused(Box<Refusal>),
    /// A command was not carried out.
    Declined(Box<Objection>),
    /// No node fits.
    NoFit(Arc<NoFit>),
    /// No node fits; why was not counted, because too many different STARTs fail at once.
    NotCounted,
    /// The disk takes no writes, for this reason of the system's; `None` if it has not answered.
    NotRecorded(Option<Box<str>>),
    /// Its instance waits here already, and this.
    WaitsAnd(Box<Cause>),
    /// This, and so many wait already, which is as many as may.
    AndQueueFull(Box<Cause>, usize),
    /// So many of a batch of so many fit, and of the next this.
    OfBatch(usize, usize, Box<Cause>),
    /// So many of so many fit, and of the next this.
    OfSeveral(u32, u32, Box<Cause>),
    /// Something else, in words: what a record of before a restart says, why no node fits, what a launcher says.
    Said(Box<str>),
}

/// How an instance has ended that another was to come after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherEnd {
    /// The instance, as the START of the other names it.
    pub named: Box<str>,
    /// How it was to end.
    pub wanted: AfterEnd,
    /// Its exit status, or minus the signal; `None` = not known.
    pub exit_code: Option<i64>,
    /// Why its START failed, if it never ran.
    pub failed: Option<StartFailureReason>,
    /// Whether it is an element of an array that never began.
    pub never_began: bool,
    /// Whether it ended well; `None` = not known.
    pub is_ok: Option<bool>,
}

/// How an array has ended that an instance was to come after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherArrayEnd {
    /// The array, as the START of the other names it.
    pub named: Box<str>,
    /// How it was to end.
    pub wanted: AfterEnd,
    /// How many elements it has.
    pub count: u32,
    /// How many of them ended with exit status 0.
    pub succeeded: u32,
    /// Of how many of them it is not known how they ended.
    pub unknown: u32,
}

impl Cause {
    /// Whether it is that of an end that a command asked for.
    #[must_use]
    pub fn is_by_command(&self) -> bool {
        matches!(
            self,
            Self::Deleted
                | Self::BeingDeleted
                | Self::DeletedWhileLost
                | Self::DeletedLost
                | Self::Stopped
                | Self::StopsIt
                | Self::EndedAsTold
                | Self::Forgotten
        )
    }

    /// Bytes that it has on the heap, mostly of others' texts.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::CannotSuspend(text)
            | Self::CannotResume(text)
            | Self::CannotShip(text)
            | Self::CannotChange(text)
            | Self::Said(text)
            | Self::NotRecorded(Some(text)) => text.len(),
            Self::NotStarted(_, _, text) => text.len(),
            Self::ComesAfter(text, _) | Self::OtherUnknown(text) => text.len(),
            Self::OtherwiseEnded(end) => size_of::<OtherEnd>() + end.named.len(),
            Self::ArrayOtherwiseEnded(end) => size_of::<OtherArrayEnd>() + end.named.len(),
            Self::Refused(refusal) => size_of::<Refusal>() + refusal.text_len(),
            Self::Declined(objection) => size_of::<Objection>() + objection.text_len(),
            Self::NoFit(no_fit) => no_fit.len(),
            Self::WaitsAnd(cause)
            | Self::AndQueueFull(cause, _)
            | Self::OfBatch(_, _, cause)
            | Self::OfSeveral(_, _, cause) => size_of::<Self>() + cause.text_len(),
            _ => 0,
        }
    }

    /// About how many bytes it has as text.
    pub(crate) fn text_size(&self) -> usize {
        /// The longest sentence of the server's own, and the names in it.
        const SENTENCE: usize = 128;
        match self {
            Self::Plain => 0,
            cause => SENTENCE + cause.text_len(),
        }
    }

    /// The same with others' texts cut where they are too long to be kept.
    pub(crate) fn kept(&self) -> Self {
        let cut = |text: &str| Box::<str>::from(ShortText::new(text));
        match self {
            Self::CannotSuspend(text) => Self::CannotSuspend(cut(text)),
            Self::CannotResume(text) => Self::CannotResume(cut(text)),
            Self::CannotShip(text) => Self::CannotShip(cut(text)),
            Self::CannotChange(text) => Self::CannotChange(cut(text)),
            Self::Said(text) => Self::Said(cut(text)),
            Self::NoFit(no_fit) if no_fit.is_too_long() => Self::NoFit(Arc::new(no_fit.cut())),
            plain => plain.clone(),
        }
    }
}

impl From<Refusal> for Cause {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Objection> for Cause {
    fn from(objection: Objection) -> Self {
        Self::Declined(Box::new(objection))
    }
}

impl From<&str> for Cause {
    fn from(text: &str) -> Self {
        if text.is_empty() {
            Self::Plain
        } else {
            Self::Said(text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, ShortText};

    #[test]
    fn what_is_kept_of_a_long_text_is_as_much_as_of_the_whole() {
        let long = "x".repeat(5000);
        let kept = Cause::CannotSuspend(long.as_str().into()).kept();
        let short = Box::<str>::from(ShortText::new(&long));
        assert_eq!(kept, Cause::CannotSuspend(short));
        assert!(kept.text_len() < 5000);
    }
}
