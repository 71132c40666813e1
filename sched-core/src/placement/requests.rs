//! Whether a START that could be read makes sense here: what its payload says about placement against what this
//! scheduler, with its policy, understands.

use sched_model::Expression;

use crate::api::input::StartRequest;
use crate::cluster::facts;
use crate::placement::Placement;

impl Placement {
    /// Checks what a START says about its placement; `is_native`: whether its sender can be sent what native peers are.
    ///
    /// # Errors
    /// The key, what is wrong with it, and what to do.
    pub(crate) fn check(
        &self,
        request: &StartRequest,
        is_native: impl Fn() -> bool,
    ) -> Result<(), String> {
        let Some(scheduling) = request.scheduling.as_deref() else {
            return Ok(());
        };
        for (at, key) in scheduling.must_understand.iter().enumerate() {
            if !self.policy.understands(key) {
                return Err(format!(
                    "start.scheduling.must_understand[{at}]: '{key}' has no effect here: \
                     this scheduler or its policy has it switched off"
                ));
            }
        }
        check_facts("require", &scheduling.require)?;
        check_facts("prefer", &scheduling.prefer)?;
        if scheduling.dry_run && !is_native() {
            return Err(
                "start.scheduling.dry_run: the answer is a frame that only the native encoding has; \
                 nothing was started"
                    .to_owned(),
            );
        }
        if scheduling.dry_run && scheduling.batch.is_some() {
            return Err(
                "start.scheduling.dry_run: not with batch; 'count' asks for several of one kind"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

fn check_facts(key: &str, expressions: &[Expression]) -> Result<(), String> {
    let unknown = |expression: &&Expression| {
        facts::is_fact(expression.key()) && !facts::is_known(expression.key())
    };
    match expressions
        .iter()
        .enumerate()
        .find(|(_, expression)| unknown(expression))
    {
        Some((at, expression)) => Err(format!(
            "start.scheduling.{key}[{at}]: there is no fact '{}'; there are {}",
            expression.key(),
            facts::names()
        )),
        None => Ok(()),
    }
}
