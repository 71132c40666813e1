//! What a frame is: its type and operand, as numbers that survive a round trip even when no one here knows them.

use std::fmt;

/// The type byte of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameType(pub u8);

impl FrameType {
    /// Asks for something to be done.
    pub const COMMAND: Self = Self(0);
    /// Says how a peer is.
    pub const STATUS: Self = Self(1);
    /// Says what went wrong.
    pub const ERROR: Self = Self(2);
    /// Says what happened.
    pub const EVENT: Self = Self(3);

    /// Whether this is one of the four types of the protocol.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.0 <= 3
    }
}

/// A frame's type and operand together, because an operand means nothing without its type.
///
/// Operands below 0x40 are the original's and never renumbered; those from 0x40 on are added by this project and sent
/// only to peers that speak the native encoding, and to launchers only if they announced the capability.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// The type byte.
    pub ty: FrameType,
    /// The operand byte.
    pub operand: u8,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $ty:ident, $operand:literal, $text:literal;)*) => {
        impl Kind {
            $($(#[$doc])* pub const $name: Self = Self { ty: FrameType::$ty, operand: $operand };)*

            /// Every kind this crate has a name for, with that name.
            pub const NAMED: &'static [(Self, &'static str)] = &[$((Self::$name, $text),)*];
        }
    };
}

