//! What workflows do to several components at once: claims, transitions, failures, messages. Each function does one thing
//! whole; none calls a workflow. From the lowest: `send`, `notify`, `changes`, `transition`, `claim`, `order`, `run`,
//! `failure`, `wait`, and what a sender may say and which START may be placed (`entitlement`, `admission`); the choice of a
//! node is in `choose`.

pub(crate) mod admission;
pub(crate) mod changes;
pub(crate) mod choose;
pub(crate) mod claim;
pub(crate) mod entitlement;
pub(crate) mod failure;
mod names;
pub(crate) mod notify;
pub(crate) mod order;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod transition;
mod victims;
pub(crate) mod wait;
