//! Which node a request gets: filters, weighers, the search, and why no node fits.

pub(crate) mod choose;
pub(crate) mod explain;
pub(crate) mod filters;
pub(crate) mod list;
pub(crate) mod policy;
pub(crate) mod requests;
pub(crate) mod tries;
pub(crate) mod weighers;

use crate::api::rules::{PolicyRules, RuleError};
use crate::placement::explain::Explanations;
use crate::placement::policy::Policy;
use crate::placement::tries::Tries;

/// The rule by which nodes are chosen, what was said recently of why none was, and what is tried on full nodes.
#[derive(Debug)]
pub(crate) struct Placement {
    policy: Policy,
    /// What a policy that leaves something to chance draws from; always the same, so that a run can be repeated.
    chance: fastrand::Rng,
    /// Nodes that the latest choice looked at one by one.
    looked_at: usize,
    explanations: Explanations,
    /// What is tried on nodes that called themselves full.
    tries: Tries,
}

impl Placement {
    /// Placement by these rules; the usual policy if they do not hold together ([`crate::Rules::check`]).
    pub(crate) fn new(rules: &PolicyRules) -> Self {
        Self {
            policy: Policy::new(rules).unwrap_or_default(),
            chance: fastrand::Rng::with_seed(rules.seed),
            looked_at: 0,
            explanations: Explanations::default(),
            tries: Tries::default(),
        }
    }

    /// Puts other rules into force.
    ///
    /// # Errors
    /// Why these do not hold together; the earlier ones stay in force.
    pub(crate) fn set_rules(&mut self, rules: &PolicyRules) -> Result<(), RuleError> {
        self.policy = Policy::new(rules)?;
        self.chance = fastrand::Rng::with_seed(rules.seed);
        Ok(())
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Where chance stands, to go back to after choices that are not carried out.
    pub(crate) fn chance(&self) -> fastrand::Rng {
        self.chance.clone()
    }

    /// Goes back to where chance stood.
    pub(crate) fn set_chance(&mut self, chance: fastrand::Rng) {
        self.chance = chance;
    }

    /// Nodes that the latest choice looked at one by one.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }
}
