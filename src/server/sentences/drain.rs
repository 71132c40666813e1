//! How drains stand and end, in words.
//!
//! A drain is either checked (`ciaoctl drain --check`: what would happen) or carried out; [`DrainState::Checking`]
//! tells which. Each instance that cannot be moved has a cause of its own.

use sched_core::{
    DrainCauses, DrainEnd, DrainSummary, DrainWaits, Explained, InstanceId, NamedInstances,
};
use sched_model::{DrainProgress, DrainState, UnmovableInstance};

use super::{Why, short};

/// How many instances that cannot be moved the one-line detail names; the payload lists all that were found.
const NAMED: usize = 2;

/// Characters of a UUID that are shown where there is no name: as many as `ciaoctl` shows.
const UUID_PREFIX: usize = 8;

/// Writes the sentences into a drain's progress. Causes stand in the order of the instances that cannot be moved. A
/// check gives each one whole, because a person asked for it; while a drain goes on they are cut to a
/// [`ShortText`](sched_core::ShortText).
pub(super) fn word(progress: &mut Explained<DrainProgress, DrainCauses>) {
    let (payload, causes) = (&mut progress.payload, &progress.cause);
    let is_check = payload.state == DrainState::Checking;
    for (unmovable, cause) in payload.unmovable.iter_mut().zip(&causes.unmovable) {
        unmovable.detail = if is_check {
            Why(cause).to_string()
        } else {
            short(cause)
        };
    }
    payload.detail = if is_check {
        checked(payload, causes.untried)
    } else {
        let said = [
            ended(causes.end).to_owned(),
            gone(payload),
            waits(&causes.waits),
        ];
        joined(&said, "; ")
    };
}

/// How the drain of a node stands. For the node's row in `ciaoctl nodes`: only as much as fits a column.
pub(super) fn summary(drain: &DrainSummary) -> String {
    let DrainSummary {
        moved,
        ended,
        total,
        unmovable,
        waits: waited,
    } = drain;
    if waited.is_node_silent {
        return waits(waited);
    }
    let mut words = format!("{moved} of {total} moved");
    if *ended > 0 {
        words.push_str(&format!(", {ended} ended"));
    }
    let lasting = unmovable.saturating_sub(waited.without_room.count);
    if lasting > 0 {
        words.push_str(&format!(", {lasting} cannot be moved"));
    }
    joined(&[words, waits(waited)], "; ")
}

/// What a drain waits for; nothing where it waits for nothing.
fn waits(waits: &DrainWaits) -> String {
    if waits.is_node_silent {
        return "waits for the node to say what runs on it".to_owned();
    }
    let each = [
        some(&waits.leaving, "", " to leave the node"),
        some(&waits.starting, "", " to run elsewhere"),
        some(&waits.without_room, "room elsewhere for ", ""),
    ];
    match joined(&each, ", for ") {
        words if words.is_empty() => words,
        words => format!("waits for {words}"),
    }
}

/// These instances between two texts: `web-1 to leave the node`, `web-1 and 2 more …`. Nothing if there are none.
fn some(instances: &NamedInstances, before: &str, after: &str) -> String {
    let Some(first) = &instances.first else {
        return String::new();
    };
    let name = called(&first.name, &first.instance);
    match instances.count {
        1 => format!("{before}{name}{after}"),
        count => format!("{before}{name} and {} more{after}", count - 1),
    }
}

/// What people call an instance: its name, else the beginning of its UUID.
fn called(name: &str, instance: &InstanceId) -> String {
    match (name, instance) {
        ("", InstanceId::Uuid(uuid)) => uuid.to_string()[..UUID_PREFIX].to_owned(),
        ("", other) => other.to_string(),
        (name, _) => name.to_owned(),
    }
}

/// The texts that are not empty, with this between them.
fn joined(texts: &[String], between: &str) -> String {
    let texts: Vec<&str> = texts.iter().map(|it| &**it).collect();
    let texts = texts.into_iter().filter(|it| !it.is_empty());
    texts.collect::<Vec<_>>().join(between)
}

/// How many of those that have left the node did not move: they ended there, or were deleted.
fn gone(progress: &DrainProgress) -> String {
    match (
        progress.ended,
        progress.moved - progress.ended.min(progress.moved),
    ) {
        (0, _) => String::new(),
        (ended, moved) => format!("{moved} moved, {ended} ended"),
    }
}

/// What a drain would come to. `untried` instances were not tried, because the dry run is bounded: the sentence says
/// so, so that the number is not taken for all.
fn checked(progress: &DrainProgress, untried: usize) -> String {
    let mut words = match (progress.total, progress.unmovable_count) {
        (0, _) => "nothing to move".to_owned(),
        (total, 0) => format!("all of {total} fit elsewhere"),
        _ => not_fitting(progress),
    };
    if untried > 0 {
        words.push_str(&format!("; {untried} were not tried: that takes too long"));
    }
    words
}

/// Why a drain has ended; nothing while it goes on. Instances that cannot be moved are in the payload, each with its
/// reason, and are not named again here.
fn ended(end: Option<DrainEnd>) -> &'static str {
    match end {
        None => "",
        Some(DrainEnd::Asked) => "as requested",
        Some(DrainEnd::Uncordoned) => "its node is to take work again",
        Some(DrainEnd::NothingMovable) => "what is left cannot be moved",
        Some(DrainEnd::TimeOver) => "its time is over",
        Some(DrainEnd::NodeLost) => "the node is lost",
    }
}

/// Instances that fit nowhere else.
fn not_fitting(progress: &DrainProgress) -> String {
    let named = progress.unmovable.iter().take(NAMED);
    let named = named.map(|it| format!("{} ({})", name_of(it), it.detail));
    let named = named.collect::<Vec<_>>().join(", ");
    let (count, total) = (progress.unmovable_count, progress.total);
    let more = if count as usize > NAMED {
        ", and others"
    } else {
        ""
    };
    format!("{count} of {total} will not fit: {named}{more}")
}

/// What people call an instance that fits nowhere else.
fn name_of(unmovable: &UnmovableInstance) -> String {
    called(&unmovable.name, &InstanceId::new(&unmovable.instance_uuid))
}
