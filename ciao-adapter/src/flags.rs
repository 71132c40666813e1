//! The flags that every adapter has.

use ciao_scheduler::ctl::args::GlobalArgs;
use ciao_scheduler::ctl::contexts::{self, ContextError};
use ciao_scheduler::logging::LogFlags;
use clap::Args;

/// Default of an adapter's `-tenant`: the tenant that instances belong to where nothing is told apart by tenants.
pub const NIL_TENANT: &str = "00000000-0000-0000-0000-000000000000";

// The comments on the fields are the help texts that `clap` shows.
/// How an adapter connects with the scheduler, and where its logs go. They have headings of their own: an adapter names
/// its own flags before these, or its help would show them under the last of the headings.
#[derive(Debug, Args)]
pub struct CommonFlags {
    /// How to connect.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// Where logs go.
    #[command(flatten)]
    pub log: LogFlags,
}

impl CommonFlags {
    /// The same, with what the named or the current context says where flags and variables say nothing.
    ///
    /// # Errors
    /// The named context is not there, or the file of contexts cannot be used.
    pub fn in_context(self) -> Result<Self, ContextError> {
        let global = contexts::apply(self.global)?;
        Ok(Self { global, ..self })
    }
}
