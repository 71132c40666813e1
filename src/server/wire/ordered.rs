//! Commands that came as values rather than as frames, by way of another door: as the core takes them, with the parcel
//! that a launcher is sent. They are checked as those of peers are, because it is the same reading.

use bytes::Bytes;
use proto_frames::payload::{
    Delete, Evacuate, Migrate, Payload, PayloadError, Restore, Resume, Start, Suspend, Update,
};
use proto_frames::{Frame, Uuid};
use serde_json::Value;

use super::inputs::input;
use super::kinds::kind_of;
use sched_core::{CommandName, Input, Malformed, SessionId};

/// A command as the HTTP API has it after it has read and checked a request's body. There is one variant for each
/// command that the API offers; the others are for SSNTP alone.
#[derive(Debug, Clone)]
pub(in crate::server) enum Ordered {
    /// START, as the block YAML that its launcher will read: what is carried is what the API's client wrote, written
    /// again.
    Start(Bytes),
    /// StartArray, as its frame has it.
    StartArray(Bytes),
    /// DELETE.
    Delete(Delete),
    /// SUSPEND.
    Suspend(Suspend),
    /// RESUME.
    Resume(Resume),
    /// MIGRATE.
    Migrate(Migrate),
    /// UPDATE.
    Update(Update),
    /// EVACUATE.
    Evacuate(Evacuate),
    /// Restore.
    Restore(Restore),
}

impl Ordered {
    /// Its name in the core. By it the core decides whether the session's role permits the command.
    pub(in crate::server) fn name(&self) -> CommandName {
        match self {
            Self::Start(_) => CommandName::Start,
            Self::StartArray(_) => CommandName::StartArray,
            Self::Delete(_) => CommandName::Delete,
            Self::Suspend(_) => CommandName::Suspend,
            Self::Resume(_) => CommandName::Resume,
            Self::Migrate(_) => CommandName::Migrate,
            Self::Update(_) => CommandName::Update,
            Self::Evacuate(_) => CommandName::Evacuate,
            Self::Restore(_) => CommandName::Restore,
        }
    }

    /// The bytes that a launcher is sent: what a peer would have sent for the same command.
    fn payload(&self) -> Bytes {
        match self {
            Self::Start(payload) | Self::StartArray(payload) => payload.clone(),
            Self::Delete(it) => it.encode(),
            Self::Suspend(it) => it.encode(),
            Self::Resume(it) => it.encode(),
            Self::Migrate(it) => it.encode(),
            Self::Update(it) => it.encode(),
            Self::Evacuate(it) => it.encode(),
            Self::Restore(it) => it.encode(),
        }
    }
}

/// What the core is told of a command: encoded as a frame and read again as one from a peer. That costs an encoding,
/// and keeps the checks in one place. `origin` is the UUID in whose name the command is sent.
///
/// # Errors
/// What is wrong with it: it is not for the core then, and the HTTP API answers with a problem that names the key.
pub(in crate::server) fn ordered(
    session: SessionId,
    origin: Uuid,
    ordered: &Ordered,
) -> Result<Input, Malformed> {
    let frame = Frame::new(kind_of(ordered.name().into()), origin, ordered.payload());
    match input(session, frame) {
        Input::Malformed { malformed, .. } => Err(malformed),
        input => Ok(input),
    }
}

/// A START that came as JSON, as the block YAML that its launcher reads. Unknown keys are kept.
///
/// # Errors
/// It cannot be written, in words.
pub(in crate::server) fn start_of_json(value: &Value) -> Result<Bytes, String> {
    let text = serde_yaml::to_string(value).map_err(|error| error.to_string())?;
    Ok(text.into())
}

/// What a START says, read strictly for the key and place of a mistake, which the API's answer names. The bytes
/// themselves are what is sent.
///
/// # Errors
/// The first mistake.
pub(in crate::server) fn checked_start(payload: &[u8]) -> Result<Start, PayloadError> {
    Start::decode(payload)
}
