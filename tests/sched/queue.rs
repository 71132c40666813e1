//! The queue: STARTs that wait for room, and the rule against starvation.

mod turns;
pub(crate) mod waiting;
