//! Options of the commands for programs that are shipped.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ListArgs, NO_TENANT};

/// `ciaoctl push`.
#[derive(Debug, Args)]
pub struct PushArgs {
    /// The program
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Tenant against whose quota it counts
    #[arg(long, value_name = "UUID", default_value = NO_TENANT)]
    pub tenant: String,
    /// Print the digest only, and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// `ciaoctl images`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ImagesArgs {
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<ImagesCommand>,
    /// How to list.
    #[command(flatten)]
    pub list: ListArgs,
}

/// `ciaoctl images delete`.
#[derive(Debug, Subcommand)]
pub enum ImagesCommand {
    /// Delete images that no START names any more; nodes keep their copies until they need the room
    Delete {
        /// Images: digests or unique prefixes, with or without sha256:
        #[arg(required = true, value_name = "DIGEST")]
        digests: Vec<String>,
    },
}
