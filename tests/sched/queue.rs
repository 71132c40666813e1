//! The queue: STARTs that wait for room, and the rule against starvation.

mod turns;
mod waiting;
