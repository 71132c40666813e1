//! The choice of a node: conditions, weighers, policies and groups, why there was none, and random histories against
//! naive evaluations.

mod candidates;
mod choice;
mod constraints;
mod defaults;
mod every_filter;
mod explanations;
mod groups;
mod hints;
mod image_fetch;
mod labels;
mod oracle;
mod policies;
mod preferences;
mod random_groups;
mod run_limits;
mod vm_types;
