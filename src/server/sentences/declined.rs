//! Why a START or a command comes to nothing, beside that no node fits, in words.
//!
//! [`Refusal`]s are of STARTs, [`Objection`]s of commands on instances that exist. Both are shown to the person who
//! sent them: where a key of the payload is at fault, the sentence begins with its path, as mistakes in files do; where
//! something can be done about it, it says what. What no node has is in [`super::no_fit`] instead.

use std::fmt;

use proto_frames::Uuid;
use sched_core::{Countable, Objection, Refusal};

use super::no_fit::name_and_unit;

/// Why a START was not placed, as people read it. In a StartFailure's `detail`, in the log, and in answers of the HTTP
/// API.
pub(super) struct RefusedText<'a>(pub(super) &'a Refusal);

/// Why a command was not carried out, as people read it. The subject of each sentence is the instance, as "it". In a
/// CommandFailure's `detail`, and in answers of the HTTP API.
pub(super) struct Declined<'a>(pub(super) &'a Objection);

impl fmt::Display for RefusedText<'_> {
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            // Limits of the scheduler, and ends that a START came to before it was placed.
            Refusal::Crowded => {
                "too many STARTs wait already for nodes that are still coming back, on which its group may have members"
            }
            Refusal::TooMany => {
                "it would have to be kept to be placed again, and STARTs that are take as much memory as they may"
            }
            Refusal::Cancelled => "deleted before any node was told of it",
            Refusal::Leaving => "the scheduler was stopped before it was placed",
            Refusal::Lost => "its node is lost or does not have it",
            // From here on, mistakes in `start.scheduling`, by their key.
            Refusal::NotUnderstood(at, key) => {
                return write!(
                    f,
                    "start.scheduling.must_understand[{at}]: '{key}' has no effect here: this scheduler or its policy \
                     has it switched off"
                );
            }
            Refusal::NoSuchFact {
                key,
                at,
                name,
                known,
            } => {
                return write!(
                    f,
                    "start.scheduling.{key}[{at}]: there is no fact '{name}'; there are {known}"
                );
            }
            // A dry run gives a PlacementDecision, which original peers cannot read.
            Refusal::DryRunOfOriginal => {
                "start.scheduling.dry_run: the answer is a frame that only the native encoding has; nothing was started"
            }
            Refusal::DryRunOfBatch => {
                "start.scheduling.dry_run: not with batch; 'count' asks for several of one kind"
            }
            Refusal::AfterInBatch => {
                "start.scheduling.after: not with batch; let each START of the batch be sent once what it comes after has ended"
            }
            Refusal::BatchCount {
                batch,
                earlier,
                count,
            } => {
                return write!(
                    f,
                    "start.scheduling.batch.count: batch '{batch}' is of {earlier} by its earlier STARTs, not of {count}"
                );
            }
            Refusal::BatchComplete { batch, count } => {
                return write!(
                    f,
                    "start.scheduling.batch.id: all {count} STARTs of batch '{batch}' have come and wait for nodes"
                );
            }
            Refusal::TooManyBatches {
                of_operator,
                batches,
                bytes,
            } => {
                let whose = if *of_operator {
                    " of this operator"
                } else {
                    ""
                };
                return write!(
                    f,
                    "start.scheduling.batch: too many batches wait{whose} for their last START: at most {batches} with \
                     {bytes} bytes"
                );
            }
            Refusal::OtherBatch(batch) => {
                return write!(
                    f,
                    "start.scheduling.batch.id: the instance waits in batch '{batch}'"
                );
            }
            // Batches that wait or came to nothing, and names that are taken.
            Refusal::WaitsInBatch(batch) => {
                return write!(f, "the instance waits in batch '{batch}' here already");
            }
            Refusal::BatchLost { batch, instance } => {
                return write!(f, "batch '{batch}' has lost {instance}, which was deleted");
            }
            Refusal::BatchLate {
                batch,
                came,
                count,
                seconds,
            } => {
                return write!(
                    f,
                    "batch '{batch}' has {came} of {count} STARTs after {seconds} s"
                );
            }
            Refusal::NameTaken { name, other } => {
                return write!(
                    f,
                    "start.scheduling.name: '{name}' is the name of instance {other}, which has not ended; a name is \
                     that of one instance of a tenant at a time"
                );
            }
            // Arrays.
            Refusal::OtherArray => {
                "another array of this UUID is there already, with another START, other indexes or other values"
            }
            Refusal::NoSuchArray => {
                "there is no array of this UUID; those that ended long ago are forgotten"
            }
            Refusal::ArrayAfterItself => {
                "start.scheduling.after: the array comes after itself, so that it would never begin"
            }
            Refusal::NotInArray(key) => {
                return write!(
                    f,
                    "{key}: not in an array, whose elements are started one by one"
                );
            }
            Refusal::ArrayNameTaken { name, other } => {
                return write!(
                    f,
                    "start.scheduling.name: '{name}' is the name of array {other}, which has not ended"
                );
            }
            Refusal::TooManyArrays {
                of_operators,
                arrays,
                bytes,
            } => {
                let whose = if *of_operators { " of operators" } else { "" };
                return write!(
                    f,
                    "too many arrays{whose} that have not ended: at most {arrays} with {bytes} bytes of STARTs and values"
                );
            }
            // The instance is known here already, in one state or another.
            Refusal::Waits => "the instance waits for room here already",
            Refusal::ExpectedBack => {
                "the instance is lost here already, and its node is expected back"
            }
            Refusal::DeletedUnderLease => {
                "the instance is lost here already: it was deleted, and its node, which is lost, may run it until its \
                 lease is over"
            }
            Refusal::Is(state) => return write!(f, "the instance is {state} here already"),
            Refusal::NotListedYet(node) => {
                return write!(
                    f,
                    "the instance is lost here already, and its node {node}, which is back, has not said yet whether it \
                     has it"
                );
            }
            Refusal::LostSince => {
                "its node was lost after this START of it had come, and may still run it; send the START again if it is \
                 to be started elsewhere"
            }
            Refusal::OtherStart => {
                "the instance is there already, and was made by another START; give each instance a UUID of its own, or \
                 delete this one first"
            }
            Refusal::AsksForMore => {
                "the instance is there already, and this START asks for more than it has; UPDATE changes what it has"
            }
            Refusal::OnlyTried(count) => {
                return write!(f, "only the first {count} were tried: more take too long");
            }
        };
        f.write_str(words)
    }
}

