//! DELETE with `forget: true`: an instance of a lost node is dropped from the scheduler's tables, without waiting for
//! the node. Nothing is sent to the node; if it comes back with the instance, the instance is adopted.

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::refused::RefusalCause;
use crate::api::sent::CommandName;
use crate::cluster::node::Presence;
use crate::instance::State;

impl Scheduler {
    /// Forgets an instance whose node is lost, managed or plain, and reports it as deleted. Any other instance is
    /// refused: it has to be deleted on its node.
    pub(crate) fn forget_lost(&mut self, id: SessionId, instance: &InstanceId) {
        if let Some(who) = self.sight().who_ends(id, instance) {
            self.instances.note_ended_by(instance, who);
        }
        if let Some(managed) = self.instances.get(instance) {
            if let State::Lost { .. } = managed.state() {
                self.end_managing(instance, &Cause::Forgotten);
                return self.notify_deleted(id, instance);
            }
        } else if let Some(key) = self.cluster.placement(instance)
            && let Presence::Lost(_) = self.cluster.node(key).presence()
        {
            let before = self.sight().before_end(key, instance);
            self.cluster.release(key, instance);
            self.run_is_over(key, instance, before, &Cause::Forgotten);
            return self.notify_deleted(id, instance);
        } else if self.forget_lost_plain(instance) {
            return self.notify_deleted(id, instance);
        }
        let cause = RefusalCause::NotOnLostNode;
        self.refuse(id, CommandName::Delete.into(), cause, Some(instance));
    }
}
