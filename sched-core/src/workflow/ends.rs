//! Launchers report ends: of an instance, or of a START that they could not carry out. The ledger and the instance follow,
//! and the report is forwarded unless the instance goes on elsewhere.

use sched_model::Topic;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::parcel::Parcel;
use crate::api::report::Report;
use crate::api::sent::CommandName;
use crate::cluster::ledger::Ended;
use crate::workflow::managed_end::EndAudience;

impl Scheduler {
    /// InstanceDeleted, InstanceStopped, or an instance that was cut off: the ledger and the instance follow, and the
    /// report is forwarded unless the instance goes on elsewhere.
    fn instance_gone(
        &mut self,
        (id, node): (SessionId, Option<NodeKey>),
        parcel: Parcel,
        instance: &InstanceId,
        (how, why): (Ended, &Cause),
    ) {
        let mut heard = EndAudience::All;
        if let Some(key) = node {
            let before = self.sight().before_end(key, instance);
            // What it left was deleted: its run is over since long, and keeps the outcome that it had. A launcher that is to
            // leave what a restart needs says that it stopped it. Of one that was retried the tries before the last have no
            // record of their own.
            let uuid = self.cluster.uuid(key);
            let is_of_ended = !before.is_known()
                && !self.instances.contains(instance)
                && (self.instances.has_ended_elsewhere(instance, uuid)
                    || how == Ended::Gone
                        && (self.instances.last_end_on(instance, uuid).is_some()
                            || self.instances.was_retried(instance)));
            heard = self.ended(key, instance, how);
            if heard == EndAudience::All && !is_of_ended {
                self.run_is_over(key, instance, before, why);
            }
        }
        match heard {
            EndAudience::All => {}
            EndAudience::Originals => return self.announce_stop(id, parcel, instance),
            EndAudience::NoOne => return,
        }
        self.answer(CommandName::Delete, instance, Topic::Instances, &parcel);
        self.broadcast(Topic::Instances, id, parcel);
    }

    /// A node reports the end of an instance, or that it could not start it. Any other report does nothing.
    pub(crate) fn take_end(
        &mut self,
        from: (SessionId, Option<NodeKey>),
        parcel: Parcel,
        told: Report,
    ) {
        let (instance, how, why) = match told {
            Report::InstanceDeleted(instance) => (instance, Ended::Gone, Cause::Deleted),
            Report::InstanceStopped(instance) => {
                let cause = self.cluster.cause_of_stop(from.1, &instance);
                (instance, Ended::Gone, cause)
            }
            Report::InstanceExited(instance) => (instance, Ended::ByItself, Cause::Ended),
            Report::InstanceCutOff(instance) => (instance, Ended::CutOff, Cause::CutOff),
            Report::StartFailed {
                instance,
                reason,
                detail,
                ..
            } => return self.start_failed(from.0, parcel, instance, &reason, &detail),
            _ => return,
        };
        self.instance_gone(from, parcel, &instance, (how, &why));
    }
}
