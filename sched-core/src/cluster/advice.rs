//! What a launcher reports of its node and what does not count, so that nothing is left out silently. It is logged, and
//! a native launcher is sent CommandRefused, once for each connection and kind. Original launchers report nothing of
//! the kind.

use std::fmt;

use sched_model::Uuid;

use crate::api::config::MAX_INSTANCES_PER_NODE;
use crate::cluster::columns::MAX_RESOURCE_NAMES;

/// Something that a launcher reports and that does not count. Its text is for logs and for the launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Advice {
    /// It reports these custom resources, and too many names are known already.
    TooManyNames(Vec<Box<str>>),
    /// It reports that its node shares the resources of this one, which does not report that.
    SharesAlone(Uuid),
    /// It lists this many instances more than its ledger has room for.
    TooManyInstances(usize),
}

/// What a launcher was sent already on this connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Advised {
    too_many_names: bool,
    shares_alone: bool,
    too_many_instances: bool,
}

impl Advised {
    /// Notes that it is told now; whether that is the first time.
    pub(super) fn note_told(&mut self, advice: &Advice) -> bool {
        let told = match advice {
            Advice::TooManyNames(_) => &mut self.too_many_names,
            Advice::SharesAlone(_) => &mut self.shares_alone,
            Advice::TooManyInstances(_) => &mut self.too_many_instances,
        };
        !std::mem::replace(told, true)
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyNames(names) => {
                let first = names.first().map_or("", |name| name);
                write!(
                    f,
                    "resources: left out {} of them, first '{first}': nodes have {MAX_RESOURCE_NAMES} different ones already, \
                     which is as many as count",
                    names.len()
                )
            }
            Self::SharesAlone(whole) => write!(
                f,
                "shares: left out, because node {whole} does not say that this one shares its resources: \
                 start its launcher with -shared-by, or say so in the node file"
            ),
            Self::TooManyInstances(count) => write!(
                f,
                "instances: left out {count} of them: one node may have {MAX_INSTANCES_PER_NODE}"
            ),
        }
    }
}
