//! Names of instances. A name is unique among the living instances of one tenant; it comes from a START's
//! `scheduling.name`, or from what a launcher says of its workloads. Names are remembered in a bounded table
//! (`instance::names`).

use crate::Scheduler;
use crate::api::ids::SessionId;
use crate::api::report::Workload;
use crate::api::start::StartRequest;
use crate::instance::InstanceInfo;

impl Scheduler {
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
            let is_taken =
                named.is_some_and(|other| other != instance && self.sight().exists(other));
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
