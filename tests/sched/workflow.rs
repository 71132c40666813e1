//! What happens to an instance, step by step: START, batches, loss of its node, preemption, SUSPEND, MIGRATE, UPDATE,
//! drains and its end.

mod array_order;
mod arrays;
mod batches;
mod crossing;
mod defects;
mod depending;
mod draining;
mod dry_runs;
mod ends;
mod finishing;
mod foreign;
mod forgetting;
mod in_doubt;
mod late;
mod lost_plain;
mod moving;
mod one_door;
mod open_starts;
mod other_starts;
mod preempting;
mod preempting_members;
mod pressure;
mod random_batches;
mod random_evictions;
mod random_moves;
mod random_repeats;
mod rare_orders;
mod reading;
mod remembered;
mod retrying;
mod settle;
mod several_ends;
mod suspending;
mod unnamed_failures;
mod updating;
