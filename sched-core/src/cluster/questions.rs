//! What nodes were asked about instances of other nodes.

use indexmap::IndexMap;

use crate::api::ids::InstanceId;
use crate::api::sent::{CommandName, ReportName};

/// Commands about instances of other nodes that one node may be asked at a time: the oldest is forgotten for one more,
/// and its answer taken for foreign. Such commands come one at a time, from people and from controllers that are behind;
/// and copies of instances that are elsewhere are stopped no faster.
pub const MAX_QUESTIONS: usize = 64;

/// What a node was asked about instances that are not its own: its answers are no lies.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// By instance: the command, and who hears of the answer.
    asked: IndexMap<InstanceId, (CommandName, Asker)>,
}

/// Who asked a node about an instance of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A controller or operator: the answer is carried on.
    Peer,
    /// The scheduler itself: no one else hears of it.
    Scheduler,
}

impl Questions {
    pub(super) fn ask(&mut self, instance: InstanceId, command: CommandName, asker: Asker) {
        if self.asked.len() >= MAX_QUESTIONS {
            self.asked.shift_remove_index(0);
        }
        self.asked.insert(instance, (command, asker));
    }

    /// Who asked what this report answers; it is answered then.
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
