//! What controllers ask for beyond STARTs and DELETEs: how instances live, where, and which machines are in service.

use proto_frames::Encoding;
use proto_frames::Kind;
use proto_frames::payload::{
    Evacuate, EvacuateMode, Migrate, Payload, Restore, RestoreMode, Resume, Scheduling, Suspend,
    Update,
};

use crate::names;
use crate::world::World;

impl World {
    /// Whether a controller knows the commands that original ones do not.
    pub(crate) fn is_native(&self, number: usize) -> bool {
        self.controllers[number].encoding == Encoding::Native
    }

    pub(crate) fn suspend(&mut self, number: usize, instance: u32) {
        let suspend = Suspend {
            instance_uuid: names::instance_uuid(instance),
            ..Suspend::default()
        };
        self.note(format_args!("controller {number} suspends {instance}"));
        self.command(number, Kind::SUSPEND, suspend.encode());
    }

    pub(crate) fn resume(&mut self, number: usize, instance: u32) {
        let resume = Resume {
            instance_uuid: names::instance_uuid(instance),
            ..Resume::default()
        };
        self.note(format_args!("controller {number} resumes {instance}"));
        self.command(number, Kind::RESUME, resume.encode());
    }

    /// Has an instance moved: to a machine, or wherever it fits.
    pub(crate) fn migrate(&mut self, number: usize, instance: u32, migrate: Migrate) {
        if !migrate.target_node_uuid.is_empty()
            && let Some(sent) = self.starts.get_mut(&instance)
        {
            sent.is_pinned = true;
        }
        let to = names::machine_of(&migrate.target_node_uuid);
        self.note(format_args!(
            "controller {number} moves {instance} to {to:?}"
        ));
        let migrate = Migrate {
            instance_uuid: names::instance_uuid(instance),
            ..migrate
        };
        self.command(number, Kind::MIGRATE, migrate.encode());
    }

    /// Changes what an instance asks for.
    pub(crate) fn update(&mut self, number: usize, instance: u32, update: Update) {
        self.note(format_args!(
            "controller {number} updates {instance}: {update:?}"
        ));
        let update = Update {
            instance_uuid: names::instance_uuid(instance),
            ..update
        };
        self.command(number, Kind::UPDATE, update.encode());
    }

    /// Takes a machine out of service in one of the ways that original controllers do not know, or undoes that.
    pub(crate) fn evacuate_as(&mut self, number: usize, machine: usize, evacuate: Evacuate) {
        let mode: &EvacuateMode = &evacuate.mode;
        self.note(format_args!(
            "controller {number} has {machine} evacuated: {}",
            mode.as_str()
        ));
        let evacuate = Evacuate {
            workload_agent_uuid: names::machine_uuid(machine).to_string(),
            ..evacuate
        };
        self.command(number, Kind::EVACUATE, evacuate.encode());
    }

    pub(crate) fn uncordon(&mut self, number: usize, machine: usize) {
        let restore = Restore {
            workload_agent_uuid: names::machine_uuid(machine).to_string(),
            mode: RestoreMode::Uncordon,
        };
        self.note(format_args!("controller {number} uncordons {machine}"));
        self.command(number, Kind::RESTORE, restore.encode());
    }

    /// Whether an instance says nothing of where it is to run, so that it may wherever there is room.
    pub(crate) fn is_without_scheduling(&self, instance: u32) -> bool {
        self.starts.get(&instance).is_some_and(|sent| {
            let scheduling = sent.start.scheduling.as_ref();
            let has_any = |it: &Scheduling| {
                // Not every launcher takes leases.
                !it.require.is_empty()
                    || it.group.is_some()
                    || it.restarts_on_node_loss()
                    || !it.after.is_empty()
            };
            !sent.is_pinned && !scheduling.is_some_and(has_any)
        })
    }
}
