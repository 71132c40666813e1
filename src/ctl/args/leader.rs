//! Options of the command for several schedulers behind one name.

use clap::Args;

use super::ListArgs;

/// `ciaoctl leader`.
#[derive(Debug, Args)]
pub struct LeaderArgs {
    /// Have the leader hand over to this scheduler, which stands by, or to any that does; it stands by itself then. Running
    /// instances stay, and clients connect again
    #[arg(
        long,
        value_name = "MEMBER",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with_all = ["matching", "watch", "quiet"]
    )]
    pub transfer: Option<String>,
    /// How to list.
    #[command(flatten)]
    pub list: ListArgs,
}
