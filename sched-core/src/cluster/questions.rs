//! Commands that nodes were sent about instances placed elsewhere. Their answers are reports about others' instances,
//! which would be dropped as foreign otherwise (`effects::entitlement`).

use indexmap::IndexMap;

use crate::api::ids::InstanceId;
use crate::api::sent::{CommandName, ReportName};

/// Such commands that are remembered for one node; the oldest is forgotten for a further one, and its answer dropped as
/// foreign. They come one at a time, from people and from controllers that are behind; copies of instances are stopped
/// no faster than this.
pub const MAX_QUESTIONS: usize = 64;

/// The commands that one node has not answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Questions {
    /// By instance, oldest first: the latest command, and who gets the answer.
    asked: IndexMap<InstanceId, (CommandName, Asker)>,
}

/// Who asked a node about an instance of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A controller or operator: the answer is forwarded.
    Peer,
    /// The scheduler itself: the answer goes to no one.
    Scheduler,
}

impl Questions {
    /// Notes that a command is sent.
    pub(super) fn ask(&mut self, instance: InstanceId, command: CommandName, asker: Asker) {
        if self.asked.len() >= MAX_QUESTIONS {
            self.asked.shift_remove_index(0);
        }
        self.asked.insert(instance, (command, asker));
    }

    /// Who asked what this report answers; `None` if it answers nothing. It is forgotten then.
    pub(super) fn answered(
        &mut self,
        instance: &InstanceId,
        answer: ReportName,
    ) -> Option<(CommandName, Asker)> {
        let (command, _) = *self.asked.get(instance)?;
        let is_answer = match command {
            CommandName::Delete => matches!(
                answer,
                ReportName::InstanceDeleted
                    | ReportName::InstanceStopped
                    | ReportName::DeleteFailure
            ),
            CommandName::AttachVolume => answer == ReportName::AttachVolumeFailure,
            _ => false,
        };
        is_answer.then(|| self.asked.shift_remove(instance))?
    }
}
