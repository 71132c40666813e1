//! Options of the commands about what has ended: its history, its results on this machine, its data on the nodes.

use std::path::PathBuf;

use clap::Args;

use super::EndArgs;

/// Instances that are read at the same time unless something else is said: one at a time waits for each node in turn.
const PARALLEL: u8 = 8;

/// Most of them: as many as may be read of one node with one certificate.
const MAX_PARALLEL: i64 = 12;

/// `ciaoctl collect`.
#[derive(Debug, Args)]
pub struct CollectArgs {
    /// Instances that have ended, and arrays: names, UUIDs, or unique prefixes of UUIDs. Without them, all that the options say
    #[arg(value_name = "INSTANCE")]
    pub instance: Vec<String>,
    /// The directory to put a directory for each instance into; it is made where there is none
    #[arg(short, long, value_name = "DIR")]
    pub directory: PathBuf,
    /// Fetch the files of their working directories too
    #[arg(long)]
    pub files: bool,
    /// How many to fetch at a time
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = clap::value_parser!(u8).range(1..=MAX_PARALLEL))]
    pub parallel: u8,
    /// Which ends.
    #[command(flatten)]
    pub ends: EndArgs,
}

/// `ciaoctl instance forget`.
#[derive(Debug, Args)]
pub struct ForgetArgs {
    /// Instances: names, UUIDs, or unique prefixes of UUIDs
    #[arg(required = true, value_name = "INSTANCE")]
    pub instances: Vec<String>,
    /// Instead: delete what instances that have ended left on their nodes, output and working directory
    #[arg(long)]
    pub data: bool,
    /// With --data: do not ask whether that is meant
    #[arg(short, long, requires = "data")]
    pub yes: bool,
}
