//! Why something became of an instance: as data, for its history and those who are told.

use std::fmt;

use sched_model::{StartFailureReason, Uuid};

use crate::api::ids::InstanceId;
use crate::api::text::ShortText;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)* --- $($(#[$of_data:meta])* $with:ident($($data:ty),*),)*) => {
        /// Why an instance came to a state.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub(crate) enum Cause {
            /// Its state says it all.
            #[default]
            Plain,
            $($(#[$doc])* $name,)*
            $($(#[$of_data])* $with($($data),*),)*
        }

        impl Cause {
            /// The words of a cause without data; `None` for another.
            fn plain(&self) -> Option<&'static str> {
                Some(match self {
                    Self::Plain => "",
                    $(Self::$name => $text,)*
                    $(Self::$with(..) => return None,)*
                })
            }
        }
    };
}

causes! {
    /// It was not the scheduler's doing.
    NotFromHere = "not from here",
    /// A cut-off node had not resumed it.
    CutOffBeforeResumed = "its node was cut off before it resumed it",
    /// Its launcher did not suspend or resume it in time.
    NotDoneInTime = "its launcher did not do so in time",
    /// Its preemptor needs its room no longer.
    RoomNotNeeded = "its room is no longer needed for another",
    /// Its node is drained.
    NodeDrained = "its node is drained",
    /// Its node guards itself against a shortage of memory.
    NodeShortOfMemory = "its node is short of memory",
    /// It cannot be started again.
    StartUnknown = "its START is not known",
    /// It cannot be started again any more.
    StartForgotten = "its START is not known any more",
    /// Its START was kept, and is refused now.
    StartUnreadable = "its START cannot be read any more",
    /// A node has room.
    RoomFound = "there is room",
    /// Its node has room for it again.
    RoomAgain = "there is room again",
    /// Its victims have left.
    RoomFreed = "its room is free",
    /// Victims did not leave in time.
    VictimsLate = "the others did not make way in time",
    /// It was moved to a node that has no room yet.
    WaitsForOneNode = "it waits for one node, as it was asked for",
    /// A command said so.
    Asked = "as it was asked for",
    /// A command said so of what was so already.
    StaysAsAsked = "to stay so, as it was asked for",
    /// Its launcher is told to ship it.
    ShipsIt = "its node ships it",
    /// Its launcher is told to stop it, to start it elsewhere.
    StopsIt = "it stops on its node",
    /// The target of its move has it.
    Moved = "it has moved",
    /// Its node has it no longer.
    LeftNode = "it has left its node",
    /// Its state is on the target of its move.
    Shipped = "it was shipped",
    /// Its launcher says so.
    NotStopped = "its launcher could not stop it",
    /// Its move was undone.
    NotLeftInTime = "it did not leave its node in time",
    /// Its node's connection has ended.
    NodeLost = "its node is lost",
    /// Its node had not been told of it.
    NodeLostUntold = "its node was lost before it was told",
    /// Its node had not been told to stop it.
    NodeLostBeforeStop = "its node was lost before it was told to stop it",
    /// It is stopped now that its node is back.
    DeletedWhileLost = "deleted while its node was lost",
    /// It is stopped once its node is back.
    DeletedLost = "deleted while its node is lost",
    /// Its node has returned and lists it.
    NodeBack = "its node is back",
    /// Its node has returned and does not list it.
    NodeBackWithout = "its node is back without it",
    /// The lease of its lost node is over.
    NodeHasStoppedIt = "its node is lost, and has stopped it by now",
    /// A node lists it that was not known to have it.
    Found = "a node has it",
    /// Its launcher has changed it.
    Changed = "it was changed",
    /// Its launcher is told to change it.
    Changing = "its node changes what it has",
    /// An UPDATE said so.
    PriorityChanged = "its priority has changed",
    /// An UPDATE said so.
    DemandChanged = "what it asks for has changed",
    /// An UPDATE is carried out.
    HasItsDemand = "it has what it is to have",
    /// It moves to be changed.
    NoRoomToChange = "its node cannot give it what it is to have",
    /// Its launcher did not say that it changed it.
    NotChangedInTime = "its launcher did not change it in time",
    /// It moves to be resumed.
    NoVcpusHere = "its node has no vcpus for it, and another has",
    /// It ended.
    Ended = "ended",
    /// Its node has told of its end although nobody here knew of it.
    KeptByNode = "ended, as its node remembers",
    /// Its end and its new start were reported together.
    EndedAndBegan = "ended, and began again since",
    /// Its node does not list it any more, and has not said how it ended.
    NotListed = "its node no longer lists it",
    /// What its history begins with, if it is not managed.
    KnownSince = "known since then",
    /// An operator does not wait for its node.
    Forgotten = "forgotten by an operator while its node is lost",
    /// It was stopped.
    Stopped = "stopped",
    /// It was deleted.
    Deleted = "deleted",
    /// A DELETE ends its move.
    BeingDeleted = "it is being deleted",
    /// It ended while its START is on its way.
    StartedAgain = "it ended, and a START of it is on its way to its node",
    /// What its launcher was told comes to nothing.
    EndedOnNode = "it has ended on its node",
    /// Its node does not list what it was given.
    NodeWithoutIt = "its node does not have it",
    /// Its node did late what it was told.
    EndedAfterAll = "its node has ended it after all",
    /// Its node lists it no longer.
    LostByNode = "its node lost it",
    /// Its launcher did not say that it stopped it.
    NotStoppedInTime = "it did not stop in time",
    /// Its launcher says that it runs.
    NotSuspended = "it was not suspended",
    /// It could not be resumed for long.
    TriedOnAll = "it is tried on all nodes again",
    /// A new START replaces it.
    Restarted = "started again by a new START",
    /// Time has passed since nodes refused it.
    RefusalsOver = "nodes that refused it may take it by now",
    /// The lease of its node is over, as its launcher says.
    CutOff = "its node was cut off, and has stopped it",
    /// Its launcher did what it was told.
    EndedAsTold = "its node has ended it, as it was told",
    /// It can be neither shipped nor started again.
    CannotBeShipped = "it cannot be shipped as it is, and how to start it again is not known",
    /// It ended while it was to move.
    EndedBeforeMove = "it ended before it moved",
    ---
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
