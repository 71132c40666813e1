//! Why something became of an instance, or of a command, in words.
//!
//! One arm for each variant of [`Cause`], in the core's order where they carry nothing. What each means, and when the
//! core gives it, is documented at the variant. A sentence begins with a lower-case letter and has no full stop,
//! because it may stand after a colon or within another sentence.

use std::fmt;

use proto_frames::payload::AfterEnd;
use sched_core::{Cause, OtherArrayEnd, OtherEnd};

use super::SILENT_DISK;
use super::declined::{Declined, RefusedText};
use super::no_fit::WhyNoFit;

/// A cause as people read it. Writes nothing for [`Cause::Plain`], which is the cause of what needs no reason.
pub(in crate::server) struct Why<'a>(pub(in crate::server) &'a Cause);

impl fmt::Display for Why<'_> {
    #[expect(clippy::too_many_lines, reason = "a table")]
    // Arms that format write directly; the others yield a text that is written at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            // Preemption: of the victim, then of the preemptor that waits for its victims.
            Cause::LeftFor(preemptor) => return write!(f, "preempted by {preemptor}"),
            Cause::LeavesFor(preemptor) => return write!(f, "being preempted by {preemptor}"),
            Cause::VictimLeaves(victim) => return write!(f, "{victim} is being preempted for it"),
            Cause::VictimsLeave(count) => {
                return write!(f, "{count} instances are being preempted for it");
            }
            Cause::VictimsToLeave(1) => "one instance to be preempted for it",
            Cause::VictimsToLeave(count) => {
                return write!(f, "{count} instances to be preempted for it");
            }
            Cause::VictimStays(victim) => return write!(f, "{victim} could not be preempted"),
            Cause::StillFull(node) => return write!(f, "node {node} is still full"),
            // Moves and resumes that failed: the target, or the launcher that was told to do it.
            Cause::TargetGone(node) => return write!(f, "node {node} is not connected any more"),
            Cause::TargetLost(node) => return write!(f, "node {node} is lost"),
            Cause::NotStarted(node, reason, said) if said.is_empty() => {
                return write!(f, "node {node} could not start it: {reason}");
            }
            Cause::NotStarted(node, reason, said) => {
                return write!(f, "node {node} could not start it: {reason}: {said}");
            }
            Cause::CannotSuspend(why) => {
                return write!(f, "its launcher could not suspend it: {why}");
            }
            Cause::CannotResume(why) => {
                return write!(f, "its launcher could not resume it: {why}");
            }
            Cause::CannotShip(why) => return write!(f, "its launcher could not migrate it: {why}"),
            Cause::CannotChange(why) => {
                return write!(f, "its launcher could not change it: {why}");
            }
            // Causes that are of a type of their own, and have a table of their own.
            Cause::Refused(refusal) => return RefusedText(refusal).fmt(f),
            Cause::Declined(objection) => return Declined(objection).fmt(f),
            Cause::NoFit(no_fit) => return WhyNoFit(no_fit).fmt(f),
            // `None` where the disk has not answered, which has no error to show.
            Cause::NotRecorded(why) => {
                let why = why.as_deref().unwrap_or(SILENT_DISK);
                return write!(
                    f,
                    "the scheduler cannot record it, so that it would be lost in a restart: its state directory takes \
                     no writes: {why}"
                );
            }
            // Causes that wrap another one: the inner one is written where the sentence needs it.
            Cause::WaitsAnd(cause) => {
                return write!(f, "the instance waits here already, and {}", Why(cause));
            }
            Cause::AndQueueFull(cause, count) => {
                let cause = Why(cause);
                return write!(
                    f,
                    "{cause}; and {count} wait already, as many as are allowed"
                );
            }
            Cause::OfBatch(fits, count, cause) => {
                return write!(f, "{fits} of a batch of {count} fit: {}", Why(cause));
            }
            Cause::OfSeveral(fits, count, cause) => {
                return write!(f, "{fits} of {count} fit; of the next {}", Why(cause));
            }
            Cause::NotCounted => {
                "no node fits; why was not counted, because too many different STARTs fail at once"
            }
            // A text of somebody else, a launcher mostly: shown as it is.
            Cause::Said(text) => text,
            // All others carry nothing.
            Cause::Plain => "",
            Cause::NotFromHere => "not by the scheduler",
            Cause::CutOffBeforeResumed => "its node was cut off before it resumed it",
            Cause::NotDoneInTime => "its launcher did not do so in time",
            Cause::RoomNotNeeded => "its room is no longer needed for another",
            Cause::NodeDrained => "its node is drained",
            Cause::NodeShortOfMemory => "its node is short of memory",
            Cause::StartForgotten => "its START is not known any more",
            Cause::StartUnreadable => "its START cannot be read any more",
            Cause::RoomFound => "there is room",
            Cause::RoomAgain => "there is room again",
            Cause::RoomFreed => "its room is free",
            Cause::VictimsLate => "the instances to be preempted for it did not leave in time",
            Cause::WaitsForOneNode => "it waits for room on the requested node",
            Cause::Asked => "as requested",
            Cause::StaysAsAsked => "it stays so, as requested",
            Cause::ShipsIt => "its node migrates it",
            Cause::StopsIt => "it stops on its node",
            Cause::Moved => "it has moved",
            Cause::LeftNode => "it has left its node",
            Cause::Shipped => "it was migrated",
            Cause::NotStopped => "its launcher could not stop it",
            Cause::NotLeftInTime => "it did not leave its node in time",
            Cause::NodeLost => "its node is lost",
            Cause::NodeLostUntold => "its node was lost before it was told",
            Cause::NodeLostBeforeStop => "its node was lost before it was told to stop it",
            Cause::DeletedWhileLost => "deleted while its node was lost",
            Cause::DeletedLost => "deleted while its node is lost",
            Cause::NodeBack => "its node is back",
            Cause::NodeBackWithout => "its node is back without it",
            Cause::NodeHasStoppedIt => "its node is lost, and has stopped it by now",
            Cause::Found => "a node has it",
            Cause::Changed => "it was changed",
            Cause::Changing => "its node changes its amounts",
            Cause::PriorityChanged => "its priority has changed",
            Cause::DemandChanged => "what it asks for has changed",
            Cause::HasItsDemand => "it has the amounts that were asked for",
            Cause::NoRoomToChange => "its node has no room for the amounts that were asked for",
            Cause::NotChangedInTime => "its launcher did not change it in time",
            Cause::NoVcpusHere => {
                "its node has no vcpus or no place in its group for it, and another has"
            }
            Cause::Ended => "ended",
            Cause::Evacuated => "stopped: its node is evacuated",
            Cause::KeptByNode => "ended; told by its node afterwards",
            Cause::EndedAndBegan => "ended, and began again since",
            Cause::NotListed => "its node no longer lists it",
            Cause::KnownSince => "the scheduler knows of it since then",
            Cause::Forgotten => "forgotten by an operator while its node is lost",
            Cause::Stopped => "stopped",
            Cause::Deleted => "deleted",
            Cause::BeingDeleted => "it is being deleted",
            Cause::StartedAgain => "it ended, and a START of it is on its way to its node",
            Cause::Retried(code, number, most) => {
                let how = match code {
                    signal @ ..0 => format!("by signal {}", -signal),
                    code => format!("with exit status {code}"),
                };
                return write!(f, "it ended {how}, and is retried ({number} of {most})");
            }
            Cause::ComesAfter(named, 0) => return write!(f, "waits for {named} to end"),
            Cause::ComesAfter(named, others) => {
                return write!(f, "waits for {named} and {others} others to end");
            }
            Cause::OthersEnded => "what it comes after has ended",
            Cause::OtherwiseEnded(end) => return write_other_end(f, end),
            Cause::ArrayOtherwiseEnded(end) => return write_other_array_end(f, end),
            Cause::OtherUnknown(named) => {
                return write!(
                    f,
                    "it was to come after {named}, of which nothing is known: it neither lives nor is among the ends that the scheduler remembers"
                );
            }
            Cause::EndedOnNode => "it has ended on its node",
            Cause::NodeWithoutIt => "its node does not have it",
            Cause::EndedAfterAll => "its node has ended it after all",
            Cause::LostByNode => "its node lost it",
            Cause::NotStoppedInTime => "it did not stop in time",
            Cause::NotSuspended => "it was not suspended",
            Cause::TriedOnAll => "it is tried on all nodes again",
            Cause::Restarted => "started again by a new START",
            Cause::RefusalsOver => "nodes that refused it are tried again",
            Cause::CutOff => "its node was cut off, and has stopped it",
            Cause::EndedAsTold => "its node has ended it, as it was told",
            Cause::CannotBeShipped => {
                "it cannot be migrated as it is, and how to start it again is not known"
            }
            Cause::EndedBeforeMove => "it ended before it moved",
            Cause::MayRunOnLostNode => {
                "its node is lost and may run it still: it goes on if the node comes back with it"
            }
            Cause::KnownSinceNodeLost => {
                "the scheduler knows of it since then; its node is lost now"
            }
            Cause::GivenUnlisted => {
                "its START was given to its node then; the node has not reported it yet"
            }
            Cause::ListedSince => "its node reports it since then",
            Cause::PreemptorGone => {
                "vcpus on its node; the instance that it was suspended for is gone"
            }
        };
        f.write_str(words)
    }
}
/// How an instance has ended that another was to come after.
fn write_other_end(f: &mut fmt::Formatter<'_>, end: &OtherEnd) -> fmt::Result {
    let wanted = match end.wanted {
        AfterEnd::Any => "had ended",
        AfterEnd::Failed => "had failed",
        AfterEnd::Ok | AfterEnd::Other(_) => "had ended by itself with exit status 0",
    };
    write!(f, "it was to come after {} {wanted}, which ", end.named)?;
    match (&end.failed, end.exit_code) {
        (Some(reason), _) => write!(f, "was not started ({reason})"),
        (None, Some(signal @ ..0)) => write!(f, "was ended by signal {}", -signal),
        (None, Some(0)) if end.wanted == AfterEnd::Failed => {
            f.write_str("has ended with exit status 0")
        }
        (None, Some(0)) => f.write_str("was ended by a command or a limit"),
        (None, Some(code)) => write!(f, "has ended with exit status {code}"),
        (None, None) if end.never_began => f.write_str("never began"),
        (None, None) if end.is_ok == Some(true) => f.write_str("has ended with exit status 0"),
        (None, None) if end.is_ok == Some(false) => f.write_str("did not succeed"),
        (None, None) => f.write_str("has ended, how is not known"),
    }
}

