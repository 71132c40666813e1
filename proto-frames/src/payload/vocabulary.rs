//! The types of the vocabulary that are payloads: the key under which each stands, and how long it may be.

use sched_model::{
    AssignPublicIpFailure, AttachVolumeFailure, CommandFailure, CommandRefused, ControllerStatus,
    Delete, DeleteFailure, DeleteImage, DeleteOutput, DrainProgress, EndsRecorded, Evacuate,
    ImageList, InstanceDeleted, InstancePlaced, InstanceQueued, InstanceStateEvent,
    InstanceStopped, LeadershipTransfer, LeaseRenewed, ListImages, Migrate, NodeConnected,
    NodeDisconnected, NodePressure, PlacementDecision, Query, QueryResult, ReadImage, ReadOutput,
    Reload, Reloaded, ReportReceived, Restore, Resume, Snapshot, StartFailure, Suspend,
    TransferLeadership, UnassignPublicIpFailure, Update,
};

use super::document::payload;
use super::guard::{LARGE, SMALL};

payload!(StartFailure, SMALL);
payload!(Delete under "delete", SMALL);
payload!(DeleteFailure, SMALL);
payload!(CommandFailure under "command_failure", SMALL);
payload!(AttachVolumeFailure, SMALL);
payload!(AssignPublicIpFailure, SMALL);
payload!(UnassignPublicIpFailure, SMALL);
payload!(EndsRecorded under "ends_recorded", SMALL);
payload!(LeaseRenewed under "lease_renewed", SMALL);
payload!(ReportReceived under "report_received", SMALL);
payload!(NodeConnected under "node_connected", SMALL);
payload!(NodeDisconnected under "node_disconnected", SMALL);
payload!(NodePressure under "node_pressure", SMALL);
payload!(InstanceDeleted under "instance_deleted", SMALL);
payload!(InstanceStopped under "instance_stopped", SMALL);
payload!(InstancePlaced under "instance_placed", SMALL);
payload!(InstanceQueued under "instance_queued", SMALL);
payload!(InstanceStateEvent under "instance_state", SMALL);
payload!(PlacementDecision under "placement_decision", LARGE);
payload!(DrainProgress under "drain_progress", SMALL);
payload!(Suspend under "suspend", SMALL);
payload!(Resume under "resume", SMALL);
payload!(Migrate under "migrate", SMALL);
payload!(Update under "update", SMALL);
payload!(Evacuate under "evacuate", SMALL);
payload!(Restore under "restore", SMALL);
payload!(ControllerStatus under "controller_status", SMALL);
payload!(CommandRefused under "command_refused", SMALL);
payload!(Query under "query", SMALL);
payload!(ReadOutput under "read_output", SMALL);
payload!(DeleteOutput under "delete_output", SMALL);
payload!(ReadImage under "read_image", SMALL);
payload!(DeleteImage under "delete_image", SMALL);
payload!(ListImages under "list_images", SMALL);
payload!(ImageList under "image_list", LARGE);
payload!(QueryResult under "query_result", LARGE);
payload!(Reload under "reload", SMALL);
payload!(Reloaded under "reloaded", SMALL);
payload!(TransferLeadership under "transfer_leadership", SMALL);
payload!(LeadershipTransfer under "leadership_transfer", SMALL);
payload!(Snapshot under "snapshot", LARGE);
