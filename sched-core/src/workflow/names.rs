//! Names of instances. A name is unique among the living instances of one tenant; it comes from a START's
//! `scheduling.name`, or from what a launcher says of its workloads. Names are remembered in a bounded table
//! (`instance::names`).

use crate::Scheduler;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::report::Workload;
use crate::api::start::StartRequest;
use crate::instance::InstanceInfo;

impl Scheduler {
    /// The living instance of the same tenant that has the name which a START asks for; `None` if the name is free, or
    /// the START names none. The START is refused where there is one.
    pub(crate) fn has_its_name(&self, request: &StartRequest) -> Option<&InstanceId> {
        let name = &*request.scheduling.as_ref()?.name;
        if name.is_empty() {
            return None;
        }
        let named = self.instances.called(&request.tenant, name)?;
        (*named != request.instance && self.exists(named)).then_some(named)
    }

    /// Whether an instance is placed, or waits to be: for room, for nodes that come back, or for the rest of its batch;
    /// or is listed as lost with its node.
    pub(crate) fn exists(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance)
            || self.cluster.placement(instance).is_some()
            || self.recovery.has(instance)
            || self.batches.has(instance)
            || self.journal.is_lost_plain(instance)
    }

    /// Notes the name and the tenant of an instance whose START has been accepted.
    pub(crate) fn note_name(&mut self, request: &StartRequest) {
        let name = request.scheduling.as_ref().map_or("", |it| &*it.name);
        if name.is_empty() && request.tenant.is_none() {
            return;
        }
        let about = InstanceInfo {
            name: name.into(),
            tenant: request.tenant.clone(),
            ..InstanceInfo::default()
        };
        self.instances.note_about(&request.instance, about);
        self.forget_old_names();
    }

    /// Workloads: what the instances on a node are.
    pub(crate) fn workloads(&mut self, id: SessionId, workloads: Vec<Workload>) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        for workload in workloads {
            let instance = &workload.instance;
            // Of its own alone.
            if self.cluster.placement(instance) != Some(key) {
                continue;
            }
            let named = self.instances.called(&workload.tenant, &workload.name);
            let is_taken = named.is_some_and(|other| other != instance && self.exists(other));
            let about = InstanceInfo {
                name: if is_taken { "".into() } else { workload.name },
                tenant: workload.tenant,
                program: workload.program,
                since: self.now.checked_sub(workload.age),
            };
            self.instances.note_about(instance, about);
        }
        self.forget_old_names();
    }

    fn forget_old_names(&mut self) {
        if self.instances.has_old_names() {
            let (cluster, journal) = (&self.cluster, &self.journal);
            self.instances.forget_old_names(|instance| {
                cluster.placement(instance).is_some() || journal.is_lost_plain(instance)
            });
        }
    }
}
