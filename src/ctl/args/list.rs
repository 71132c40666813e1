//! Options of the commands that list.

use clap::{Args, ValueEnum};
use proto_frames::payload::Expression;

/// The commands that list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only what has this host name or a UUID that begins so
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
    /// wide: with all columns, however narrow the terminal is
    #[arg(
        short,
        long = "output",
        value_name = "FORMAT",
        value_enum,
        conflicts_with = "quiet"
    )]
    pub output: Option<ListFormat>,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// With all columns
    Wide,
}

impl ListArgs {
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
