//! What a frame is to the core: parsed outside its lock, for the few values that matter there.
//!
//! The one place where a frame meets the core. Whatever is wrong with it comes out as [`Malformed`], with a sentence
//! that names the key, and the instance where that much could be read; nothing here decides what happens then.
//!
//! ```text
//! START with `mem_mb: 512`      Input::Command { command: Start(request), parcel }
//! START with `mem_mb: -1`       Input::Malformed { sent: Command(Start), malformed: "start.requirements.mem_mb: …" }
//! type 9, operand 3             Input::Unknown { tag: 0x0903, .. }
//! ```

use proto_frames::payload::{PayloadError, PayloadErrorKind};
use proto_frames::{Frame, TooLong, Uuid};

use super::kinds::{sent, tag};
use super::names::BadName;
use super::parcels::parcel;
use super::{commands, head, reports};
use crate::server::strict::Mistake;
use sched_core::{Fault, Input, InstanceId, Malformed, Sent, SessionId, Unknown};

/// What the core is told of a frame that came, from any sender: whether it may send it is decided in the core. The
/// payload is parsed here, on the task of the connection, so that no payload is read under the core's lock. Called for
/// every frame that a peer sends ([`super::super::session`]) and, for commands over HTTP, by [`mod@super::ordered`].
///
/// Never fails: what cannot be read is an input as well.
pub(in crate::server) fn input(session: SessionId, frame: Frame) -> Input {
    let sent = sent(frame.kind);
    let unusable = match sent {
        Sent::Command(name) => match commands::read(name, &frame.payload) {
            Ok(command) => {
                return Input::Command {
                    session,
                    command,
                    parcel: parcel(frame),
                };
            }
            Err(unusable) => unusable,
        },
        Sent::Report(name) => match reports::read(name, &frame) {
            Ok(report) => {
                return Input::Report {
                    session,
                    report,
                    parcel: parcel(frame),
                };
            }
            Err(unusable) => unusable,
        },
        Sent::Unknown(_) => return unknown(session, &frame),
    };
    // What cannot be used is an input as well: the core decides who is told.
    Input::Malformed {
        session,
        sent,
        malformed: head::name(unusable, sent, &frame.payload),
        parcel: parcel(frame),
    }
}

/// What the core is told of a frame from a peer that was skipped, because its payload is longer than any may be. The
/// payload was skipped without being read: the parcel has none of it. Its head (the first
/// [`proto_frames::limits::MAX_HEAD_LEN`] bytes) may still name the instance that it is about.
pub(in crate::server) fn too_long(session: SessionId, origin: Uuid, refused: &TooLong) -> Input {
    let frame = Frame::new(refused.kind, origin, "");
    match sent(frame.kind) {
        Sent::Unknown(_) => unknown(session, &frame),
        sent => Input::Malformed {
            session,
            sent,
            malformed: head::of_too_long(refused),
            parcel: parcel(frame),
        },
    }
}

/// A type of frame that this version knows, with an operand that it does not, may be from a later version: it is
/// dropped. Of an unknown type the peer is told. The parcel is dropped in both cases; only the tag is kept, for the log
/// and the answer.
fn unknown(session: SessionId, frame: &Frame) -> Input {
    let is_known_sort = frame.kind.ty.is_known();
    Input::Unknown {
        session,
        tag: tag(frame.kind),
        unknown: if is_known_sort {
            Unknown::Name
        } else {
            Unknown::Sort
        },
    }
}

/// What is wrong with a payload. For the core it becomes a [`Malformed`] with one sentence. Made by the readers of
/// payloads, completed with the instance by [`head`].
#[derive(Debug)]
pub(super) enum Unusable {
    /// The document is not as its type has it: the error names the key; the instance where it could be read.
    Payload(PayloadError, Option<InstanceId>),
    /// An identifier or host name is not taken: its key, why, and the instance that the payload is about, if that was
    /// read before.
    Name(&'static str, BadName, Option<InstanceId>),
    /// A list is too long, or a label or a custom resource cannot be what it is said to be: in words that begin with
    /// the key.
    Extras(String),
    /// The scheduler's own part of a configuration cannot be used; key and place are in the mistake.
    Configuration(Mistake),
}

impl From<PayloadError> for Unusable {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error, None)
    }
}

/// `detail` begins with the path of the key at fault and `: ` wherever there is one, as in `start.requirements.mem_mb:
/// …`. The HTTP API splits it there into the field and the sentence of its problem.
impl From<Unusable> for Malformed {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::Payload(error, instance) => {
                let fault = match error.kind() {
                    PayloadErrorKind::InvalidPayload => Fault::Payload,
                    PayloadErrorKind::InvalidData => Fault::Data,
                };
                Self::new(fault, instance, error.to_string().into())
            }
            Unusable::Extras(detail) => Self::new(Fault::Data, None, detail.into()),
            Unusable::Configuration(mistake) => {
                Self::new(Fault::Data, None, mistake.to_string().into())
            }
            Unusable::Name(key, bad, instance) => {
                Self::new(Fault::Data, instance, format!("{key}: {bad}").into())
            }
        }
    }
}

