//! Names of things inside the core: sessions, nodes and instances.

use std::fmt;
use std::hash::{Hash, Hasher};

use sched_model::Uuid;
use sched_model::identifier::uuid_of;

/// One connection of one peer. The server counts them up from 1 and never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A node's place in the node store, stable while the node is known (connected, or lost and in doubt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey(pub(crate) u32);

/// An instance's identifier as payloads write it: opaque text, kept as 16 bytes where it is a UUID with its hyphens. A UUID
/// in capitals is the same one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceId {
    /// Prints in small letters, as every known controller sends it.
    Uuid(Uuid),
    /// Anything else, as it came.
    Text(Box<str>),
    /// One of a dry run, by number. No payload can name it, so it is never taken for a real instance.
    DryRun(u32),
}

impl InstanceId {
    /// The identifier written as `text`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        canonical_uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }

    /// Whether it prints as something that begins so.
    #[must_use]
    pub fn starts_with(&self, prefix: &str) -> bool {
        match self {
            Self::Uuid(uuid) => uuid_starts_with(uuid, prefix),
            Self::Text(text) => text.starts_with(prefix),
            Self::DryRun(_) => false,
        }
    }
}

/// Half of what a derived one takes, which hashes which kind it is and how long a UUID is as well: each START looks its
/// instance up several times.
impl Hash for InstanceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Uuid(uuid) => state.write(uuid.as_bytes()),
            Self::Text(text) => text.hash(state),
            Self::DryRun(number) => number.hash(state),
        }
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::DryRun(number) => write!(f, "dry run {number}"),
        }
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Whether a UUID begins so, in capitals or not; takes no memory, because queries ask it of every row.
pub(crate) fn uuid_starts_with(uuid: &Uuid, prefix: &str) -> bool {
    let mut text = Uuid::encode_buffer();
    let text = uuid.hyphenated().encode_lower(&mut text);
    let begin = text.get(..prefix.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(prefix))
}

/// The UUID that a text writes with its hyphens, in capitals or not, if it does.
#[must_use]
pub fn canonical_uuid(text: &str) -> Option<Uuid> {
    uuid_of(text)
}

#[cfg(test)]
mod tests {
    use super::InstanceId;

    #[test]
    fn a_uuid_in_capitals_is_the_same_instance_and_every_other_text_prints_as_it_came() {
        let uuid = "3390740c-dce9-48d6-b83a-a717417072ce";
        let capitals = "3390740C-DCE9-48D6-B83A-A717417072CE";
        assert!(matches!(InstanceId::new(uuid), InstanceId::Uuid(_)));
        assert_eq!(InstanceId::new(capitals), InstanceId::new(uuid));
        assert_eq!(InstanceId::new(capitals).to_string(), uuid);
        for begin in ["", "3390740C", "3390740c-D", capitals] {
            assert!(InstanceId::new(uuid).starts_with(begin), "{begin}");
        }
        for other in ["3390740d", "3390740C-DCE9-48D6-B83A-A717417072CE0", "é"] {
            assert!(!InstanceId::new(uuid).starts_with(other), "{other}");
        }
        for text in [uuid, "67d86208-b46c-4465-9018-e14187d4010", "", "Web-1"] {
            assert_eq!(InstanceId::new(text).to_string(), text);
        }
    }
}
