//! What workflows do to several components at once: claims, transitions, failures, messages. Each function does one thing
//! whole; none calls a workflow. From the lowest: `send`, `notify`, `changes`, `transition`, `claim`, `order`, `run`,
//! `failure`, `wait`; the choice of a node is in `choose`.

pub(crate) mod changes;
pub(crate) mod choose;
pub(crate) mod claim;
pub(crate) mod failure;
pub(crate) mod notify;
pub(crate) mod order;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod transition;
pub(crate) mod wait;
