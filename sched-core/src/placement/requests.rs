//! Whether a START that could be decoded makes sense here: what its payload says about placement, compared with what
//! this scheduler, with its policy, understands. The first check of every START, before admission and before any
//! search.
//!
//! Only what depends on this scheduler is checked here. The form of each value was checked when the payload was decoded
//! (`sched_model::scheduling`), and what no node has is found by the search.

use sched_model::Expression;

use crate::api::declined::Refusal;
use crate::api::start::StartRequest;
use crate::cluster::facts;
use crate::placement::Placement;

impl Placement {
    /// Checks what a START says about its placement; a START without `scheduling` passes. In this order:
    ///
    /// - `must_understand`: every key listed there must have an effect under the policy in force. A sender lists what
    ///   it relies on, so a policy that leaves out the filter or weigher for a key refuses the START rather than
    ///   ignoring the key.
    /// - `require` and `prefer`: a name with the prefix of facts (`node.`) must be a fact that exists.
    /// - `dry_run`: its answer is a frame that original peers do not know (`is_native` tells), and a dry run cannot be
    ///   part of a batch, which waits for other STARTs.
    ///
    /// # Errors
    /// What is wrong with it. The sender gets a StartFailure with `invalid_data`: sending it again as it is does not
    /// help.
    pub(crate) fn check(
        &self,
        request: &StartRequest,
        is_native: impl Fn() -> bool,
    ) -> Result<(), Refusal> {
        let Some(scheduling) = request.scheduling.as_deref() else {
            return Ok(());
        };
        for (at, key) in scheduling.must_understand.iter().enumerate() {
            if !self.policy.understands(key) {
                return Err(Refusal::NotUnderstood(at, key.as_str().into()));
            }
        }
        check_facts("require", &scheduling.require)?;
        check_facts("prefer", &scheduling.prefer)?;
        if scheduling.dry_run && !is_native() {
            return Err(Refusal::DryRunOfOriginal);
        }
        if scheduling.dry_run && scheduling.batch.is_some() {
            return Err(Refusal::DryRunOfBatch);
        }
        if scheduling.batch.is_some() && !scheduling.after.is_empty() {
            return Err(Refusal::AfterInBatch);
        }
        Ok(())
    }
}

/// Whether all facts that these expressions name exist. The error has the place in the list and the names of all facts.
fn check_facts(key: &'static str, expressions: &[Expression]) -> Result<(), Refusal> {
    let unknown = |expression: &&Expression| {
        facts::is_fact(expression.key()) && !facts::is_known(expression.key())
    };
    match expressions
        .iter()
        .enumerate()
        .find(|(_, expression)| unknown(expression))
    {
        Some((at, expression)) => Err(Refusal::NoSuchFact {
            key,
            at,
            name: expression.key().into(),
            known: facts::names().into(),
        }),
        None => Ok(()),
    }
}