kinds! {
    /// First frame of a client; has its own layout ([`crate::Connect`]).
    CONNECT = COMMAND, 0, "CONNECT";
    /// Start a workload ([`crate::payload::Start`]).
    START = COMMAND, 1, "START";
    /// What a launcher and its instances use ([`crate::payload::Stats`]).
    STATS = COMMAND, 2, "STATS";
    /// Stop everything on a node and take it out of service.
    EVACUATE = COMMAND, 3, "EVACUATE";
    /// Delete an instance, or with `stop: true` remove it from its node only.
    DELETE = COMMAND, 4, "DELETE";
    /// Give an instance a public address.
    ASSIGN_PUBLIC_IP = COMMAND, 5, "AssignPublicIP";
    /// Take a public address back.
    RELEASE_PUBLIC_IP = COMMAND, 6, "ReleasePublicIP";
    /// A new cluster configuration.
    CONFIGURE = COMMAND, 7, "CONFIGURE";
    /// Attach a volume to an instance.
    ATTACH_VOLUME = COMMAND, 8, "AttachVolume";
    /// Put an evacuated node back into service.
    RESTORE = COMMAND, 9, "Restore";
    /// The concentrators a concentrator should know.
    REFRESH_CNCI = COMMAND, 10, "RefreshCNCI";
    /// Suspend an instance: it keeps its memory and disk and gives its virtual CPUs free (added;
    /// [`crate::payload::Suspend`]).
    SUSPEND = COMMAND, 0x40, "SUSPEND";
    /// Let a suspended instance go on (added; [`crate::payload::Resume`]).
    RESUME = COMMAND, 0x41, "RESUME";
    /// Move an instance to another node (added; [`crate::payload::Migrate`]).
    MIGRATE = COMMAND, 0x42, "MIGRATE";
    /// Change what a running instance asks for (added; [`crate::payload::Update`]).
    UPDATE = COMMAND, 0x43, "UPDATE";
    /// How much of what a node has is offered, and how what runs there is counted (added; to launchers that announced
    /// `capacity`; [`crate::payload::NodeCapacity`]).
    NODE_CAPACITY = COMMAND, 0x44, "NodeCapacity";
    /// Ask for what a workload wrote (added; from readers, and to launchers that announced `output`; answered by
    /// [`Kind::OUTPUT`]; [`crate::payload::ReadOutput`]).
    READ_OUTPUT = COMMAND, 0x45, "ReadOutput";
    /// Ask for a chunk of an image (added; from launchers; answered by [`Kind::IMAGE`]; [`crate::payload::ReadImage`]).
    READ_IMAGE = COMMAND, 0x46, "ReadImage";
    /// A chunk of an image that is pushed, or the question how much of it is there (added; answered by [`Kind::IMAGE`];
    /// [`crate::payload::ImageWrite`]).
    WRITE_IMAGE = COMMAND, 0x47, "WriteImage";
    /// Delete an image (added; answered by [`Kind::IMAGE`]; [`crate::payload::DeleteImage`]).
    DELETE_IMAGE = COMMAND, 0x48, "DeleteImage";
    /// Ask which images there are (added; answered by [`Kind::IMAGE_LIST`]; [`crate::payload::ListImages`]).
    LIST_IMAGES = COMMAND, 0x49, "ListImages";
    /// Ask for the cluster configuration, or an earlier version of it (added; answered by [`Kind::CONFIGURATION`];
    /// [`crate::payload::ReadConfiguration`]).
    READ_CONFIGURATION = COMMAND, 0x4c, "ReadConfiguration";
    /// A new cluster configuration, or the question what would come of it (added; answered by [`Kind::CONFIGURATION`];
    /// [`crate::payload::ConfigurationWrite`]).
    WRITE_CONFIGURATION = COMMAND, 0x4d, "WriteConfiguration";
    /// Start an array, or run once more what did not succeed of one (added; answered by [`Kind::ARRAY_STATE`];
    /// [`crate::payload::ArrayOrder`]).
    START_ARRAY = COMMAND, 0x4e, "StartArray";
    /// Delete what an instance that is over has left on its node (added; from controllers and operators, and to launchers that
    /// announced `results`; answered by [`Kind::OUTPUT`]; [`crate::payload::DeleteOutput`]).
    DELETE_OUTPUT = COMMAND, 0x4f, "DeleteOutput";
    /// Ask for nodes and instances as the scheduler sees them (added; answered by [`Kind::QUERY_RESULT`]).
    QUERY = COMMAND, 0x50, "QUERY";
    /// Say which events to be sent from now on (added; operators only).
    WATCH = COMMAND, 0x51, "WATCH";
    /// Read all files again (added; from controllers and operators; answered by [`Kind::RELOADED`];
    /// [`crate::payload::Reload`]).
    RELOAD = COMMAND, 0x52, "RELOAD";
    /// Have another of several schedulers lead (added; from controllers and operators; answered by
    /// [`Kind::LEADERSHIP_TRANSFER`]; [`crate::payload::TransferLeadership`]).
    TRANSFER_LEADERSHIP = COMMAND, 0x53, "TransferLeadership";

    /// Answer to CONNECT; has its own layout ([`crate::Connected`]).
    CONNECTED = STATUS, 0, "CONNECTED";
    /// The node takes work ([`crate::payload::Ready`]).
    READY = STATUS, 1, "READY";
    /// The node has no room; no payload.
    FULL = STATUS, 2, "FULL";
    /// The node is going away; no payload.
    OFFLINE = STATUS, 3, "OFFLINE";
    /// The node is evacuated; no payload.
    MAINTENANCE = STATUS, 4, "MAINTENANCE";
    /// A STATS with a `lease_seq` has come (added; to launchers that announced `lease`;
    /// [`crate::payload::LeaseRenewed`]).
    LEASE_RENEWED = STATUS, 0x40, "LeaseRenewed";
    /// Ends that a STATS told are on record (added; to launchers that number them;
    /// [`crate::payload::EndsRecorded`]).
    ENDS_RECORDED = STATUS, 0x41, "EndsRecorded";
    /// A STATS has come (added; to launchers that number them; [`crate::payload::ReportReceived`]).
    REPORT_RECEIVED = STATUS, 0x42, "ReportReceived";

    /// The frame's type is none of the four.
    INVALID_FRAME_TYPE = ERROR, 0, "InvalidFrameType";
    /// A workload could not be started.
    START_FAILURE = ERROR, 1, "StartFailure";
    /// The connection attempt failed; the client may try again.
    CONNECTION_FAILURE = ERROR, 2, "ConnectionFailure";
    /// An instance could not be deleted.
    DELETE_FAILURE = ERROR, 3, "DeleteFailure";
    /// The connection is refused for good.
    CONNECTION_ABORTED = ERROR, 4, "ConnectionAborted";
    /// A CONFIGURE was not understood; carries it back.
    INVALID_CONFIGURATION = ERROR, 5, "InvalidConfiguration";
    /// A volume could not be attached.
    ATTACH_VOLUME_FAILURE = ERROR, 6, "AttachVolumeFailure";
    /// A public address could not be assigned.
    ASSIGN_PUBLIC_IP_FAILURE = ERROR, 7, "AssignPublicIPFailure";
    /// A public address could not be taken back.
    UNASSIGN_PUBLIC_IP_FAILURE = ERROR, 8, "UnassignPublicIPFailure";
    /// A frame was refused because of who sent it or what it says, and nothing more specific fits (added).
    COMMAND_REFUSED = ERROR, 0x40, "CommandRefused";
    /// A SUSPEND, RESUME, MIGRATE, UPDATE or drain was taken in and then failed (added; from launchers, and to who asked;
    /// [`crate::payload::CommandFailure`]).
    COMMAND_FAILURE = ERROR, 0x41, "CommandFailure";

    /// A tenant has its first instance on a node.
    TENANT_ADDED = EVENT, 0, "TenantAdded";
    /// A tenant has no instance left on a node.
    TENANT_REMOVED = EVENT, 1, "TenantRemoved";
    /// An instance is gone for good.
    INSTANCE_DELETED = EVENT, 2, "InstanceDeleted";
    /// A concentrator instance is up.
    CONCENTRATOR_INSTANCE_ADDED = EVENT, 3, "ConcentratorInstanceAdded";
    /// A public address was assigned.
    PUBLIC_IP_ASSIGNED = EVENT, 4, "PublicIPAssigned";
    /// A public address was taken back.
    PUBLIC_IP_UNASSIGNED = EVENT, 5, "PublicIPUnassigned";
    /// Trace paths of frames.
    TRACE_REPORT = EVENT, 6, "TraceReport";
    /// A launcher connected.
    NODE_CONNECTED = EVENT, 7, "NodeConnected";
    /// A launcher is gone.
    NODE_DISCONNECTED = EVENT, 8, "NodeDisconnected";
    /// An instance no longer runs on its node.
    INSTANCE_STOPPED = EVENT, 9, "InstanceStopped";
    /// A controller's role: master or backup (added).
    CONTROLLER_STATUS = EVENT, 0x40, "ControllerStatus";
    /// What would become of a START that asked only that (added; answer to `dry_run`, to the asker alone).
    PLACEMENT_DECISION = EVENT, 0x41, "PlacementDecision";
    /// A START waits for room (added; to native controllers; [`crate::payload::InstanceQueued`]).
    INSTANCE_QUEUED = EVENT, 0x42, "InstanceQueued";
    /// A page of all nodes, arrays and instances, for a controller that becomes master (added; [`crate::payload::Snapshot`]).
    SNAPSHOT = EVENT, 0x43, "Snapshot";
    /// A START was given to a node (added; to those who watch placements).
    INSTANCE_PLACED = EVENT, 0x44, "InstancePlaced";
    /// The state of an instance has changed (added; from launchers, and to those who watch instances;
    /// [`crate::payload::InstanceStateEvent`]).
    INSTANCE_STATE = EVENT, 0x45, "InstanceState";
    /// How far the drain of a node is (added; [`crate::payload::DrainProgress`]).
    DRAIN_PROGRESS = EVENT, 0x46, "DrainProgress";
    /// A node is short of memory, or something has happened about that (added; to those who watch nodes;
    /// [`crate::payload::NodePressure`]).
    NODE_PRESSURE = EVENT, 0x48, "NodePressure";
    /// The ended runs that a launcher still has something of (added; from launchers to schedulers that record ends;
    /// [`crate::payload::KeptRuns`]).
    KEPT_RUNS = EVENT, 0x47, "KeptRuns";
    /// What the instances on a node are (added; from launchers to schedulers that record ends;
    /// [`crate::payload::Workloads`]).
    WORKLOADS = EVENT, 0x49, "Workloads";
    /// A chunk of what a workload wrote, or why there is none (added; answer to [`Kind::READ_OUTPUT`], to the asker alone;
    /// [`crate::payload::OutputChunk`]).
    OUTPUT = EVENT, 0x4a, "Output";
    /// A chunk of an image, or what became of a command about one (added; to the asker alone;
    /// [`crate::payload::ImageChunk`]).
    IMAGE = EVENT, 0x4b, "Image";
    /// Which images there are (added; answer to [`Kind::LIST_IMAGES`], to the asker alone;
    /// [`crate::payload::ImageList`]).
    IMAGE_LIST = EVENT, 0x4c, "ImageList";
    /// The cluster configuration, or what became of a new one (added; to the asker alone;
    /// [`crate::payload::ConfigurationAnswer`]).
    CONFIGURATION = EVENT, 0x4e, "Configuration";
    /// How far an array is: answer to [`Kind::START_ARRAY`], and to those who watch instances when it begins and has ended
    /// (added; [`crate::payload::ArrayView`]).
    ARRAY_STATE = EVENT, 0x4f, "ArrayState";
    /// Answer to [`Kind::QUERY`], to the asker alone (added).
    QUERY_RESULT = EVENT, 0x50, "QueryResult";
    /// What came of reading all files again (added; answer to [`Kind::RELOAD`], and to native controllers and those who
    /// watch the scheduler; [`crate::payload::Reloaded`]).
    RELOADED = EVENT, 0x52, "Reloaded";
    /// Which of several schedulers leads next, or why this one goes on (added; answer to [`Kind::TRANSFER_LEADERSHIP`], to
    /// the asker alone; [`crate::payload::LeadershipTransfer`]).
    LEADERSHIP_TRANSFER = EVENT, 0x53, "LeadershipTransfer";
}

