//! Options of the commands that list.

use std::time::Duration;

use clap::{Args, ValueEnum};
use proto_frames::payload::Expression;

use crate::flags::duration;

/// The commands that list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only what is called so, is on the node of this host name, or has a UUID that begins so
    #[arg(value_name = "MATCH")]
    pub matching: Option<String>,
    /// No line with the columns' names
    #[arg(long)]
    pub no_headers: bool,
    /// Whole UUIDs instead of their beginnings
    #[arg(long)]
    pub full: bool,
    /// Print UUIDs only
    #[arg(short, long)]
    pub quiet: bool,
    /// How to print it; --json is -o json
    #[arg(
        short,
        long = "output",
        value_name = "FORMAT",
        value_enum,
        conflicts_with = "quiet"
    )]
    pub output: Option<ListFormat>,
    /// Print it again and again, every 2s unless an interval is given; on a terminal in place
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = interval
    )]
    pub watch: Option<Duration>,
}

/// Shortest interval between two looks.
///
/// A listing is several frames; more often would be load, not watching.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Reads how long to wait between two looks.
///
/// Also for `top`.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < MIN_INTERVAL => Err("must be at least 100ms".to_owned()),
        interval => Ok(interval),
    }
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// Columns, as many as the terminal has room for
    Table,
    /// More columns, and all of them however narrow the terminal is
    Wide,
    /// One JSON document
    Json,
    /// The same as YAML
    Yaml,
    /// A JSON object a line
    Jsonl,
    /// Names alone: host names, names of instances, UUIDs of what has none
    Name,
}

/// How a history is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// Columns, as many as the terminal has room for
    Table,
    /// Whole details, however narrow the terminal is
    Wide,
    /// One JSON document
    Json,
    /// The same as YAML
    Yaml,
    /// A JSON object a line
    Jsonl,
    /// Comma-separated values, the columns' names first; not of a single INSTANCE
    Csv,
}

impl ListArgs {
    /// How to print it, where `--json` was or was not given.
    #[must_use]
    pub fn format(&self, json: bool) -> ListFormat {
        let usual = if json {
            ListFormat::Json
        } else {
            ListFormat::Table
        };
        self.output.unwrap_or(usual)
    }

    /// Whether no column is to be left out.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.output == Some(ListFormat::Wide)
    }
}

impl WideListArgs {
    /// Whether there are to be more columns.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.wide || self.list.is_wide()
    }
}

/// The long lists.
#[derive(Debug, Args)]
pub struct WideListArgs {
    /// What every list has.
    #[command(flatten)]
    pub list: ListArgs,
    /// More columns; as -o wide
    #[arg(short, long)]
    pub wide: bool,
}

/// `ciaoctl instances`.
#[derive(Debug, Args)]
pub struct InstanceListArgs {
    /// What long lists have.
    #[command(flatten)]
    pub list: WideListArgs,
    /// Also those that have ended, as far as the scheduler remembers them, and how and where
    #[arg(short, long, conflicts_with = "wide")]
    pub all: bool,
}

/// `ciaoctl nodes`.
#[derive(Debug, Args)]
pub struct NodeListArgs {
    /// What long lists have.
    #[command(flatten)]
    pub list: WideListArgs,
    /// Only nodes whose labels meet this, e.g. 'zone = eu-1'; repeatable
    #[arg(short = 'l', long, value_name = "EXPR", value_parser = label_expression)]
    pub selector: Vec<Expression>,
}

/// Reads an expression over labels; what the scheduler itself knows of nodes is in other columns.
///
/// Keys that begin with `node.` are refused, except `node.tenant`.
fn label_expression(text: &str) -> Result<Expression, String> {
    let expression: Expression = text.parse().map_err(|e| format!("{e}"))?;
    let key = expression.key();
    if key.starts_with("node.") && key != "node.tenant" {
        return Err(format!(
            "column 1: '{key}' is no label; only labels can be selected by"
        ));
    }
    Ok(expression)
}
