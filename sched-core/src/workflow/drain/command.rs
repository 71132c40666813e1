//! EVACUATE and its undoing: what of a node is cordoned, drained, forgotten or given back to work.

use sched_model::{DrainState, Evacuate, EvacuateMode, Restore, RestoreMode};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::explained::DrainEnd;
use crate::api::ids::{SessionId, canonical_uuid};
use crate::api::parcel::Parcel;
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;

impl Scheduler {
    /// EVACUATE from a controller or operator. Its mode decides; any mode that is not the scheduler's goes to the
    /// launcher.
    pub(crate) fn evacuate(&mut self, id: SessionId, parcel: Parcel, evacuate: &Evacuate) {
        let name = &evacuate.workload_agent_uuid;
        match &evacuate.mode {
            EvacuateMode::Cordon => {
                if let Some(uuid) = self.node_to_cordon(id, name) {
                    self.cordon(uuid);
                }
            }
            EvacuateMode::Relocate => self.begin_drain(id, evacuate),
            EvacuateMode::Check => {
                if let Some(key) = self.node_to_drain(id, name) {
                    let progress = self.check_drain(key);
                    self.send(id, Message::DrainProgress(Box::new(progress)));
                }
            }
            EvacuateMode::Abort => match canonical_uuid(name) {
                Some(uuid) if self.cluster.drain_of(uuid).is_some() => {
                    self.end_drain(uuid, DrainState::Aborted, Some(DrainEnd::Asked));
                }
                _ => {
                    let cause = RefusalCause::NotDrained(name.as_str().into());
                    self.refuse(id, CommandName::Evacuate.into(), cause, None);
                }
            },
            EvacuateMode::Forget => self.forget_node(id, name),
            EvacuateMode::Other(_) => {
                let key = self.cluster.by_name(name);
                if let Some(key) = key {
                    self.cluster.note_evacuated(key);
                }
                self.forward_to_node(id, CommandName::Evacuate, parcel, name);
            }
        }
    }

    /// Restore from a controller or operator: ends cordon and drain, and, in the original's mode, goes to the launcher
    /// as well.
    pub(crate) fn restore_node(&mut self, id: SessionId, parcel: Parcel, restore: &Restore) {
        let name = &restore.workload_agent_uuid;
        if let Some(uuid) = canonical_uuid(name) {
            self.uncordon(uuid);
        }
        match restore.mode {
            RestoreMode::Uncordon => {}
            RestoreMode::Other(_) => {
                self.forward_to_node(id, CommandName::Restore, parcel, name);
            }
        }
    }
}