impl Kind {
    /// The kind with these bytes.
    #[must_use]
    pub const fn new(ty: u8, operand: u8) -> Self {
        Self {
            ty: FrameType(ty),
            operand,
        }
    }

    /// The name, where this crate has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED
            .iter()
            .find(|(kind, _)| *kind == self)
            .map(|(_, name)| *name)
    }

    /// Whether this project added the operand (0x40 and above): never sent in the original's encoding.
    #[must_use]
    pub const fn is_added(self) -> bool {
        self.operand >= 0x40
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::COMMAND => f.write_str("COMMAND"),
            Self::STATUS => f.write_str("STATUS"),
            Self::ERROR => f.write_str("ERROR"),
            Self::EVENT => f.write_str("EVENT"),
            Self(other) => write!(f, "{other:#04x}"),
        }
    }
}

impl fmt::Debug for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Kind {
    /// The name with its type (`COMMAND START`), or the operand in hex (`EVENT 0x7f`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} {name}", self.ty),
            None => write!(f, "{} {:#04x}", self.ty, self.operand),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn no_two_kinds_share_a_number() {
        for (i, (kind, name)) in Kind::NAMED.iter().enumerate() {
            assert!(
                Kind::NAMED[i + 1..].iter().all(|(other, _)| other != kind),
                "{name} is there twice"
            );
        }
    }

    #[test]
    fn unknown_kinds_print_in_hex() {
        assert_eq!(Kind::new(0, 1).to_string(), "COMMAND START");
        assert_eq!(Kind::new(3, 0x7f).to_string(), "EVENT 0x7f");
        assert_eq!(Kind::new(9, 3).to_string(), "0x09 0x03");
    }
}
