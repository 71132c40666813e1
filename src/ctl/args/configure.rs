//! Options of `ciaoctl configure`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// `ciaoctl configure`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").multiple(false))]
pub struct ConfigureArgs {
    /// Cluster configuration (YAML) to put into force; - is the standard input
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["edit", "show", "versions", "diff", "rollback"],
        conflicts_with_all = ["edit", "show", "versions", "rollback"]
    )]
    pub file: Option<PathBuf>,
    /// Edit the configuration in force, with $VISUAL or $EDITOR
    #[arg(long, group = "what")]
    pub edit: bool,
    /// Print the configuration in force, or the version of this number
    #[arg(long, group = "what", value_name = "N", num_args = 0..=1)]
    pub show: Option<Option<u64>>,
    /// List the versions that are kept, the newest first
    #[arg(long, group = "what")]
    pub versions: bool,
    /// Show how FILE differs from the configuration in force, and which instances would not be placed where they are;
    /// without FILE, how the scheduler's own file does, and its node file
    #[arg(long, group = "what")]
    pub diff: bool,
    /// Change nothing: say whether FILE can be used, and which instances would not be placed where they are
    #[arg(long, group = "what")]
    pub check: bool,
    /// Put the version of this number into force again, as a new version
    #[arg(long, group = "what", value_name = "N")]
    pub rollback: Option<u64>,
    /// Change nothing unless the version in force has this number
    #[arg(long, value_name = "N", conflicts_with_all = ["show", "versions", "diff", "check"])]
    pub if_version: Option<u64>,
    /// What the new version is for, a line that is listed with it
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["show", "versions", "diff", "check"])]
    pub note: Option<String>,
}
