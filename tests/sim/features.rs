//! What trouble may consist of, by name. Each is switched on for all runs once nothing is known to break under it; until
//! then `SIM_FEATURES=name,name` or `SIM_FEATURES=all` has runs do it, which is how it is found what breaks.

use std::env;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Batches of which some instances run, wait or are lost already.
    BatchesOfTheLiving,
    /// STARTs sent again while their instance's machine hears nothing, is cut off, or is told to end it.
    StartsAcrossACut,
    /// A launcher that comes back with another lease and another report interval.
    OtherLeases,
    /// What a launcher says is held up for seconds before it may be lost.
    HeldUp,
    /// Launchers that lie, repeat themselves and flood.
    Liars,
    /// The scheduler's disk takes no writes for some time.
    FullDisk,
    /// Most of what may wait is a member of a group of which each machine takes one or two, and those of lower priority
    /// leave for them. Runs of their own have it.
    Members,
    /// Connections on which nothing arrives any more, in one direction or both, and nobody is told. Runs of their own have
    /// it.
    SilentLinks,
    /// An operator looks at what is listed again and again, some plain instances have names, and lost ones are forgotten.
    /// Runs of their own have it.
    Looks,
    /// STARTs of jobs, which end by themselves, with retries, restarts, time limits and what they come after, and arrays of
    /// them. Runs of their own have it.
    Jobs,
    /// Several schedulers behind one name, of which etcd decides which leads. Runs of their own have it.
    Schedulers,
}

/// Those that all runs have.
const ON: &[Feature] = &[
    Feature::BatchesOfTheLiving,
    Feature::StartsAcrossACut,
    Feature::OtherLeases,
    Feature::HeldUp,
    Feature::Liars,
    Feature::FullDisk,
];

const NAMES: &[(&str, Feature)] = &[
    ("batches", Feature::BatchesOfTheLiving),
    ("starts", Feature::StartsAcrossACut),
    ("leases", Feature::OtherLeases),
    ("held", Feature::HeldUp),
    ("liars", Feature::Liars),
    ("disk", Feature::FullDisk),
    ("members", Feature::Members),
    ("silent", Feature::SilentLinks),
    ("looks", Feature::Looks),
    ("jobs", Feature::Jobs),
    ("schedulers", Feature::Schedulers),
];

/// Those of a run.
pub(crate) fn features() -> Vec<Feature> {
    let Ok(named) = env::var("SIM_FEATURES") else {
        return ON.to_vec();
    };
    let by_name = |name: &str| {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map_or_else(
            || panic!("SIM_FEATURES: '{name}' is none of {NAMES:?}"),
            |(_, feature)| *feature,
        )
    };
    match named.as_str() {
        "all" => NAMES.iter().map(|(_, feature)| *feature).collect(),
        "" => Vec::new(),
        named => named.split(',').map(by_name).collect(),
    }
}
