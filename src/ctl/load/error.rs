//! Why a load run has no result: what was wrong with the machine, the arguments or the other side, and what to do.
//!
//! Not what a run found out: that is the [`report`](crate::ctl::load::report)'s.

use std::net::SocketAddr;

use crate::ctl::load::launchers::PER_SOURCE;
use crate::ctl::load::peer::PeerError;
use crate::net::tls::TlsError;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The certificates cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// There is no such process to watch.
    #[error("no process {0} to look at; give --pid the scheduler's, on this machine")]
    NoProcess(u32),
    /// The limit of open files is too low.
    #[error(
        "{wanted} connections need more open files than the limit of {limit}; raise it with ulimit -n"
    )]
    OpenFiles {
        /// Connections wanted.
        wanted: u64,
        /// The hard limit.
        limit: u64,
    },
    /// More launchers than one source address has ports for, and the server is elsewhere.
    #[error(
        "more than {PER_SOURCE} launchers need a scheduler on an IPv4 loopback address, which {0} is not"
    )]
    TooFar(SocketAddr),
    /// The driving side has no connection.
    #[error("cannot connect the driving side to {address}: {source}")]
    Driver {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: PeerError,
    },
    /// No launcher has a connection.
    #[error("no launcher could connect to {address}: {reason}")]
    NoLauncher {
        /// Where to.
        address: SocketAddr,
        /// The first reason.
        reason: String,
    },
    /// The launchers' reports did not come through.
    #[error(
        "only {ready} of {launchers} launchers were ready within the time limit; see --time-limit"
    )]
    NotReady {
        /// Launchers whose STATS came through.
        ready: u64,
        /// Launchers connected.
        launchers: usize,
    },
    /// The driving controller is a backup.
    #[error(
        "the scheduler does not heed this controller's STARTs: another controller is master; stop it, or use \
         --encoding native, which needs no mastership"
    )]
    NotMaster,
}
