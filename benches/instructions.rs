//! How many instructions a START takes, counted by valgrind rather than timed: a figure that is the same on a noisy
//! machine. `benches/instructions.sh` runs this program; it is no use by itself.
//!
//! `instructions KIND NODES STARTS` does so many STARTs of that kind. What setting the cluster up takes falls out of the
//! difference between two runs with different numbers of STARTs.

use cluster::{Cluster, StartKind};

#[path = "common/cluster.rs"]
mod cluster;

/// STARTs between two rounds of deleting.
const BATCH: u64 = 256;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (Some(kind), Some(nodes), Some(starts)) = (args.next(), args.next(), args.next()) else {
        // As `cargo bench` runs it.
        println!("run benches/instructions.sh");
        return;
    };
    let found = StartKind::ALL
        .into_iter()
        .find(|known| known.name() == kind);
    let numbers = (nodes.parse(), starts.parse());
    let (Some(kind), (Ok(nodes), Ok(starts))) = (found, numbers) else {
        println!("usage: instructions KIND NODES STARTS");
        std::process::exit(2);
    };
    Cluster::new(nodes, kind).time_starts(starts, BATCH);
}
