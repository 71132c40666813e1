//! ControllerStatus: a controller's role. CommandRefused: why a command was not carried out (both added by this
//! project).

use crate::{record, words};

use crate::query::ControllerRole;

record! {
    /// `controller_status: {status: master|backup}`.
    pub struct ControllerStatus {
        /// What the controller is from now on.
        status: ControllerRole as "status",
    }
}

record! {
    /// `command_refused: {type, operand, name, reason, detail, instance_uuid}`.
    pub struct CommandRefused {
        /// Type byte of the refused frame.
        ty: u8 as "type",
        /// Operand byte of the refused frame.
        operand: u8 as "operand",
        /// The refused frame's kind, for people: `COMMAND DELETE`.
        name: String as "name",
        /// The reason code.
        reason: RefusalReason as "reason",
        /// More about it, for people.
        detail: String as "detail",
        /// The instance the frame was about, where it was about one.
        instance_uuid: Option<String> as "instance_uuid" unless empty,
    }
}

words! {
    /// Why a frame was refused.
    pub enum RefusalReason {
        /// Its sender is not the master.
        NotMaster = "not_master",
        /// Its sender's role may not send it.
        NotPermitted = "not_permitted",
        /// The node it is for is not connected.
        NoSuchNode = "no_such_node",
        /// Its payload could not be read.
        InvalidPayload = "invalid_payload",
        /// It asks for something that is not done here.
        Unsupported = "unsupported",
        /// Part of it does not count; the rest was taken in.
        LeftOut = "left_out",
        /// Its sender has as many under way as it may.
        TooMany = "too_many",
        /// Its payload is longer than peers of this encoding take.
        TooLong = "too_long",
        /// What it changes would have to survive a restart, and the scheduler cannot record it on disk.
        NotRecorded = "not_recorded",
    }
}
