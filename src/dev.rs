//! `ciao-scheduler dev`: a whole cluster on this machine.

use clap::Args;

/// How to run it.
#[derive(Debug, Args)]
pub struct DevFlags {}
