//! A core that a benchmark drives: its sessions and what they send. What it wants done is dropped.

use std::time::Instant;

use bytes::Bytes;
use proto_frames::payload::scheduling::Scheduling;
use proto_frames::{Role, Uuid};
use sched_core::{
    ClusterConfiguration, Command, Config, Hello, Input, InstanceId, Parcel, Report, Resources,
    Scheduler, SessionId, StartRequest, Tag,
};

/// The only controller.
pub(crate) const CONTROLLER: SessionId = SessionId(1);

/// The session of the first node; the others' follow.
const FIRST_NODE: u64 = 2;

/// A core and its clock.
pub(crate) struct Driven {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Instant,
}

impl Driven {
    /// One with a controller and no nodes.
    pub(crate) fn new(config: Config, configuration: ClusterConfiguration) -> Self {
        let now = Instant::now();
        let scheduler = Scheduler::new(config, configuration, now);
        let mut driven = Self { scheduler, now };
        driven.connect(CONTROLLER, Role::CONTROLLER);
        driven
    }

    pub(crate) fn connect(&mut self, session: SessionId, role: Role) {
        let hello = Hello::native(uuid(session), role);
        self.handle(Input::Connect { session, hello });
    }

    pub(crate) fn report(&mut self, session: SessionId, report: Report) {
        self.handle(Input::Report {
            session,
            report,
            parcel: parcel(session, Bytes::new()),
        });
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        while self.scheduler.poll_action().is_some() {}
    }
}

/// The session of a node.
pub(crate) fn session(node: usize) -> SessionId {
    SessionId(FIRST_NODE + node as u64)
}

/// The UUID of the peer of a session.
pub(crate) fn uuid(session: SessionId) -> Uuid {
    Uuid::from_u128(0x1000_0000 + u128::from(session.0))
}

/// The START with this number from the controller.
pub(crate) fn start(
    number: u64,
    asked: Resources,
    scheduling: Option<Box<Scheduling>>,
    payload: Bytes,
) -> Input {
    // Whole, and not over one that asks for nothing: what is made only to be dropped would be counted with the core.
    let request = StartRequest {
        volumes: Box::default(),
        instance: InstanceId::Uuid(Uuid::from_u128(u128::from(number))),
        asked,
        network_node: false,
        node_id: None,
        hostname: None,
        restart: false,
        tenant: None,
        image: None,
        fetches_image: false,
        more_images: Box::default(),
        vm_type: None,
        scheduling,
        content: None,
    };
    Input::Command {
        session: CONTROLLER,
        command: Command::Start(request.into()),
        parcel: parcel(CONTROLLER, payload),
    }
}

/// What the core carries of something that a peer sent.
pub(crate) fn parcel(session: SessionId, payload: Bytes) -> Parcel {
    Parcel {
        tag: Tag(0),
        native_limit: u32::MAX,
        origin: uuid(session),
        trace: None,
        payload,
    }
}
