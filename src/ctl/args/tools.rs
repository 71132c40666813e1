//! Options of the operator's daily tools.

use clap::Args;
use proto_frames::payload::output::MAX_TAIL_LINES;

/// `ciaoctl logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The instance: UUID, name, or a unique prefix of its UUID; also one that has ended, as long as its node keeps its output
    #[arg(value_name = "INSTANCE")]
    pub instance: String,
    /// Go on with what it writes until it ends
    #[arg(short, long)]
    pub follow: bool,
    /// Begin with so many of the last lines, rather than with the first that is kept
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=MAX_TAIL_LINES))]
    pub tail: Option<u64>,
    /// Also on a terminal, print it as it is: escape codes reach the terminal
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
}