impl Unusable {
    /// The same, about this instance. Labels and configurations are never about one.
    pub(super) fn of(self, instance: Option<InstanceId>) -> Self {
        match self {
            Self::Payload(error, _) => Self::Payload(error, instance),
            Self::Name(key, bad, _) => Self::Name(key, bad, instance),
            Self::Extras(_) | Self::Configuration(_) => self,
        }
    }
}

/// A text, unless it is empty. In payloads an empty text means that there is none.
pub(super) fn text(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
pub(super) mod tests {
    use proto_frames::{Frame, Kind, Uuid};

    use super::super::names::MAX_NAME_LEN;
    use super::input;
    use sched_core::{Command, Fault, Input, InstanceId, Malformed, Report, SessionId};

    /// What the core is told of a frame of this kind with this payload.
    pub(in crate::server::wire) fn input_of(kind: Kind, payload: &str) -> Input {
        let frame = Frame::new(kind, Uuid::from_u128(7), payload.as_bytes().to_vec());
        input(SessionId(1), frame)
    }

    /// What is wrong with what it is told of; `None` if nothing is.
    pub(in crate::server::wire) fn malformed_in(input: Input) -> Option<Malformed> {
        match input {
            Input::Malformed { malformed, .. } => Some(malformed),
            _ => None,
        }
    }

    /// What is wrong with such a payload.
    pub(in crate::server::wire) fn malformed(kind: Kind, payload: &str) -> Malformed {
        malformed_in(input_of(kind, payload)).expect("it cannot be read")
    }

    #[test]
    fn a_start_with_a_bad_value_is_refused_by_its_instance() {
        let web = Some(InstanceId::new("web-1"));
        for (bad, fault) in [("mem_mb: -1", Fault::Data), ("vcpus: many", Fault::Payload)] {
            let payload = format!("start:\n  instance_uuid: web-1\n  requirements:\n    {bad}\n");
            let both = format!("{payload}---\nother: [\n");
            for payload in [payload, both] {
                let found = malformed(Kind::START, &payload);
                assert_eq!((found.fault, &found.instance), (fault, &web), "{payload}");
            }
        }
        for nameless in [
            "start: [",
            "start: {instance_uuid: ''}",
            "",
            "start:\n  vcpus: x\n",
            "start:\n  instance_uuid: two words\n  requirements:\n    mem_mb: -1\n",
        ] {
            assert_eq!(
                malformed(Kind::START, nameless).instance,
                None,
                "{nameless}"
            );
        }
    }

    #[test]
    fn what_no_start_can_ask_for_is_refused_of_an_instance_as_well() {
        let stats = |rest: &str| format!("instances:\n- instance_uuid: a\n{rest}");
        let requested = |resources: &str| {
            stats(&format!(
                "  requested:\n    mem_mb: 1\n    vcpus: 1\n    disk_mb: 1\n    resources:\n{resources}"
            ))
        };
        let many: String = (0..17).map(|at| format!("      r{at}: 1\n")).collect();
        let long = "x".repeat(129);
        for (payload, said) in [
            (stats(&format!("  group: {long}\n")), "instances.group: "),
            (stats("  group: \"a b\"\n"), "instances.group: "),
            (
                requested(&format!("      {long}: 1\n")),
                "instances.requested.resources: a name",
            ),
            (
                requested(&many),
                "instances.requested.resources: 17 entries",
            ),
        ] {
            let found = malformed(Kind::STATS, &payload);
            assert_eq!(found.fault, Fault::Data, "{payload}");
            assert!(found.detail.starts_with(said), "{}", found.detail);
        }
        let good = requested("      gpu: 1\n") + "  group: web\n";
        assert!(matches!(
            input_of(Kind::STATS, &good),
            Input::Report {
                report: Report::Stats(_),
                ..
            }
        ));
    }

    #[test]
    fn names_that_are_too_long_are_refused_by_their_key() {
        let long = "x".repeat(MAX_NAME_LEN + 1);
        for (kind, key, payload) in [
            (
                Kind::START,
                "start.instance_uuid",
                format!("start:\n  instance_uuid: {long}\n"),
            ),
            (
                Kind::START,
                "start.requirements.hostname",
                format!("start:\n  instance_uuid: a\n  requirements:\n    hostname: {long}\n"),
            ),
            (Kind::READY, "hostname", format!("hostname: {long}\n")),
            (
                Kind::STATS,
                "instances.instance_uuid",
                format!("instances:\n- instance_uuid: {long}\n"),
            ),
            (
                Kind::DELETE,
                "delete.workload_agent_uuid",
                format!("delete:\n  instance_uuid: a\n  workload_agent_uuid: {long}\n"),
            ),
            (
                Kind::EVACUATE,
                "evacuate.workload_agent_uuid",
                format!("evacuate:\n  workload_agent_uuid: {long}\n"),
            ),
        ] {
            let found = malformed(kind, &payload);
            assert_eq!(found.fault, Fault::Data);
            assert!(
                found.detail.starts_with(&format!("{key}: 256 bytes")),
                "{}",
                found.detail
            );
        }
        let longest = "x".repeat(MAX_NAME_LEN);
        let payload = format!("start:\n  instance_uuid: {longest}\n");
        assert!(matches!(
            input_of(Kind::START, &payload),
            Input::Command {
                command: Command::Start(_),
                ..
            }
        ));
    }
}
