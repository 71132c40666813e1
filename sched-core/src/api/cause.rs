//! Why something became of an instance: as data, for its history and those who are told.

use std::fmt;

use sched_model::{StartFailureReason, Uuid};

use crate::api::ids::InstanceId;
use crate::api::text::ShortText;

/// Why an instance came to a state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Cause {
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
    /// It cannot be started again.
    StartUnknown,
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
    /// Its move was undone.
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
    /// It moves to be resumed.
    NoVcpusHere,
    /// It ended.
    Ended,
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
    /// Its launcher did what it was told.
    EndedAsTold,
    /// It can be neither shipped nor started again.
    CannotBeShipped,
    /// It ended while it was to move.
    EndedBeforeMove,
    /// It has made way for a preemptor.
    MadeWay(InstanceId),
    /// It is to make way for a preemptor.
    MakesWay(InstanceId),
    /// One victim is to make way for it.
    VictimLeaves(InstanceId),
    /// So many victims are to make way for it.
    VictimsLeave(usize),
    /// A victim did not make way for it.
    VictimStays(InstanceId),
    /// This node refused it once more as full.
    StillFull(Uuid),
    /// The target of its move is not connected any more.
    TargetGone(Uuid),
    /// The target of its move is lost.
    TargetLost(Uuid),
    /// This node could not start it.
    NotStarted(Uuid, StartFailureReason),
    /// Its launcher could not suspend it, and why.
    CannotSuspend(Box<str>),
    /// Its launcher could not resume it, and why.
    CannotResume(Box<str>),
    /// Its launcher could not ship it, and why.
    CannotShip(Box<str>),
    /// Its launcher could not change it, and why.
    CannotChange(Box<str>),
    /// Something else, in words: what a record of before a restart says, why no node fits, what a launcher says.
    Said(Box<str>),
}