/// How an array has ended that an instance was to come after.
fn write_other_array_end(f: &mut fmt::Formatter<'_>, end: &OtherArrayEnd) -> fmt::Result {
    let wanted = match end.wanted {
        AfterEnd::Any => "had ended",
        AfterEnd::Failed => "had failed",
        AfterEnd::Ok | AfterEnd::Other(_) => "had succeeded",
    };
    write!(
        f,
        "it was to come after array {} {wanted}, of which {} of {} elements succeeded",
        end.named, end.succeeded, end.count
    )?;
    match end.unknown {
        0 => Ok(()),
        unknown => write!(f, "; of {unknown} it is not known how they ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::{AfterEnd, Cause, OtherArrayEnd, Why};

    #[test]
    fn how_an_array_ended_is_told_by_what_succeeded() {
        let told = |wanted, succeeded, unknown| {
            let end = OtherArrayEnd {
                named: "sweep".into(),
                wanted,
                count: 5,
                succeeded,
                unknown,
            };
            Why(&Cause::ArrayOtherwiseEnded(Box::new(end))).to_string()
        };
        assert_eq!(
            told(AfterEnd::Ok, 3, 0),
            "it was to come after array sweep had succeeded, of which 3 of 5 elements succeeded"
        );
        assert_eq!(
            told(AfterEnd::Failed, 3, 2),
            "it was to come after array sweep had failed, of which 3 of 5 elements succeeded; \
             of 2 it is not known how they ended"
        );
    }
}
