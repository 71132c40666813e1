//! The two messages that open a connection, each with a layout of its own: CONNECT and CONNECTED.

use std::fmt;

use crate::Uuid;
use bytes::Bytes;

use crate::Role;
use crate::frame::Version;
use crate::kind::Kind;

/// A client's first message: who it is and which of the roles its certificate grants it claims.
///
/// `kind` is [`Kind::CONNECT`] from a well-behaved client; whatever came is kept, because refusing is the server's
/// business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Protocol version.
    pub version: Version,
    /// Type and operand as they came.
    pub kind: Kind,
    /// Roles claimed.
    pub role: Role,
    /// The client's UUID.
    pub source: Uuid,
    /// Nil from every known client.
    pub destination: Uuid,
}

/// The server's answer to a CONNECT it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    /// Protocol version.
    pub version: Version,
    /// The server's roles ([`Role::SCHEDULER`]).
    pub role: Role,
    /// The server's UUID.
    pub source: Uuid,
    /// The client's UUID.
    pub destination: Uuid,
    /// Under which term the scheduler leads, where it is one of several; in the native encoding alone, by a version of
    /// [`Version::SAYS_TERM`] and later.
    pub term: Option<Term>,
    /// The cluster configuration (YAML), may be empty.
    pub payload: Bytes,
}

/// The turn of one scheduler among several behind one name. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    /// Raised by an operator after the store that decides who leads was wiped, or set back.
    pub generation: u64,
    /// The store's revision at which the turn began.
    pub revision: u64,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.revision)
    }
}

impl Connect {
    /// The CONNECT of a client of the current version.
    #[must_use]
    pub fn new(role: Role, source: Uuid) -> Self {
        Self {
            version: Version::CURRENT,
            kind: Kind::CONNECT,
            role,
            source,
            destination: Uuid::nil(),
        }
    }
}

impl Connected {
    /// The answer of a scheduler of the current version.
    #[must_use]
    pub fn new(source: Uuid, destination: Uuid, configuration: Bytes) -> Self {
        Self {
            version: Version::CURRENT,
            role: Role::SCHEDULER,
            source,
            destination,
            term: None,
            payload: configuration,
        }
    }

    /// The same from a scheduler that answers ends in STATS with EndsRecorded ([`Version::RECORDS_ENDS`]).
    #[must_use]
    pub fn recording_ends(self) -> Self {
        Self {
            version: Version::RECORDS_ENDS,
            ..self
        }
    }

    /// The same from a scheduler that answers also every STATS that has a number ([`Version::ANSWERS_REPORTS`]).
    #[must_use]
    pub fn answering_reports(self) -> Self {
        Self {
            version: Version::ANSWERS_REPORTS,
            ..self
        }
    }

    /// The same from one that leads under this term ([`Version::SAYS_TERM`]).
    #[must_use]
    pub fn under(self, term: Term) -> Self {
        Self {
            version: Version::SAYS_TERM,
            term: Some(term),
            ..self
        }
    }

    /// Whether it is from a scheduler that records ends.
    #[must_use]
    pub fn records_ends(&self) -> bool {
        self.is_at_least(Version::RECORDS_ENDS)
    }

    /// Whether it is from a scheduler that answers every STATS that has a number.
    #[must_use]
    pub fn answers_reports(&self) -> bool {
        self.is_at_least(Version::ANSWERS_REPORTS)
    }

    fn is_at_least(&self, version: Version) -> bool {
        self.version.is_at_least(version)
    }
}
