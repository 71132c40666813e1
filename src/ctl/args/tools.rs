//! Options of the operator's daily tools.

use std::time::Duration;

use clap::{Args, Subcommand};
use proto_frames::payload::output::MAX_TAIL_LINES;

use super::list::interval;

/// `ciaoctl logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The instance: name, UUID, or a unique prefix of its UUID; also one that has ended, as long as its node keeps its output
    #[arg(value_name = "INSTANCE")]
    pub instance: String,
    /// Go on with what it writes until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only so many of the last lines, and with --follow what comes then [default: all that is kept]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_TAIL_LINES))]
    pub tail: Option<u64>,
    /// Only its standard output, of one whose START has its streams kept apart (--split-output)
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only its standard error
    #[arg(long)]
    pub stderr: bool,
    /// Also on a terminal, print it as it is: escape codes reach the terminal
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}

/// `ciaoctl describe`.
#[derive(Debug, Subcommand)]
pub enum DescribeCommand {
    /// Its status, resources, labels and instances
    Node {
        /// The node: host name, UUID, or a unique prefix of it
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Its state, resources, history and last output; also of one that has ended, as far as the scheduler remembers it
    Instance {
        /// The instance: name, UUID, or a unique prefix of its UUID
        #[arg(value_name = "INSTANCE")]
        instance: String,
    },
}

/// `ciaoctl top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Show it once, as is done anyway where the output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Time between two looks
    #[arg(long, value_name = "INTERVAL", default_value = "2s", value_parser = interval, conflicts_with = "once")]
    pub interval: Duration,
    /// Nodes, and instances, that are shown at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 15)]
    pub rows: usize,
}

/// `ciaoctl context`.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List the contexts; * marks the current one
    List,
    /// Make a context the current one
    Use {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Make a context, or change one, of what --server, --server-name, --cert, --cacert, --certs and CIAO_ variables say; the
    /// first becomes the current one
    Set {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Delete a context
    Delete {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Show a context
    Show {
        /// Its name [default: the current one]
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}
