//! Why no node fits, in words.
//!
//! The sentence counts nodes by the first thing that each lacks: "none of 12 compute nodes fits: 10 short of mem_mb
//! (…); 2 cordoned". The core has counted; this only words it. A new filter adds a variant of [`Lack`] and an arm to
//! [`Lacking`] (CONTRIBUTING.md, "Add a filter or a weigher").

use std::fmt;

use sched_core::{Amount, Countable, Lack, Never, NoFit, Shortage};

/// Why no node fits, as people read it. Shown in StartFailure, in the queue, in explanations and dry runs.
pub(super) struct WhyNoFit<'a>(pub(super) &'a NoFit);

/// What nodes lack, in words that follow their number. Every node is counted once, by the first filter that it did not
/// pass.
pub(super) struct Lacking<'a>(pub(super) &'a Lack);

/// An amount that a node has too little of, in words that follow the number of nodes. For example `short of mem_mb
/// (asks 4096 MiB, most free 2048 MiB on node-3)`.
struct Short<'a>(&'a Shortage);

/// "compute" or "network" by what the START asks for. Entries are in the core's order.
impl fmt::Display for WhyNoFit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let no_fit = self.0;
        let what = if no_fit.is_network {
            "network"
        } else {
            "compute"
        };
        match no_fit.nodes {
            0 => return write!(f, "no {what} node is connected"),
            1 => write!(f, "the one {what} node does not fit:")?,
            nodes => write!(f, "none of {nodes} {what} nodes fits:")?,
        }
        for (at, (nodes, lack)) in no_fit.lacks.iter().enumerate() {
            let separator = if at == 0 { "" } else { ";" };
            write!(f, "{separator} {nodes} {}", Lacking(lack))?;
        }
        // Where waiting cannot help, the sentence says so.
        match no_fit.never {
            None => Ok(()),
            Some(Never::NoMatch) => f.write_str("; no node matches; waiting will not help"),
            Some(Never::TooLarge) => {
                f.write_str("; it asks for more than any of them has; waiting will not help")
            }
        }
    }
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Each continues "<number> nodes …" in the sentence above.
        let words = match self.0 {
            Lack::Report => "that have not reported yet",
            Lack::Offline => "going offline",
            Lack::Maintenance => "in maintenance",
            Lack::Full(Some(amount)) => return write!(f, "full (of {})", amount.name()),
            Lack::Full(None) => "full (by their own word, although their figures leave room)",
            Lack::Fault => "that take no work, for a fault of theirs (ciaoctl nodes --wide)",
            Lack::Cordoned => "cordoned",
            Lack::Queue => "with a full queue",
            Lack::Figures(unsaid) => {
                let names: Vec<_> = unsaid.iter().flatten().map(|it| it.name()).collect();
                return f.write_str(&not_known(&names));
            }
            Lack::Room(shortage) => return Short(shortage).fmt(f),
            Lack::Untried => "where it was tried already",
            Lack::Left => "which it is to leave",
            Lack::Lost => "lost (it may come back)",
            Lack::Reserved => "with room that is for others that wait before it",
            // Groups: where their members are or are not.
            Lack::Scope { scope, group } => {
                return write!(f, "without '{scope}', the scope of group '{group}'");
            }
            Lack::Listing(group) => {
                return write!(
                    f,
                    "that have not said yet what runs on them, which group '{group}' depends on"
                );
            }
            Lack::Member { group, scope } => {
                return write!(f, "where group '{group}' has no member (by {scope})");
            }
            Lack::Vacancy { group, max, scope } => {
                return write!(f, "where group '{group}' has {max} already (by {scope})");
            }
            Lack::Group => "kept out by a group",
            // Limits of the policy or of an aggregate.
            Lack::Instances(max) => return write!(f, "with {max} or more instances"),
            Lack::Starts(max) => return write!(f, "with {max} or more STARTs under way"),
            Lack::Load(max) => return write!(f, "with a load above {max}"),
            Lack::LoadPerCpu(max) => {
                return write!(f, "with a load per CPU above {}", *max as f64 / 100.0);
            }
            Lack::Label(label) => return write!(f, "without '{label}'"),
            Lack::Lease => {
                "without a lease (on_node_loss: restart needs a launcher that stops what it runs when it is cut off)"
            }
            // What the START itself asks for.
            Lack::Near { scope, label } => return write!(f, "not in a {scope} with '{label}'"),
            Lack::Nearness => "not near",
            Lack::Node(name) => return write!(f, "not the node asked for ({name})"),
            Lack::Host(name) => return write!(f, "not the host asked for ({name})"),
            Lack::Volume(id) => return write!(f, "without volume or port '{id}'"),
            Lack::SameNode => "without an instance of same_node",
            Lack::DifferentNode => "with an instance of different_node",
            // Nodes that are reserved for others.
            Lack::OtherImages => "reserved for other images",
            Lack::ForImage => "not among those that alone run its image",
            Lack::ImageFetch => {
                "that do not have its image, and whose launchers fetch none (capability images)"
            }
            Lack::MoreImages => {
                "whose launchers fetch no further images (more_images; capability more-images)"
            }
            Lack::RunLimits => {
                "whose launchers know no time_limit, stop, restart or retry (capability run-limits)"
            }
            Lack::Tenant => "reserved for other tenants",
            Lack::VmType(word) => {
                return write!(f, "whose launchers do not run vm_type '{word}'");
            }
        };
        f.write_str(words)
    }
}

impl fmt::Display for Short<'_> {
    // `largest` is given where even an empty node would not do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.0;
        let (name, unit) = name_and_unit(&short.of);
        let (asked, best) = (short.asked, short.best);
        write!(f, "short of {name} (asks {asked}{unit}, most free {best}")?;
        if !short.host.is_empty() {
            write!(f, " on {}", short.host)?;
        }
        if let Some(largest) = short.largest {
            write!(f, ", the largest has {largest}")?;
        }
        f.write_str(")")
    }
}

/// That nodes do not say how much they have free of these, in words that follow their number.
fn not_known(names: &[&str]) -> String {
    match names {
        ["vcpus"] => "whose vcpus are not known".to_owned(),
        [name] => format!("whose free {name} is not known"),
        [names @ .., last] => format!("whose free {} and {last} are not known", names.join(", ")),
        [] => "with unknown figures".to_owned(),
    }
}

/// What something is called, and what follows a number of it. Amounts of memory and disk are in MiB throughout the
/// core; custom resources are in whatever they are counted in.
pub(super) fn name_and_unit(of: &Countable) -> (&str, &'static str) {
    match of {
        Countable::Every(amount @ (Amount::Memory | Amount::Disk)) => (amount.name(), " MiB"),
        Countable::Every(Amount::Vcpus) => (Amount::Vcpus.name(), ""),
        Countable::Custom(name) => (name, ""),
    }
}
