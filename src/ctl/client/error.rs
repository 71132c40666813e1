//! Why there is no session, or nothing came of what was asked for in one.
//!
//! [`ConnectError`] is about getting a session, [`ClientError`] about a request in one, [`StartError`] about a START.
//! Their texts are printed as they are, one line each: they name the address or file and say what to look at. Exit
//! codes are chosen by `commands::CommandError`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use proto_frames::Role;
use proto_frames::payload::{CommandRefused, QueryKind, StartFailure};

use crate::ctl::event::text::start_failure;
use crate::net::address::AddressError;
use crate::net::link::{self, LinkClosed};
use crate::net::tls::TlsError;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The scheduler's address cannot be parsed.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// A certificate file cannot be used.
    ///
    /// The text adds how to name another directory if a file cannot be read.
    #[error("{0}{advice}", advice = certs_advice(.0))]
    Tls(#[from] TlsError),
    /// The certificate grants neither OPERATOR nor VIEWER.
    ///
    /// Found before anything is sent: the scheduler would refuse the same.
    #[error(
        "{}: the certificate grants {granted}; ciaoctl needs CONTROLLER, OPERATOR or VIEWER (ciao-cert -role controller, or viewer to look only)",
        path.display()
    )]
    NoOperator {
        /// The certificate's file.
        path: PathBuf,
        /// What it grants.
        granted: Role,
    },
    /// The scheduler belongs to another CA.
    ///
    /// Either this is another cluster, or `--cacert` names the wrong file.
    #[error("{address}: the scheduler's certificate is from another CA than {}", cacert.display())]
    OtherCa {
        /// The scheduler's address.
        address: SocketAddr,
        /// The CA's file.
        cacert: PathBuf,
    },
    /// The scheduler does not answer or does not accept us.
    #[error("{0}{advice}", advice = server_advice(.0))]
    Link(link::ConnectError),
    /// There was no connection in time.
    ///
    /// `waited` is the whole time, with the resolution of the name.
    #[error("no connection to {server} within {}{ELSEWHERE}", humantime::format_duration(*.waited))]
    TimedOut {
        /// The scheduler's address.
        server: String,
        /// How long was waited.
        waited: Duration,
    },
}

/// What to look at where no scheduler answers.
///
/// Only for errors that say that no scheduler listens there.
const ELSEWHERE: &str = "; is ciao-scheduler there? (--server, CIAO_SERVER)";

/// For a connection that was never accepted by a scheduler; a refusal by one has no such advice.
fn server_advice(error: &link::ConnectError) -> &'static str {
    if error.is_elsewhere() { ELSEWHERE } else { "" }
}

/// Only an unreadable file is likely to be the wrong file.
fn certs_advice(error: &TlsError) -> &'static str {
    match error {
        TlsError::Unreadable { .. } => "; give --certs DIR or set CIAO_CERTS",
        _ => "",
    }
}

/// Why something asked of the scheduler has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection ended.
    ///
    /// Nothing more can be asked in this session.
    #[error("{0}")]
    Closed(#[from] LinkClosed),
    /// The answer did not come in time; the command may still have had its effect.
    ///
    /// Repeat only what does no harm when it is done twice.
    #[error("no {what} within {}", humantime::format_duration(*.waited))]
    NoAnswer {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
    },
    /// The scheduler refused the command.
    ///
    /// The reason and the detail are the scheduler's. The frame is not named: users know the command they gave.
    #[error("the scheduler refuses this: {} ({})", .0.detail, .0.reason)]
    Refused(Box<CommandRefused>),
    /// Nothing can be called what was looked for: the scheduler takes no names with such characters.
    #[error(
        "{name:?} is no name, UUID or beginning of one: {} at character {}",
        if .character.is_whitespace() { "white space" } else { "a control character" },
        .at + 1
    )]
    NoName {
        /// What was looked for.
        name: String,
        /// The first character that no name has.
        character: char,
        /// Its place, counted in characters from 0.
        at: usize,
    },
    /// The scheduler could not answer a query.
    ///
    /// For example a kind of query that an older scheduler does not know.
    #[error("the scheduler cannot list {what}: {reason}")]
    Query {
        /// What was asked for: `nodes`, `instances`, `controllers`.
        what: QueryKind,
        /// What it says.
        reason: String,
    },
}

/// Why a START was not given to a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No node took it.
    ///
    /// With the reasons why nodes did not fit, if the scheduler gave them.
    #[error("{}", start_failure(.0))]
    Failed(Box<StartFailure>),
    /// There is no answer, or it was refused as a command.
    #[error(transparent)]
    Client(#[from] ClientError),
}
