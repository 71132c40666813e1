//! What peers of the world send, as the core is told of it.

use bytes::Bytes;
use ciao_scheduler::server::sim_support;
use proto_frames::payload::array::Indexes;
use proto_frames::{Frame, Kind, Uuid};
use sched_core::{
    ArrayCommand, ArrayStart, Command, CommandName, Input, InstanceId, Malformed, Parcel, Report,
    ReportName, RestoredStart, Sent, SessionId, StartRequest, Target, Values,
};

use crate::support::world::{World, id};

/// Something that a peer sends.
#[derive(Debug)]
pub(crate) enum Sending {
    Command(Command),
    Report(Report),
    /// A command or report of this name that cannot be read.
    Malformed(Sent, Malformed),
    /// A frame of a kind that is neither.
    Unknown(Kind),
}

impl From<Command> for Sending {
    fn from(command: Command) -> Self {
        Self::Command(command)
    }
}

impl From<Report> for Sending {
    fn from(report: Report) -> Self {
        Self::Report(report)
    }
}

impl Sending {
    pub(crate) fn malformed_command(name: CommandName, malformed: Malformed) -> Self {
        Self::Malformed(name.into(), malformed)
    }

    pub(crate) fn malformed_report(name: ReportName, malformed: Malformed) -> Self {
        Self::Malformed(name.into(), malformed)
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Command(command) => sim_support::kind_of(command.name().into()),
            Self::Report(report) => sim_support::kind_of(report.name().into()),
            Self::Malformed(sent, _) => sim_support::kind_of(*sent),
            Self::Unknown(kind) => *kind,
        }
    }

    fn input(self, session: SessionId, parcel: Parcel) -> Input {
        match self {
            Self::Command(command) => Input::Command {
                session,
                command,
                parcel,
            },
            Self::Report(report) => Input::Report {
                session,
                report,
                parcel,
            },
            Self::Malformed(sent, malformed) => Input::Malformed {
                session,
                sent,
                malformed,
                parcel,
            },
            Self::Unknown(_) => sim_support::input(session, sim_support::frame_of(&parcel)),
        }
    }
}

impl World {
    /// A peer sends something, with its kind as the payload.
    pub(crate) fn say(&mut self, session: SessionId, what: impl Into<Sending>) {
        let what = what.into();
        let payload = Bytes::from(what.kind().to_string());
        self.say_with(session, what, payload);
    }

    /// A START with this payload.
    pub(crate) fn start_with(&mut self, peer: SessionId, request: StartRequest, payload: Bytes) {
        self.note_request(&request);
        self.say_with(peer, Command::Start(request.into()), payload);
    }

    /// An array of so many elements, at most so many of them at a time.
    pub(crate) fn start_array(
        &mut self,
        peer: SessionId,
        request: StartRequest,
        (count, most): (u32, Option<u32>),
    ) {
        self.note_request(&request);
        let InstanceId::Uuid(array) = request.instance else {
            panic!("an array has a UUID");
        };
        let origin = self.uuid_of(peer);
        let start = RestoredStart {
            request: request.into(),
            parcel: parcel(Kind::START, origin, Bytes::from_static(b"an array")),
        };
        let new = ArrayStart {
            id: array,
            indexes: Indexes::first(count),
            running_max: most,
            start: Box::new(start),
            values: Values::default(),
        };
        self.say(peer, Command::Array(ArrayCommand::Start(Box::new(new))));
    }

    pub(crate) fn delete(&mut self, controller: SessionId, name: &str, node: SessionId) {
        let node = self.uuid_of(node);
        self.delete_at(controller, name, node);
    }

    pub(crate) fn delete_at(&mut self, controller: SessionId, name: &str, node: Uuid) {
        let target = Target {
            instance: id(name),
            node: node.to_string().into(),
        };
        self.say(controller, Command::Delete(target));
    }

    /// A peer sends something with this payload.
    pub(crate) fn say_with(
        &mut self,
        session: SessionId,
        what: impl Into<Sending>,
        payload: Bytes,
    ) {
        let what = what.into();
        let parcel = parcel(what.kind(), self.uuid_of(session), payload);
        self.handle(what.input(session, parcel));
    }
}

/// A frame as the core carries it.
pub(crate) fn parcel(kind: Kind, origin: Uuid, payload: Bytes) -> Parcel {
    sim_support::parcel(Frame::new(kind, origin, payload))
}

/// The kind of a frame that the core carries.
pub(crate) fn kind_in(parcel: &Parcel) -> Kind {
    sim_support::frame_of(parcel).kind
}

/// The report of a launcher that an instance has ended: InstanceDeleted or InstanceStopped.
pub(crate) fn gone(kind: Kind, instance: InstanceId) -> Report {
    match kind {
        Kind::INSTANCE_DELETED => Report::InstanceDeleted(instance),
        Kind::INSTANCE_STOPPED => Report::InstanceStopped(instance),
        other => panic!("{other} tells no end"),
    }
}
