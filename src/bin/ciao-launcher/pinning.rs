//! How to pin instances, on the command line, and what that makes of this machine.

use std::path::Path;

use ciao_scheduler::launcher::agent::{Features, Pinning, Processors};
use ciao_scheduler::launcher::detect::processors;
use ciao_scheduler::launcher::own_processors;
use clap::ValueEnum;
use tracing::warn;

/// How to pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PinName {
    /// All instances run on all processors
    None,
    /// Whole cores first, wherever they are
    Cores,
    /// On one NUMA node where they fit, near the instance's devices; else as with cores
    Numa,
}

impl PinName {
    /// The processors of which instances get their own, if they are to: those on which this process may run.
    pub(crate) fn processors(self, features: &Features) -> Option<Processors> {
        let pinning = match self {
            Self::None => return None,
            Self::Cores => Pinning::Cores,
            Self::Numa => Pinning::Numa,
        };
        let root = Path::new("/");
        let found = processors(root, &own_processors(), pinning, &features.resources);
        if found.is_none() {
            warn!(
                event = "processors_unknown",
                "the system does not say on which processors this launcher may run; instances are not pinned"
            );
        }
        found
    }
}
