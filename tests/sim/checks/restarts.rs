//! A launcher starts again what its START says, so often and no more, and nothing that has run for as long as it may.

use std::collections::BTreeMap;

use proto_frames::payload::{RestartPolicy, RestartWhen};

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// How often it may is counted for each START that a launcher carries out.
#[derive(Default)]
pub(super) struct Restarts {
    /// By machine and instance.
    books: BTreeMap<(usize, u32), Book>,
}

#[derive(Debug, Default)]
struct Book {
    restarts: u32,
    /// Exit status of the latest process since the START; `None` where the latest did not begin.
    code: Option<i32>,
    is_over_time: bool,
    /// Whether what is ordered next is a restart.
    is_respawned: bool,
}

impl Check for Restarts {
    fn name(&self) -> &'static str {
        "a launcher starts again what its START says"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        match *fact {
            Fact::Respawned { instance, machine } => {
                let scheduling = world.scheduling_of(instance);
                let policy = scheduling.and_then(|it| it.restart_policy());
                let book = self.books.entry((machine, instance)).or_default();
                // One that was ordered before and did not begin may be the same: its launcher crashed before it came to it.
                let is_same = book.restarts > 0 && book.code.is_none();
                book.is_respawned = true;
                book.restarts += u32::from(!is_same);
                if !policy.is_some_and(|policy| book.admits(policy)) {
                    return Err(format!(
                        "{instance} is started again on {machine}: {book:?} with {policy:?}"
                    ));
                }
                book.code = None;
            }
            Fact::Ordered {
                instance, machine, ..
            } => {
                let book = self.books.entry((machine, instance)).or_default();
                if !std::mem::take(&mut book.is_respawned) {
                    *book = Book::default();
                }
            }
            Fact::Ended {
                instance,
                machine,
                code,
                is_over_time,
                ..
            } => {
                let book = self.books.entry((machine, instance)).or_default();
                book.code = Some(code);
                book.is_over_time |= is_over_time;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Book {
    /// Whether the restart that is counted last is one of those.
    fn admits(&self, policy: &RestartPolicy) -> bool {
        let is_wanted = policy.when == RestartWhen::Always || self.code != Some(0);
        is_wanted && !self.is_over_time && policy.max.is_none_or(|max| self.restarts <= max)
    }
}

#[test]
fn a_restart_is_held_against_its_policy() {
    let policy = |when| RestartPolicy {
        when,
        max: Some(2),
        ..RestartPolicy::default()
    };
    let ended = |code, restarts| Book {
        restarts,
        code: Some(code),
        ..Book::default()
    };
    assert!(ended(1, 1).admits(&policy(RestartWhen::OnFailure)));
    assert!(!ended(0, 1).admits(&policy(RestartWhen::OnFailure)));
    assert!(ended(0, 2).admits(&policy(RestartWhen::Always)));
    assert!(!ended(0, 3).admits(&policy(RestartWhen::Always)));
    let late = Book {
        is_over_time: true,
        ..ended(1, 1)
    };
    assert!(!late.admits(&policy(RestartWhen::Always)));
}
