//! What goes into the core and comes out of it: inputs, actions, records, configuration, identifiers.

pub(crate) mod action;
pub(crate) mod cause;
pub(crate) mod command;
pub(crate) mod condition;
pub(crate) mod config;
pub(crate) mod declined;
pub(crate) mod disk;
pub(crate) mod explained;
pub(crate) mod ids;
pub(crate) mod input;
pub(crate) mod known_node;
pub(crate) mod no_fit;
pub(crate) mod parcel;
pub(crate) mod phase;
pub(crate) mod pressure;
pub(crate) mod provider;
pub(crate) mod record;
pub(crate) mod refused;
pub(crate) mod report;
pub(crate) mod resources;
pub(crate) mod rules;
pub(crate) mod sent;
pub(crate) mod tally;
pub(crate) mod text;
pub(crate) mod unread;
pub(crate) mod vm_types;
