//! `scheduling.on_node_loss: restart`, and `retry` with `node_failure`: only nodes whose launchers stop their instances by themselves when they are cut
//! off.
//!
//! Otherwise the instance could run twice: the scheduler starts it elsewhere once the lost node's fencing deadline is
//! over, which such a deadline only exists for launchers that have promised it (the capability LEASE in READY).

use sched_model::Scheduling;

use super::{Filter, Miss};
use crate::api::input::Capabilities;
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes whose launcher has not announced leases on this connection. Lasting: the launcher would have to be
/// replaced.
#[derive(Debug)]
pub(super) struct Lease;

impl Filter for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["on_node_loss", "retry"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked
            .scheduling()
            .is_some_and(Scheduling::restarts_on_node_loss)
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        if node.can(Capabilities::LEASE) {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Lease
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
