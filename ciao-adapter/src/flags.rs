//! The command line of an adapter, and the flags that all of them have.

use ciao_scheduler::ctl::args::GlobalArgs;
use ciao_scheduler::ctl::contexts::{self, ContextError};
use ciao_scheduler::logging::LogFlags;
use clap::{Args, Subcommand};

/// Default of an adapter's `-tenant`: the tenant that instances belong to where nothing is told apart by tenants.
pub const NIL_TENANT: &str = "00000000-0000-0000-0000-000000000000";

/// What an adapter's command line has: flags of its own (`S`), those of every adapter, and what else than to serve it
/// can do (`C`). It is flattened into a type with the program's name and text.
#[derive(Debug, Args)]
pub struct CommandLine<S: Args, C: Subcommand> {
    /// The adapter's own flags. They come first, for the others have headings, which would count for all that follows.
    #[command(flatten)]
    pub serve: S,
    /// How to connect with the scheduler.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// Where logs go.
    #[command(flatten)]
    pub log: LogFlags,
    /// Something else than to serve.
    #[command(subcommand)]
    pub command: Option<C>,
}

impl<S: Args, C: Subcommand> CommandLine<S, C> {
    /// The same, with what the named or the current context says where flags and variables say nothing.
    ///
    /// # Errors
    /// The named context is not there, or the file of contexts cannot be used.
    pub fn in_context(self) -> Result<Self, ContextError> {
        let global = contexts::apply(self.global)?;
        Ok(Self { global, ..self })
    }
}
