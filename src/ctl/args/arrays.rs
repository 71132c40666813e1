//! Options of arrays.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use proto_frames::payload::array::Indexes;

use super::{ListArgs, WORKLOAD};
use crate::flags::duration;

/// What makes an array of `ciaoctl run`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = WORKLOAD)]
pub struct ArrayArgs {
    /// Start an array: an instance for each of these indexes, such as 0-499 or 1,2,10-20, and with %N behind it at most N at
    /// a time. {index} in the program's arguments, in variables and in --dir is the index, as is CIAO_ARRAY_INDEX
    #[arg(long, value_name = "INDEXES[%N]", value_parser = ArraySpec::from_str, conflicts_with_all = ["count", "dry_run"])]
    pub array: Option<ArraySpec>,
    /// Start an array with an element for each line of this file, which is its value: {value}, as is CIAO_ARRAY_VALUE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["count", "dry_run"])]
    pub each: Option<PathBuf>,
}

impl ArrayArgs {
    /// Whether an array is meant.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.array.is_some() || self.each.is_some()
    }
}

/// The indexes of an array, and how many of its elements may run at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArraySpec {
    /// The indexes.
    pub indexes: Indexes,
    /// How many may hold a claim at a time; `None` = as many as fit.
    pub running_max: Option<u32>,
}

impl FromStr for ArraySpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (indexes, most) = match text.split_once('%') {
            Some((indexes, most)) => (indexes, Some(most)),
            None => (text, None),
        };
        let most = match most.map(str::parse::<u32>) {
            None => None,
            Some(Ok(most)) if most > 0 => Some(most),
            Some(_) => return Err("behind % stands how many run at a time, from 1".to_owned()),
        };
        let indexes: Indexes = indexes.parse().map_err(|fault| format!("{fault}"))?;
        Ok(Self {
            indexes,
            running_max: most,
        })
    }
}

/// `ciaoctl arrays`.
#[derive(Debug, Args)]
pub struct ArrayListArgs {
    /// Which, and how.
    #[command(flatten)]
    pub list: ListArgs,
    /// List the elements that are instances, as `instances` does, in place of the arrays
    #[arg(long)]
    pub expand: bool,
}

/// `ciaoctl rerun`.
#[derive(Debug, Args)]
pub struct RerunArgs {
    /// The array: its name, its UUID, or a unique prefix of that of eight characters or more
    #[arg(value_name = "ARRAY")]
    pub array: String,
    /// Run what has ended without success: what failed, was not started, was deleted, or ended in a way that is not known
    #[arg(long, required = true)]
    pub failed: bool,
    /// Wait until the array has ended
    #[arg(long)]
    pub wait: bool,
    /// With --wait: how long to try to connect again where the connection is lost; 0s = not at all
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub reconnect: Duration,
}
