//! PlacementDecision: what would become of a START, for a controller that asked with `scheduling.dry_run` (added by
//! this project). Nothing was claimed.
//!
//! ```yaml
//! placement_decision:
//!   instance_uuid: 0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01
//!   count: 3
//!   fits: 2
//!   placements:
//!   - node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
//!     hostname: host1
//!     count: 2
//!   alternates:
//!   - node_uuid: 6be56328-92e2-4ecd-b426-8fe529c04e0c
//!     hostname: host2
//!     count: 1
//!   reason: full_cloud
//!   detail: 2 of 3 fit; …
//!   reasons:
//!   - reason: memory
//!     nodes: 5
//! ```

use crate::record;

use crate::reason::Reason;
use crate::start_failure::StartFailureReason;

record! {
    /// `placement_decision: {instance_uuid, count, fits, placements, …}`.
    pub struct PlacementDecision {
        /// The instance of the START.
        instance_uuid: String as "instance_uuid",
        /// How many of it were asked about.
        count: u32 as "count",
        /// How many of it would be placed now.
        fits: u32 as "fits",
        /// Where: one entry for each node, in the order in which they would first be chosen.
        placements: Vec<DecidedPlacement> as "placements",
        /// Further nodes that one of them could go to instead, best first: as many as were asked for, or all there are.
        alternates: Vec<DecidedPlacement> as "alternates" unless empty,
        /// The reason that a StartFailure would give for the first that does not fit; empty where all do.
        reason: StartFailureReason as "reason" unless empty,
        /// More about it, for people.
        detail: String as "detail" unless empty,
        /// Why nodes do not fit, those that concern most nodes first.
        reasons: Vec<Reason> as "reasons" unless empty,
        /// Whether waiting does not help: what does not fit would not fit on these nodes even if they were empty.
        never: bool as "never" unless empty,
    }
}

record! {
    /// A node and how many would be placed there.
    pub struct DecidedPlacement {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Its host name.
        hostname: String as "hostname",
        /// How many.
        count: u32 as "count",
    }
}
