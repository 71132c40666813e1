//! What moving, draining and updating need of a world: launchers that can do more, instances that run and are looked
//! after, and what peers were told of it all.

use proto_frames::Kind;
use proto_frames::payload::{CommandFailure, Migrate, PhaseName, Update};
use sched_core::{
    Capabilities, Command, InstanceReport, LauncherCommand, Message, NodeExtras, PlacedStart,
    SessionId, StartRequest,
};

use crate::support::world::{World, running};

/// What a launcher says of itself that can do these things.
pub(crate) fn able(capabilities: Capabilities) -> NodeExtras {
    NodeExtras {
        capabilities,
        ..NodeExtras::default()
    }
}

impl World {
    /// Starts what may be moved on a node, which lists it among what it has.
    pub(crate) fn run_movable(
        &mut self,
        controller: SessionId,
        node: SessionId,
        start: StartRequest,
        listed: &[&str],
    ) {
        let placed = self.place_as(controller, start);
        assert_eq!(placed, Some(node));
        self.list(node, listed);
        self.look_away();
    }

    /// MIGRATE, to a node or wherever there is room.
    pub(crate) fn migrate(&mut self, asker: SessionId, name: &str, target: Option<SessionId>) {
        let target = target.map(|target| self.uuid_of(target).to_string());
        let migrate = Migrate {
            instance_uuid: name.to_owned(),
            target_node_uuid: target.unwrap_or_default(),
            ..Migrate::default()
        };
        self.migrate_as(asker, migrate);
    }

    /// This MIGRATE.
    pub(crate) fn migrate_as(&mut self, asker: SessionId, migrate: Migrate) {
        let command = Command::Migrate(Box::new(migrate));
        self.say(asker, command);
    }

    /// This UPDATE.
    pub(crate) fn update_as(&mut self, asker: SessionId, update: Update) {
        let command = Command::Update(Box::new(update));
        self.say(asker, command);
    }

    /// A node says that these instances run on it.
    pub(crate) fn list(&mut self, node: SessionId, names: &[&str]) {
        let listed: Vec<InstanceReport> = names.iter().map(|name| running(name, 0)).collect();
        self.stats(node, listed);
    }

    /// A node says that an instance has stopped.
    pub(crate) fn has_stopped(&mut self, node: SessionId, name: &str) {
        self.gone(node, Kind::INSTANCE_STOPPED, name);
    }

    /// What a launcher was ordered to do since the test last looked.
    pub(crate) fn ordered(&mut self, node: SessionId) -> Vec<LauncherCommand> {
        self.told_of(node, |message| match message {
            Message::LauncherCommand(order) => Some(*order),
            _ => None,
        })
    }

    /// The instances that a node was ordered to stop since the test last looked.
    pub(crate) fn stops(&mut self, node: SessionId) -> Vec<String> {
        let stop = |order| match order {
            LauncherCommand::Stop(delete) => Some(delete.instance_uuid),
            _ => None,
        };
        self.ordered(node).into_iter().filter_map(stop).collect()
    }

    /// The one START that a node was given since the test last looked.
    pub(crate) fn given(&mut self, node: SessionId) -> PlacedStart {
        match self.told_once(node) {
            Message::Start(start) => *start,
            other => panic!("{other:?} instead of a START"),
        }
    }

    /// The one CommandFailure that a peer was told since the test last looked; other news may be among it.
    pub(crate) fn failed_command(&mut self, peer: SessionId) -> CommandFailure {
        let told = self.told(peer);
        let failure = |message: &Message| match message {
            Message::CommandFailure(failure) => Some(CommandFailure::clone(failure)),
            _ => None,
        };
        let mut failures: Vec<_> = told.iter().filter_map(failure).collect();
        assert_eq!(failures.len(), 1, "{told:#?}");
        failures.remove(0)
    }

    /// The states that a peer was told an instance has come to since the test last looked.
    pub(crate) fn states_of(&mut self, peer: SessionId, name: &str) -> Vec<PhaseName> {
        self.told_of(peer, |message| match message {
            Message::InstanceState(event) if event.instance_uuid == name => {
                Some(event.payload.state)
            }
            _ => None,
        })
    }
}
