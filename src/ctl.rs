//! The operator's client, `ciaoctl`.
//!
//! - [`client`]: a session with the scheduler as OPERATOR; also what `ciao-scheduler dev` starts workloads with.
//! - [`event`], [`track`], [`operation`], [`explanation`], [`health`], [`hosts`], [`start_file`], [`resolve`], [`selection`], [`status`], [`natural`], [`neutral`], [`table`], [`tips`], [`units`], [`yaml`]: what is known, remembered and shown, pure.
//! - [`commands`]: one after the other what `ciaoctl` can do in a session.
//! - [`contexts`]: where schedulers are, under names, in a file of the user's own.
//! - [`web`]: the page for a browser without a certificate.
//! - [`args`], [`exit`], [`output`], [`aftermath`]: what commands take, the exit codes, the one way to standard output, and
//!   what is told on Ctrl-C.

pub mod aftermath;
pub mod args;
pub mod client;
pub mod commands;
pub mod contexts;
mod daily;
pub mod difference;
pub mod event;
pub mod exit;
pub mod explanation;
pub mod health;
pub mod hosts;
pub mod moment;
pub mod natural;
pub mod neutral;
pub mod operation;
pub mod output;
pub mod resolve;
pub mod run;
pub mod selection;
pub mod start_file;
pub mod status;
pub mod table;
pub mod tips;
pub mod track;
pub mod units;
pub mod web;
pub mod yaml;

pub use run::{check_key, complain, in_context, run, run_context, run_web};
