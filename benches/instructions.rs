//! How many instructions a START takes, counted by valgrind rather than timed: a figure that is the same on a noisy
//! machine. `benches/instructions.sh` runs this program; it is no use by itself.
//!
//! `instructions WISH NODES STARTS` does so many STARTs of that kind. What setting the cluster up takes falls out of the
//! difference between two runs with different numbers of STARTs.

use cluster::{Cluster, Wish};

#[path = "common/cluster.rs"]
mod cluster;

/// STARTs between two rounds of deleting.
const BATCH: u64 = 256;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (Some(wish), Some(nodes), Some(starts)) = (args.next(), args.next(), args.next()) else {
        // As `cargo bench` runs it.
        println!("run benches/instructions.sh");
        return;
    };
    let found = Wish::ALL.into_iter().find(|known| known.name() == wish);
    let numbers = (nodes.parse(), starts.parse());
    let (Some(wish), (Ok(nodes), Ok(starts))) = (found, numbers) else {
        println!("usage: instructions WISH NODES STARTS");
        std::process::exit(2);
    };
    Cluster::new(nodes, wish).time_starts(starts, BATCH);
}
