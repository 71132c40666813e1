//! The policy in force: filters in order, weighers with their multipliers, and how many nodes are compared. Made from
//! the `policy` section of the configuration, checked as a whole ([`Rules::check`]), and replaced as a whole when the
//! configuration is read again.
//!
//! ```yaml
//! policy:
//!   filters: [labels, near, {name: load, max: 8}]        # absent: the usual ones
//!   weighers: [{name: free-memory, multiplier: 1.0}]     # absent: first fit
//!   candidates: 64                                       # nodes that are weighed
//!   subset_size: 1                                       # of the best so many, one at random
//! ```
//!
//! How nodes are weighed against each other is in [`best`]; the search itself is in `choose`.

use crate::api::pressure::PressurePolicy;
use crate::api::rules::{PolicyRules, RuleError, Rules};
use crate::cluster::candidate::Candidate;
use crate::cluster::facts;
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;
use crate::placement::defaults::Defaults;
use crate::placement::filters::{self, Concerned, Filter};
use crate::placement::subset::MAX_ENTRIES;
use crate::placement::weighers::{self, PREFERENCES, Weighing, Weighted};

/// How a node is chosen among those that fit.
#[derive(Debug)]
pub(crate) struct Policy {
    /// In the order in which they are asked; those that every policy has come first unless the configuration lists
    /// them.
    filters: Vec<Box<dyn Filter>>,
    /// Those that the configuration lists, then those for what a START itself prefers, unless the configuration lists
    /// these with a multiplier of its own.
    weighers: Vec<Weighted>,
    /// How many of `weighers` the configuration lists.
    listed_weighers: usize,
    /// Nodes that are weighed for one START; `usize::MAX` = all that fit. Above 0.
    pub(super) candidates: usize,
    /// How many of the best one is drawn from. Above 0.
    pub(super) subset_size: usize,
    /// Whether a START that fits nowhere may preempt instances of lower priority.
    preemption: bool,
    /// Whether every instance may be moved: then the START of each is kept.
    relocation: bool,
    /// What is done about nodes that are short of memory.
    pressure: PressurePolicy,
    /// What STARTs ask for that do not say it themselves.
    defaults: Defaults,
    /// Whether no filter and no weigher has to do with a START that asks for room alone. Computed once, so that the
    /// search for a plain START begins with one comparison.
    pub(super) takes_any_with_room: bool,
}

impl Default for Policy {
    /// First fit.
    fn default() -> Self {
        Self::new(&PolicyRules::default()).expect("the default rules hold together")
    }
}

impl Policy {
    /// The policy that these rules describe. Where filters are listed, those of every policy are put before them.
    ///
    /// # Errors
    /// The first rule that does not hold together, with its key (`policy.filters[2]`) and what is wrong. Nothing is in
    /// force then.
    pub(crate) fn new(rules: &PolicyRules) -> Result<Self, RuleError> {
        let mut filters = match &rules.filters {
            None => filters::usual(),
            Some(listed) => {
                let build = |(at, rule)| {
                    filters::build(rule)
                        .map_err(|problem| error(format!("policy.filters[{at}]"), problem))
                };
                let listed: Vec<Box<dyn Filter>> = listed
                    .iter()
                    .enumerate()
                    .map(build)
                    .collect::<Result<_, _>>()?;
                let mut filters = filters::always();
                filters.retain(|always| listed.iter().all(|it| it.name() != always.name()));
                filters.into_iter().chain(listed).collect()
            }
        };
        if let Some(max) = rules.load_per_cpu {
            // One that the list has counts as well.
            filters.push(filters::calm(max));
        }
        let build = |(at, rule)| {
            weighers::build(rule)
                .map_err(|problem| error(format!("policy.weighers[{at}]"), problem))
        };
        let mut weighers = rules
            .weighers
            .iter()
            .enumerate()
            .map(build)
            .collect::<Result<Vec<_>, _>>()?;
        let listed_weighers = weighers.len();
        weighers.extend(not_in(&weighers, &PREFERENCES));
        check_count("policy.filters", filters.len())?;
        check_count("policy.weighers", weighers.len())?;
        let takes_any_with_room =
            listed_weighers == 0 && !filters.iter().any(|filter| filter.concerns_all());
        let at_least_one = |key: &str, value: usize| match value {
            0 => Err(error(
                format!("policy.{key}"),
                "expected a number above 0".to_owned(),
            )),
            value => Ok(value),
        };
        Ok(Self {
            filters,
            weighers,
            listed_weighers,
            candidates: at_least_one("candidates", rules.candidates.unwrap_or(usize::MAX))?,
            subset_size: at_least_one("subset_size", rules.subset_size)?,
            preemption: rules.preemption,
            relocation: rules.relocation,
            pressure: rules.pressure,
            defaults: Defaults::new(rules),
            takes_any_with_room,
        })
    }