impl fmt::Display for Declined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Where the instance is not to be found.
        let words = match self.0 {
            Objection::NoNode => "no node is known to have it",
            Objection::NotListedYet => "its node has not said yet that it has it",
            Objection::NotListedYetBy(node) => {
                return write!(f, "its node {node} has not said yet that it has it");
            }
            Objection::NodeNotConnected(node) => {
                return write!(f, "its node {node} is not connected");
            }
            Objection::Is(state) => return write!(f, "it is {state}"),
            Objection::OnNoNode(state) => return write!(f, "it is {state}, on no node"),
            Objection::NotMovable(state) => {
                return write!(f, "it is {state}; it can be moved once it runs");
            }
            Objection::NotChangeable(state) => {
                return write!(f, "it is {state}; it can be changed while it runs");
            }
            // Where it cannot be moved or started again.
            Objection::WaitsAnywhere => {
                "it waits for room and goes to the first node that has some; say which node it is to wait for"
            }
            Objection::NoStart => {
                "how to start it again is not known, because its START was not kept; START it with \
                 'scheduling.relocate: true', or set the policy's 'relocation'"
            }
            Objection::NoStartKept => {
                "its START was not kept, so that it could not be started again"
            }
            Objection::Illegal => {
                "it cannot be moved in its present state, although it should be: this is a defect of the scheduler, whose \
                 log names the state; please report it"
            }
            // Where a MIGRATE may go.
            Objection::NoTarget(name) => {
                return write!(f, "no node '{name}' is connected to move it to");
            }
            Objection::AlreadyThere(node) => return write!(f, "it is on node {node} already"),
            Objection::OtherPin(node) => return write!(f, "its START asks for node {node} alone"),
            // What an UPDATE asks for that cannot be.
            Objection::NothingToChange => "it does not say what is to change",
            Objection::CannotSuspend(node) => {
                return write!(
                    f,
                    "the launcher of its node {node} cannot suspend instances"
                );
            }
            Objection::CannotChange(node) => {
                return write!(
                    f,
                    "the launcher of its node {node} cannot change it; with 'move' it goes to another"
                );
            }
            Objection::ShortOf(node, short) => {
                write!(f, "its node {node} is short of ")?;
                return short_of(f, short);
            }
            Objection::TooManyResources { asked, max } => {
                return write!(
                    f,
                    "update.resources: with what it has it would ask for {asked} resources; an instance may ask for {max}"
                );
            }
            Objection::TooFewVcpus { asked, node, free } => {
                return write!(
                    f,
                    "it needs {asked} vcpus, and its node {node} has {free} free"
                );
            }
            Objection::NoPlace { group, node } => return no_place(f, group, node),
            Objection::NoOtherNode => "no other node fits",
        };
        f.write_str(words)
    }
}

/// That others have an instance's place in its group on its node.
fn no_place(f: &mut fmt::Formatter<'_>, group: &str, node: &Uuid) -> fmt::Result {
    write!(
        f,
        "its place in group '{group}' on its node {node} is taken by another member"
    )
}

/// What a node is short of, one entry a resource: what, how much more is needed, and how much it has free, both in the
/// unit that [`name_and_unit`] gives.
fn short_of(f: &mut fmt::Formatter<'_>, short: &[(Countable, i64, i64)]) -> fmt::Result {
    for (at, (of, more, free)) in short.iter().enumerate() {
        let separator = if at == 0 { "" } else { " and of " };
        let (name, unit) = name_and_unit(of);
        write!(
            f,
            "{separator}{name} (needs {more}{unit} more, {free}{unit} free)"
        )?;
    }
    Ok(())
}
