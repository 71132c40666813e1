//! What `ciaoctl set` takes.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;
use proto_frames::payload::scheduling::is_instance_name;

use super::StrictArgs;

/// Longest name of a set, in bytes: with a version and a number behind it, it is the name of an instance.
const MAX_NAME_LEN: usize = 40;

/// Most instances of a set.
pub const MAX_REPLICAS: u32 = 10_000;

/// The name of a set.
///
/// Without dots, which separate its parts in the name of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetName(String);

impl FromStr for SetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > MAX_NAME_LEN || !is_instance_name(text) || text.contains('.') {
            return Err(format!(
                "a set's name is 1 to {MAX_NAME_LEN} letters, digits, '_' and '-', the first a letter or digit"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `ciaoctl set`.
///
/// A set has no record but the cluster itself: its instances are those that are called NAME.VERSION.NUMBER, where the
/// version is that of the file they were started from.
#[derive(Debug, Subcommand)]
pub enum SetCommand {
    /// Start the instances of a new set, and wait until they run
    Create {
        /// The set
        #[arg(value_name = "NAME")]
        name: SetName,
        /// START payload (YAML); - is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How many instances
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPLICAS)))]
        replicas: u32,
        /// Whether keys without a meaning are a mistake.
        #[command(flatten)]
        strict: StrictArgs,
    },
    /// Change how many instances a set has: the latest are deleted, or further ones are started from FILE
    Scale {
        /// The set
        #[arg(value_name = "NAME")]
        name: SetName,
        /// How many instances
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_REPLICAS)))]
        replicas: u32,
        /// The file that the set was started from, where there are to be more
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Whether keys without a meaning are a mistake.
        #[command(flatten)]
        strict: StrictArgs,
    },
    /// Replace the instances of a set by those of another file, a few at a time; where new ones do not run, the others stay
    Update {
        /// The set
        #[arg(value_name = "NAME")]
        name: SetName,
        /// START payload (YAML); - is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Most instances that are down at a time
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPLICAS)))]
        max_down: u32,
        /// How many instances it is to have in the end: the latest go, or further ones are started; as many as it has, if not given
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPLICAS)))]
        replicas: Option<u32>,
        /// Whether keys without a meaning are a mistake.
        #[command(flatten)]
        strict: StrictArgs,
    },
    /// Delete all instances of a set, and wait until they are gone
    Delete {
        /// The set
        #[arg(value_name = "NAME")]
        name: SetName,
    },
    /// List the instances of a set, with their versions
    Status {
        /// The set
        #[arg(value_name = "NAME")]
        name: SetName,
    },
}