    /// Whether instances of lower priority are preempted for STARTs that fit nowhere.
    pub(crate) fn preempts(&self) -> bool {
        self.preemption
    }

    /// What STARTs ask for that do not say it themselves.
    pub(crate) fn defaults(&self) -> &Defaults {
        &self.defaults
    }

    /// What becomes of instances on a node that is short of memory.
    pub(crate) fn pressure(&self) -> PressurePolicy {
        self.pressure
    }

    /// The filters that have to do with a START, in order.
    pub(crate) fn concerned(&self, asked: &Asked<'_>) -> Concerned<'_> {
        Concerned::new(&self.filters, |filter| filter.concerns(asked))
    }

    /// Whether the policy may place any instance again, so that every instance becomes a managed one and its START is
    /// kept.
    pub(crate) fn manages_all(&self) -> bool {
        self.preemption || self.relocation || self.pressure == PressurePolicy::Evict
    }

    /// Whether only a START's own preferences are weighed and the best node is taken: then masks may stand in for
    /// weighing.
    pub(crate) fn weighs_preferences_alone(&self) -> bool {
        self.listed_weighers == 0 && self.subset_size == 1
    }

    /// The weighers that tell nodes apart for a START: the policy's, then those for what the START itself prefers,
    /// unless the policy lists these with a multiplier of its own. Empty where the first node that fits is to be taken.
    pub(crate) fn weighing(&self, asked: &Asked<'_>) -> Weighing<'_> {
        Weighing::new(&self.weighers, |weighted| {
            weighted.weigher().concerns(asked)
        })
    }

    /// The weighers that the configuration lists.
    fn listed(&self) -> &[Weighted] {
        &self.weighers[..self.listed_weighers]
    }

    /// Whether a key of `start.scheduling` has an effect under this policy: the filter that reads it is asked, or the
    /// weigher that reads it counts. Keys that neither reads, such as `priority`, always have their effect.
    pub(crate) fn understands(&self, key: &str) -> bool {
        let is_a_filters = filters::all_keys().any(|other| other == key);
        let is_asked = || {
            self.filters
                .iter()
                .any(|filter| filter.keys().contains(&key))
        };
        (!is_a_filters || is_asked()) && (!weighers::ALONE.contains(&key) || self.weighs(key))
    }

    /// Checks that the policy lists a weigher for which an aggregate gives a multiplier.
    ///
    /// # Errors
    /// That it does not, so that the multiplier would have no effect.
    fn check_weigher(&self, name: &str) -> Result<(), String> {
        let mut listed = self.listed().iter().map(|it| it.weigher().name());
        if listed.any(|it| it == name) {
            return Ok(());
        }
        Err(format!(
            "the policy has no weigher '{name}', so that a multiplier has no effect; list it in policy.weighers"
        ))
    }

    /// Whether a weigher counts for anything: it is listed with a multiplier other than 0, or not listed and one of
    /// those that every policy has.
    fn weighs(&self, name: &str) -> bool {
        let is_it = |weighted: &&Weighted| weighted.weigher().name() == name;
        let mut listed = self.listed().iter().filter(is_it).peekable();
        if listed.peek().is_none() {
            return PREFERENCES.iter().any(|preference| is_it(&preference));
        }
        listed.any(|weighted| weighted.multiplier != 0.0)
    }
}

impl Rules {
    /// Whether the rules hold together: the policy can be built, aggregates give multipliers only to weighers that are
    /// listed, and select nodes only by labels and lasting facts. Called by the server before it puts a configuration
    /// into force.
    ///
    /// # Errors
    /// The first that does not: its key and what is wrong.
    pub fn check(&self) -> Result<(), RuleError> {
        let policy = Policy::new(&self.policy)?;
        for (at, aggregate) in self.aggregates.iter().enumerate() {
            for (name, _) in &aggregate.multipliers {
                policy.check_weigher(name).map_err(|problem| {
                    error(format!("aggregates[{at}].multipliers.{name}"), problem)
                })?;
            }
            let key = format!("aggregates[{at}].select");
            check_facts(&key, &aggregate.select)?;
        }
        for (at, rule) in self.capacity.iter().enumerate() {
            check_facts(&format!("capacity[{at}].select"), &rule.select)?;
        }
        Ok(())
    }
}

/// Whether these expressions name labels and lasting facts alone.
fn check_facts(key: &str, select: &[sched_model::Expression]) -> Result<(), RuleError> {
    for (at, expression) in select.iter().enumerate() {
        let name = expression.key();
        // Sets of nodes depend only on what does not change by itself: they are made when a node reports, not for each
        // START.
        if !facts::is_lasting(name) {
            let problem = format!(
                "'{name}' cannot be selected by; of the facts there are {}",
                facts::LASTING.join(", ")
            );
            return Err(error(format!("{key}[{at}]"), problem));
        }
    }
    Ok(())
}

/// Those of `preferences` that are not among `listed`, by name.
fn not_in(listed: &[Weighted], preferences: &[Weighted]) -> Vec<Weighted> {
    let is_listed = |name: &str| listed.iter().any(|it| it.weigher().name() == name);
    let left = preferences
        .iter()
        .filter(|preference| !is_listed(preference.weigher().name()));
    left.cloned().collect()
}

/// Whether a list with what every policy has is short enough for a search to pick from it.
fn check_count(key: &str, count: usize) -> Result<(), RuleError> {
    match count {
        0..=MAX_ENTRIES => Ok(()),
        _ => Err(error(
            key.to_owned(),
            format!(
                "with those that every policy has there are {count}; at most {MAX_ENTRIES} are possible: list each once"
            ),
        )),
    }
}

/// A problem with the key it belongs to.
fn error(key: String, problem: String) -> RuleError {
    RuleError { key, problem }
}

/// The best of some nodes: the `count` with the highest scores, best first; equals in the order in which they came.
///
/// For each weigher, its values over these nodes are scaled to 0 … 1 and multiplied by its multiplier for the node; a
/// node's score is the sum. A weigher for which all nodes are equal adds nothing. So a score says how nodes compare
/// with each other in this list, and nothing outside it. Costs one call for each node and weigher, and a sort where
/// `count` is above 1.
pub(crate) fn best<'a, T: Copy>(
    candidates: &[(T, Candidate<'a>)],
    weighers: Weighing<'_>,
    asked: &Asked<'_>,
    count: usize,
) -> Vec<T> {
    let mut scores = vec![0.0; candidates.len()];
    let mut values = Vec::with_capacity(candidates.len());
    for weighted in weighers.iter() {
        values.clear();
        values.extend(
            candidates
                .iter()
                .map(|(_, node)| weighted.weigher().weigh(node, asked)),
        );
        let (least, most) = values.iter().fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(least, most), &value| (least.min(value), most.max(value)),
        );
        if most > least {
            for ((score, value), (_, node)) in scores.iter_mut().zip(&values).zip(candidates) {
                *score += weighted.multiplier_at(node) * (value - least) / (most - least);
            }
        }
    }
    if count == 1 {
        return first_of_the_best(&scores)
            .map(|at| candidates[at].0)
            .into_iter()
            .collect();
    }
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(count);
    order.into_iter().map(|at| candidates[at].0).collect()
}

/// The index of the highest score; of equal ones the first. `None` for no scores.
fn first_of_the_best(scores: &[f64]) -> Option<usize> {
    (0..scores.len()).reduce(|best, at| if scores[at] > scores[best] { at } else { best })
}

/// The slots of a block that all of these masks allow: bit `i` is slot `64 * block + i`. All bits for no masks.
pub(crate) fn allowed(masks: &[Mask], block: usize) -> u64 {
    masks
        .iter()
        .fold(u64::MAX, |word, mask| word & mask.word(block))
}