impl Cause {
    /// The words of a cause without data; `None` for another.
    fn plain(&self) -> Option<&'static str> {
        Some(match self {
            Self::Plain => "",
            Self::NotFromHere => "not from here",
            Self::CutOffBeforeResumed => "its node was cut off before it resumed it",
            Self::NotDoneInTime => "its launcher did not do so in time",
            Self::RoomNotNeeded => "its room is no longer needed for another",
            Self::NodeDrained => "its node is drained",
            Self::NodeShortOfMemory => "its node is short of memory",
            Self::StartUnknown => "its START is not known",
            Self::StartForgotten => "its START is not known any more",
            Self::StartUnreadable => "its START cannot be read any more",
            Self::RoomFound => "there is room",
            Self::RoomAgain => "there is room again",
            Self::RoomFreed => "its room is free",
            Self::VictimsLate => "the others did not make way in time",
            Self::WaitsForOneNode => "it waits for one node, as it was asked for",
            Self::Asked => "as it was asked for",
            Self::StaysAsAsked => "to stay so, as it was asked for",
            Self::ShipsIt => "its node ships it",
            Self::StopsIt => "it stops on its node",
            Self::Moved => "it has moved",
            Self::LeftNode => "it has left its node",
            Self::Shipped => "it was shipped",
            Self::NotStopped => "its launcher could not stop it",
            Self::NotLeftInTime => "it did not leave its node in time",
            Self::NodeLost => "its node is lost",
            Self::NodeLostUntold => "its node was lost before it was told",
            Self::NodeLostBeforeStop => "its node was lost before it was told to stop it",
            Self::DeletedWhileLost => "deleted while its node was lost",
            Self::DeletedLost => "deleted while its node is lost",
            Self::NodeBack => "its node is back",
            Self::NodeBackWithout => "its node is back without it",
            Self::NodeHasStoppedIt => "its node is lost, and has stopped it by now",
            Self::Found => "a node has it",
            Self::Changed => "it was changed",
            Self::Changing => "its node changes what it has",
            Self::PriorityChanged => "its priority has changed",
            Self::DemandChanged => "what it asks for has changed",
            Self::HasItsDemand => "it has what it is to have",
            Self::NoRoomToChange => "its node cannot give it what it is to have",
            Self::NotChangedInTime => "its launcher did not change it in time",
            Self::NoVcpusHere => "its node has no vcpus for it, and another has",
            Self::Ended => "ended",
            Self::Stopped => "stopped",
            Self::Deleted => "deleted",
            Self::BeingDeleted => "it is being deleted",
            Self::StartedAgain => "it ended, and a START of it is on its way to its node",
            Self::EndedOnNode => "it has ended on its node",
            Self::NodeWithoutIt => "its node does not have it",
            Self::EndedAfterAll => "its node has ended it after all",
            Self::LostByNode => "its node lost it",
            Self::NotStoppedInTime => "it did not stop in time",
            Self::NotSuspended => "it was not suspended",
            Self::TriedOnAll => "it is tried on all nodes again",
            Self::Restarted => "started again by a new START",
            Self::RefusalsOver => "nodes that refused it may take it by now",
            Self::CutOff => "its node was cut off, and has stopped it",
            Self::EndedAsTold => "its node has ended it, as it was told",
            Self::CannotBeShipped => {
                "it cannot be shipped as it is, and how to start it again is not known"
            }
            Self::EndedBeforeMove => "it ended before it moved",
            Self::MadeWay(_)
            | Self::MakesWay(_)
            | Self::VictimLeaves(_)
            | Self::VictimsLeave(_)
            | Self::VictimStays(_)
            | Self::StillFull(_)
            | Self::TargetGone(_)
            | Self::TargetLost(_)
            | Self::NotStarted(..)
            | Self::CannotSuspend(_)
            | Self::CannotResume(_)
            | Self::CannotShip(_)
            | Self::CannotChange(_)
            | Self::Said(_) => return None,
        })
    }

    /// Bytes of others' texts in it.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::CannotSuspend(text)
            | Self::CannotResume(text)
            | Self::CannotShip(text)
            | Self::CannotChange(text)
            | Self::Said(text) => text.len(),
            _ => 0,
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
            plain => plain.clone(),
        }
    }

    /// Its words, cut where they are too long.
    pub(crate) fn text(&self) -> ShortText {
        self.to_string().into()
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

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(words) = self.plain() {
            return f.write_str(words);
        }
        match self {
            Self::MadeWay(preemptor) => write!(f, "made way for {preemptor}"),
            Self::MakesWay(preemptor) => write!(f, "makes way for {preemptor}"),
            Self::VictimLeaves(victim) => write!(f, "{victim} makes way for it"),
            Self::VictimsLeave(count) => write!(f, "{count} instances make way for it"),
            Self::VictimStays(victim) => write!(f, "{victim} did not make way"),
            Self::StillFull(node) => write!(f, "node {node} is still full"),
            Self::TargetGone(node) => write!(f, "node {node} is not connected any more"),
            Self::TargetLost(node) => write!(f, "node {node} is lost"),
            Self::NotStarted(node, reason) => {
                write!(f, "node {node} could not start it: {reason}")
            }
            Self::CannotSuspend(why) => write!(f, "its launcher could not suspend it: {why}"),
            Self::CannotResume(why) => write!(f, "its launcher could not resume it: {why}"),
            Self::CannotShip(why) => write!(f, "its launcher could not ship it: {why}"),
            Self::CannotChange(why) => write!(f, "its launcher could not change it: {why}"),
            Self::Said(text) => f.write_str(text),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, InstanceId, ShortText};

    #[test]
    fn what_a_record_says_is_said_again() {
        for cause in [
            Cause::Plain,
            Cause::NodeDrained,
            Cause::MadeWay(InstanceId::new("high")),
            Cause::VictimsLeave(3),
            Cause::CannotShip("no route".into()),
        ] {
            let recorded = cause.text();
            assert_eq!(Cause::from(&*recorded).text(), recorded);
        }
        assert_eq!(Cause::from(""), Cause::Plain);
    }

    #[test]
    fn what_is_kept_of_a_long_text_is_as_much_as_of_the_whole() {
        let long = Cause::CannotSuspend("x".repeat(5000).into());
        let words = ShortText::new(&long.to_string());
        assert_eq!((long.kept().text(), long.text()), (words.clone(), words));
        assert!(long.kept().text_len() < 5000);
    }
}
