//! The cluster: what nodes offer, what is claimed of them, and what they say of themselves.

mod claims;
mod faulty_nodes;
mod full_nodes;
mod full_released;
mod lost_nodes;
mod measured;
mod offer_rules;
mod overcommit;
mod shares;
