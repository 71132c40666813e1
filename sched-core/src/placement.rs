//! Placement: which node a request gets, and why no node fits. Decides only: nothing is claimed here.
//!
//! `workflow::start` asks [`Placement`] for a node and then claims the room on it, both under the one lock of the core.
//! The way of one question:
//!
//! ```text
//!  Query ──View::asked──▶ Asked ──filters: narrow──▶ masks, list
//!                                 │
//!    OfferIndex (room, in order) ─┴─▶ slots that cover ──filters: admits──▶ slots that fit
//!                                                                            │
//!                               no weigher: the first      weighers: the best of the first `candidates`
//! ```
//!
//! - `requests` checks what a START says about its placement before anything is searched for.
//! - `choose` is the search; `filters` and `weighers` are what it asks about a node; `policy` says which of them are
//!   asked.
//! - `list` runs the same search and returns many nodes instead of one.
//! - `explain` walks over all nodes where the search found none, and counts for which reason each of them fails.
//! - `trial` says what other rules would change.
//! - `tries` remembers STARTs that were sent to a node that had called itself full.
//!
//! What a node has free and whether it takes work are the business of `cluster`, whose tables keep it ready for
//! searching.

pub(crate) mod choose;
pub(crate) mod defaults;
pub(crate) mod explain;
pub(crate) mod filters;
pub(crate) mod list;
pub(crate) mod policy;
pub(crate) mod requests;
pub(crate) mod subset;
pub(crate) mod trial;
pub(crate) mod weighers;

use crate::api::rules::{PolicyRules, RuleError};
use crate::api::start::StartRequest;
use crate::placement::explain::Explanations;
use crate::placement::policy::Policy;

/// The policy in force, and what choices leave behind: the state of the random generator, explanations that may be
/// reused, and STARTs that are tried on nodes that called themselves full. Nothing of it is kept on disk.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Replaced as a whole by [`Placement::set_rules`]; between two inputs it never changes.
    policy: Policy,
    /// The random generator from which a policy with `subset_size` above 1 draws. Seeded from `policy.seed` and from
    /// nothing else, so that the same inputs give the same placements.
    chance: fastrand::Rng,
    /// Nodes that the latest call of [`Placement::choose`] looked at one by one: the measure of its cost. Dry runs and
    /// checks of a drain add it up and stop at a limit.
    looked_at: usize,
    /// Answers of [`Placement::why_not`] that are reused for requests of the same shape.
    explanations: Explanations,
}

impl Placement {
    /// Placement by these rules. Rules that do not hold together give the default policy, first fit: the server refuses
    /// such rules before ([`crate::Rules::check`]).
    pub(crate) fn new(rules: &PolicyRules) -> Self {
        Self {
            policy: Policy::new(rules).unwrap_or_default(),
            chance: fastrand::Rng::with_seed(rules.seed),
            looked_at: 0,
            explanations: Explanations::default(),
        }
    }

    /// Puts other rules into force, for every choice from here on; nothing that is placed already is looked at again.
    /// The random generator begins again with the seed of these rules, and explanations by the earlier policy are dropped.
    ///
    /// # Errors
    /// The first rule that does not hold together, with its key. The earlier rules stay in force.
    pub(crate) fn set_rules(&mut self, rules: &PolicyRules) -> Result<(), RuleError> {
        self.policy = Policy::new(rules)?;
        self.chance = fastrand::Rng::with_seed(rules.seed);
        self.explanations.clear();
        Ok(())
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether a START's instance is to be managed, because the START or the policy asks for something that may place
    /// it again.
    pub(crate) fn manages(&self, request: &StartRequest) -> bool {
        request.asks_to_be_managed() || self.policy.manages_all()
    }

    /// A copy of the random generator, for [`Placement::set_chance`]: dry runs, batches and checks of a drain choose
    /// nodes that nothing is sent to, and must not change what the next START gets.
    pub(crate) fn chance(&self) -> fastrand::Rng {
        self.chance.clone()
    }

    /// Puts the random generator back to a copy taken before.
    pub(crate) fn set_chance(&mut self, chance: fastrand::Rng) {
        self.chance = chance;
    }

    /// Nodes that the latest choice looked at one by one: those that filters were asked about, those that were weighed,
    /// and those read to find out where `scheduling.near` holds. What the index ruled out by its masks and maxima costs
    /// next to nothing and is not counted.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }
}
