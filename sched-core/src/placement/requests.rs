//! Whether a START that could be read makes sense here: what its payload says about placement against what this
//! scheduler, with its policy, understands.

use sched_model::Expression;

use crate::api::declined::Refusal;
use crate::api::input::StartRequest;
use crate::cluster::facts;
use crate::placement::Placement;

impl Placement {
    /// Checks what a START says about its placement; `is_native`: whether its sender can be sent what native peers are.
    ///
    /// # Errors
    /// What is wrong with it.
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
        Ok(())
    }
}

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
