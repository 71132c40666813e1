//! How drains stand and end, in words.
//!
//! A drain is either checked (`ciaoctl drain --check`: what would happen) or carried out; [`DrainState::Checking`]
//! tells which. Each instance that cannot be moved has a cause of its own.

use sched_core::{DrainCauses, DrainEnd, DrainSummary, Explained};
use sched_model::{DrainProgress, DrainState};

use super::{Why, short};

/// How many instances that cannot be moved the one-line detail names; the payload lists all that were found.
const NAMED: usize = 2;

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
        ended(causes.end).to_owned()
    };
}

/// How the drain of a node stands. For the node's row in `ciaoctl nodes`: only as much as fits a column.
pub(super) fn summary(drain: &DrainSummary) -> String {
    let DrainSummary {
        moved,
        total,
        unmovable,
    } = drain;
    let mut words = format!("{moved} of {total} moved");
    if *unmovable > 0 {
        words.push_str(&format!(", {unmovable} do not fit elsewhere"));
    }
    words
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
    let named = named.map(|it| format!("{} ({})", it.instance_uuid, it.detail));
    let named = named.collect::<Vec<_>>().join(", ");
    let (count, total) = (progress.unmovable_count, progress.total);
    let more = if count as usize > NAMED {
        ", and others"
    } else {
        ""
    };
    format!("{count} of {total} will not fit: {named}{more}")
}
