//! What takes several components: starting, moving, preempting, losing and ending instances, and who is told.

pub(crate) mod admission;
pub(crate) mod batches;
pub(crate) mod care;
pub(crate) mod connections;
pub(crate) mod cordons;
pub(crate) mod drain;
pub(crate) mod endings;
pub(crate) mod ends;
pub(crate) mod entitlement;
pub(crate) mod evictions;
pub(crate) mod forwarding;
pub(crate) mod losses;
pub(crate) mod migrate;
pub(crate) mod outcomes;
pub(crate) mod preempt;
pub(crate) mod recovery;
pub(crate) mod remembered;
pub(crate) mod reports;
pub(crate) mod reservations;
pub(crate) mod start;
pub(crate) mod suspend;
pub(crate) mod timers;
pub(crate) mod update;
pub(crate) mod waiting;
pub(crate) mod workloads;
