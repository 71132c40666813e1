//! Whether the scheduler lets high tasks take the room of low ones. It does so only where its configuration says
//! `preemption: true`, and does not say whether it does. All tasks here ask for the same, so that it shows: while a low
//! one runs, a high one does not wait for long.

use ciao_scheduler::ctl::track::Stage;
use proto_frames::payload::PhaseName;

use crate::command::Priority;
use crate::task::Task;

/// At how many listings in a row the same high task has to wait and the same low one to run until that is told.
const TOLD_AFTER: u32 = 2;

/// What was seen of it since the connection was made.
#[derive(Debug, Default)]
pub(super) struct Preemption {
    /// The first high task that waits, and the first low one that runs, at the last listing.
    pair: Option<(u32, u32)>,
    /// At how many listings in a row these were so.
    listings: u32,
    /// Whether it was told in the log.
    is_told: bool,
}

impl Preemption {
    /// Looks at the tasks as a listing left them. What is to be told in the log now, once for each connection.
    pub(super) fn look<'a>(&mut self, tasks: impl Iterator<Item = &'a Task>) -> Option<String> {
        let (mut high, mut low) = (None, None);
        for task in tasks.filter(|it| it.is_sent() && !it.is_over()) {
            let first = match (task.record.priority, task.stage()) {
                (Priority::High, Stage::Waiting(_)) => &mut high,
                (Priority::Low, Stage::Running) => &mut low,
                (Priority::Low, Stage::Held { state, .. }) if is_preempted(state) => {
                    *self = Self::default();
                    return None;
                }
                _ => continue,
            };
            first.get_or_insert(task.record.id);
        }
        let pair = high.zip(low);
        self.listings = match pair {
            Some(_) if pair == self.pair => self.listings + 1,
            Some(_) => 1,
            None => 0,
        };
        self.pair = pair;
        let notice = self.notice().filter(|_| !self.is_told)?;
        self.is_told = true;
        Some(notice)
    }

    /// What people should know, for as long as it is so.
    pub(super) fn notice(&self) -> Option<String> {
        let (high, low) = self.pair.filter(|_| self.listings >= TOLD_AFTER)?;
        Some(format!(
            "task {high} of priority 0 waits while task {low} of priority 1 runs: for low tasks to be preempted, the \
             scheduler's configuration has to say 'preemption: true' in its policy"
        ))
    }
}

/// Whether a low task is about to leave its node for a while, or has left it.
fn is_preempted(state: &PhaseName) -> bool {
    matches!(
        state,
        PhaseName::Suspended | PhaseName::Suspending | PhaseName::Stopping
    )
}
