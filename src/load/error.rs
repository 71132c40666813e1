//! Why a load run has no result: what was wrong with the machine, the arguments or the other side, and what to do.
//!
//! Not what a run found out: that is the [`report`](crate::load::report)'s.
//!
//! All of these come before the first START was sent. `ciaoctl` maps each to an exit code.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::load::peer::PeerError;
use crate::net::tls::TlsError;
use crate::printable::counted;

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The certificates cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// There is no such process to watch.
    ///
    /// Found before anything is connected.
    #[error("no process {0} to look at; give --pid the scheduler's, on this machine")]
    NoProcess(u32),
    /// The limit of open files is too low.
    ///
    /// A soft limit is raised as far as possible before this is said.
    #[error(
        "{launchers} launchers need {needed} open files, and {whose} hard limit is {limit}: raise it (as root: ulimit -n \
         {needed}), or ask for {possible} launchers at most"
    )]
    OpenFiles {
        /// Launchers asked for.
        launchers: u64,
        /// Open files they need.
        needed: u64,
        /// Whose limit it is: the generator's or the scheduler's.
        whose: &'static str,
        /// The limit.
        limit: u64,
        /// Launchers it allows.
        possible: u64,
    },
    /// More launchers than one source address has ports for, and several loopback addresses do not lead to the server.
    ///
    /// Then only addresses that the user names can help.
    #[error(
        "{launchers} launchers need more than the {ports} ports of one address of this machine; name further ones with \
         --sources ADDRESS,ADDRESS (loopback addresses are taken unasked where the scheduler is on an IPv4 one, which \
         {target} is not)"
    )]
    TooFar {
        /// Where the scheduler is.
        target: SocketAddr,
        /// Launchers asked for.
        launchers: usize,
        /// Ports per address.
        ports: usize,
    },
    /// The source addresses have too few ports.
    ///
    /// With `--sources` given.
    #[error(
        "{launchers} launchers need more than the {ports} ports that each of {sources} source addresses has; give \
         --sources {needed} or as many addresses, or widen net.ipv4.ip_local_port_range"
    )]
    TooFewPorts {
        /// Launchers asked for.
        launchers: usize,
        /// Source addresses asked for.
        sources: usize,
        /// Ports per address.
        ports: usize,
        /// Source addresses that would do.
        needed: usize,
    },
    /// A source address cannot be used.
    #[error("cannot connect from {address}, is it an address of this machine? {source}")]
    Source {
        /// The address.
        address: IpAddr,
        /// The underlying error.
        source: io::Error,
    },
    /// A source address cannot reach the server.
    ///
    /// Found without trying to connect.
    #[error(
        "one of {source_address} and {target} is IPv4, the other IPv6; see --sources and --server"
    )]
    OtherFamily {
        /// The source address.
        source_address: IpAddr,
        /// Where the scheduler is.
        target: SocketAddr,
    },
    /// What `--scheduling` says cannot be used.
    #[error("--scheduling: {reason}")]
    Scheduling {
        /// The reason, as text.
        reason: String,
    },
    /// Others are there.
    ///
    /// Without `--force` only.
    #[error(
        "{} and {} of others are there ({example}): a load run takes room that they may need; run it on a cluster of its \
         own, or say --force",
        counted(*nodes, "node"), counted(*instances, "instance")
    )]
    Occupied {
        /// Nodes that are connected or expected back.
        nodes: usize,
        /// Instances that run or wait.
        instances: usize,
        /// One of them, for people.
        example: String,
    },
    /// Whether others are there cannot be known.
    ///
    /// The original's scheduler answers no queries.
    #[error(
        "cannot find out whether others are there, which only this project's scheduler says ({reason}); say --force to \
         run beside them"
    )]
    Unasked {
        /// The reason, as text.
        reason: String,
    },
    /// The driving side has no connection.
    ///
    /// Without it nothing can be measured.
    #[error("cannot connect the driving side to {address}: {source}")]
    Driver {
        /// The address that was dialled.
        address: SocketAddr,
        /// The underlying error.
        source: PeerError,
    },
    /// No launcher has a connection.
    ///
    /// Some that cannot connect are counted in the report instead.
    #[error("no launcher could connect to {address}: {reason}")]
    NoLauncher {
        /// The address that was dialled.
        address: SocketAddr,
        /// The first reason.
        reason: String,
    },
    /// The launchers' reports did not come through.
    ///
    /// Also with a scheduler that reads READYs too slowly.
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
    ///
    /// In the original's encoding only.
    #[error(
        "the scheduler does not heed this controller's STARTs: another controller is master; stop it, or use \
         --encoding native, which needs no mastership"
    )]
    NotMaster,
}
