//! What goes on at the scheduler when a command is interrupted, and how to undo it: a command notes it as it goes, and
//! Ctrl-C prints it.
//!
//! ```text
//! command ── instances(ids) / text(…) / ended(id) ──▶ Aftermath ◀── lines() ── Ctrl-C
//! ```
//!
//! The last note counts: a command replaces what it said before. Nothing here talks to the scheduler; what is printed
//! is what the command knew.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::printable::Lines;

/// Instances that are named; the rest is counted.
///
/// Enough to copy from; the screen stays readable.
const MAX_NAMED: usize = 10;

/// What goes on without the command, shared between the command and the task that waits for Ctrl-C. Empty at first.
///
/// Clones share one state, behind a mutex that is held only for the copy of a text or a set.
#[derive(Debug, Clone, Default)]
pub struct Aftermath(Arc<Mutex<Remaining>>);

/// What remains to be told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Remaining {
    #[default]
    Nothing,
    /// These instances run or wait.
    ///
    /// Ordered, so that the same ones are named each time.
    Instances(BTreeSet<String>),
    /// In words.
    Text(String),
}

impl Aftermath {
    /// These instances were started, or are waited for.
    ///
    /// Replaces what was noted before. UUIDs, which the hints below repeat.
    pub fn instances<'a>(&self, ids: impl Iterator<Item = &'a str>) {
        *self.0.lock() = Remaining::Instances(ids.map(ToOwned::to_owned).collect());
    }

    /// This instance has ended.
    ///
    /// Without effect if a text was noted instead.
    pub fn ended(&self, id: &str) {
        if let Remaining::Instances(ids) = &mut *self.0.lock() {
            ids.remove(id);
        }
    }

    /// This goes on.
    ///
    /// A clause that follows `interrupted: `, without a full stop.
    pub fn text(&self, text: String) {
        *self.0.lock() = Remaining::Text(text);
    }

    /// What to tell: nothing, or a line and perhaps instances.
    ///
    /// Becomes the text of `CommandError::Interrupted`.
    #[must_use]
    pub fn lines(&self) -> Lines {
        let mut lines = Lines::default();
        match &*self.0.lock() {
            Remaining::Nothing => {}
            Remaining::Text(text) => lines.push(format_args!("interrupted: {text}")),
            Remaining::Instances(ids) => told(ids, &mut lines),
        }
        lines
    }
}

/// None for no instances, since then all have ended.
fn told(ids: &BTreeSet<String>, lines: &mut Lines) {
    match (ids.first(), ids.len()) {
        (None, _) => {}
        (Some(id), 1) => lines.push(format_args!(
            "interrupted: instance {id} goes on; `ciaoctl wait {id}` waits for it again, `ciaoctl delete {id}` ends it"
        )),
        (Some(_), count) => {
            lines.push(format_args!(
                "interrupted: {count} instances go on; `ciaoctl wait` waits for them again, `ciaoctl delete` ends them:"
            ));
            for id in ids.iter().take(MAX_NAMED) {
                lines.push(format_args!("  {id}"));
            }
            if let more @ 1.. = count.saturating_sub(MAX_NAMED) {
                lines.push(format_args!("  and {more} more"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_not_told_of() {
        let aftermath = Aftermath::default();
        assert!(aftermath.lines().is_empty());
        aftermath.instances(["i1", "i2"].into_iter());
        let text = aftermath.lines().to_string();
        assert!(
            text.starts_with("interrupted: 2 instances go on;"),
            "{text}"
        );
        assert!(text.ends_with(":\n  i1\n  i2\n"), "{text}");
        aftermath.ended("i1");
        let text = aftermath.lines().to_string();
        assert!(
            text.contains("instance i2 goes on") && text.contains("ciaoctl delete i2"),
            "{text}"
        );
        aftermath.ended("i2");
        assert!(aftermath.lines().is_empty());
        aftermath.text("the drain goes on".into());
        assert_eq!(
            aftermath.lines().to_string(),
            "interrupted: the drain goes on\n"
        );
    }
}
