//! Workflows: each takes one subject through all components: starting, preempting, suspending, moving, updating,
//! draining, losing and ending instances, and what comes of connections, reports and time. They own nothing. What several
//! of them do is in `effects`; their files call each other in no circle.
//!
//! The way in is `dispatch`, and `connections` for peers that come and go.
//! Three rules hold for all of them:
//!
//! - A transition is asked for (`may`) before anything that belongs to it is done, and made by `transition`, which
//!   records it and notifies those that follow the instance.
//! - What must survive a crash is noted in the journal, and what depends on it is done in `commit` once it is on disk.
//! - What may be long is bounded by a named constant, and goes on in a tick that is due at once.

pub(crate) mod absent;
pub(crate) mod arrays;
pub(crate) mod batches;
pub(crate) mod commit;
pub(crate) mod connections;
pub(crate) mod drain;
pub(crate) mod dry_run;
mod ends;
mod forget;
pub(crate) mod full_disk;
mod give_up;
pub(crate) mod managed;
pub(crate) mod managed_end;
pub(crate) mod migrate;
pub(crate) mod node_loss;
mod place;
pub(crate) mod preempt;
pub(crate) mod pressure;
mod reads;
pub(crate) mod recorded_ends;
pub(crate) mod records;
pub(crate) mod remembered;
mod replacing;
pub(crate) mod reports;
pub(crate) mod reservations;
mod runs;
pub(crate) mod start;
mod start_failed;
pub(crate) mod start_failures;
pub(crate) mod suspend;
pub(crate) mod sync;
pub(crate) mod tries;
mod twins;
mod unsent_failures;
pub(crate) mod update;
pub(crate) mod waiting;
pub(crate) mod workloads;
