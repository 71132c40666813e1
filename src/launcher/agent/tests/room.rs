//! Room by the scheduler's rules: what it says a node offers is what the launcher admits by.

use proto_frames::payload::{CountedAs, NodeCapacity, Ratio};

use super::*;

/// A node of 2000 MiB that offers twice its memory.
fn twice() -> NodeCapacity {
    NodeCapacity {
        cpu_ratio: Ratio::new(2.0).unwrap(),
        mem_ratio: Ratio::new(2.0).unwrap(),
        accounting: CountedAs::Requested,
        ..NodeCapacity::default()
    }
}

impl World {
    fn offers(&mut self, capacity: NodeCapacity) {
        self.handle(Input::Command(Command::Capacity(Ok(Box::new(capacity)))));
    }

    /// Sends a START; what is lacking for it, if anything.
    fn lacks(&mut self, start: Start) -> Option<String> {
        self.start(start);
        let sent = std::mem::take(&mut self.sent);
        sent.into_iter().find_map(|message| match message {
            Message::StartFailure(failure) => failure.detail,
            _ => None,
        })
    }
}

fn vcpus(id: &str, vcpus: i64) -> Start {
    let mut start = process(id, 0);
    start.requirements.vcpus = vcpus;
    start
}

#[test]
fn the_schedulers_ratio_counts_once_it_is_told_and_the_flags_until_then() {
    let mut world = World::connected();
    let lacks = world.lacks(process("a", 1500));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 1500, 1000 free"));
    world.offers(twice());
    // 1000 of 2000 are available: 3000 of 4000 on offer.
    let lacks = world.lacks(process("a", 3001));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 3001, 3000 free"));
    assert_eq!(world.lacks(process("a", 3000)), None);
    world.handle(Input::Disconnected);
    world.connect();
    let lacks = world.lacks(process("b", 1));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 1, 0 free"));
}

#[test]
fn what_is_reserved_is_not_handed_out_to_any_instance() {
    let mut world = World::connected();
    world.offers(NodeCapacity {
        reserved_mem_mb: 400,
        reserved_cpus: 1,
        ..twice()
    });
    // (2000 - 400) * 2 on offer, of which 1000 are used by others.
    let lacks = world.lacks(process("a", 2201));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 2201, 2200 free"));
    let lacks = world.lacks(vcpus("a", 3));
    assert_eq!(lacks.as_deref(), Some("vcpus: asks 3, 2 free"));
    assert_eq!(world.lacks(vcpus("a", 2)), None);
}

#[test]
fn no_more_is_handed_out_than_is_offered_in_all_whatever_is_available() {
    let mut world = World::connected();
    world.host.mem_available_mb = 2000;
    world.advance(INTERVAL);
    world.offers(twice());
    world.running("a", 3500);
    let lacks = world.lacks(process("b", 501));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 501, 500 free"));
}

#[test]
fn a_node_that_is_full_by_its_flags_takes_work_once_it_is_told_of_more() {
    let mut world = World::connected();
    world.running("a", 1000);
    world.sent.clear();
    world.advance(INTERVAL);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::FULL]);
    world.offers(twice());
    world.advance(MIN_REPORT_GAP);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
    // Said again it is no news.
    world.offers(twice());
    world.advance(MIN_REPORT_GAP);
    world.nothing_else();
}

#[test]
fn with_measured_accounting_an_instance_counts_as_what_it_asked_for_until_it_is_known_what_it_uses()
{
    let mut world = World::connected();
    world.offers(NodeCapacity {
        accounting: CountedAs::Measured,
        mem_ratio: Ratio::ONE,
        ..twice()
    });
    let mut start = process("a", 900);
    start.requirements.vcpus = 3;
    assert_eq!(world.lacks(start), None);
    let lacks = world.lacks(process("b", 101));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 101, 100 free"));
    let usage = Usage {
        mem_mb: 50,
        disk_mb: 0,
        cpu_percent: 10,
    };
    world.usage.insert("a".to_owned(), usage);
    world.host.mem_available_mb = 950;
    world.advance(INTERVAL);
    let lacks = world.lacks(process("b", 951));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 951, 950 free"));
    let lacks = world.lacks(vcpus("b", 4));
    assert_eq!(lacks.as_deref(), Some("vcpus: asks 4, 3 free"));
}

#[test]
fn what_is_no_rule_changes_none() {
    let mut world = World::connected();
    world.offers(NodeCapacity {
        reserved_cpus: -1,
        ..twice()
    });
    world.frame(Kind::NODE_CAPACITY, "node_capacity: {mem_ratio: 0}");
    world.frame(Kind::NODE_CAPACITY, "node_capacity: [");
    let lacks = world.lacks(process("a", 1001));
    assert_eq!(lacks.as_deref(), Some("mem_mb: asks 1001, 1000 free"));
}

#[test]
fn what_an_instance_used_is_there_for_the_next_as_soon_as_it_has_ended() {
    for is_looked_at_before in [true, false] {
        let mut world = World::connected();
        world.host.mem_total_mb = 32;
        world.host.mem_available_mb = 32;
        world.advance(INTERVAL);
        for id in ["a", "b"] {
            world.running(id, 16);
            let used = Usage {
                mem_mb: 3,
                disk_mb: 0,
                cpu_percent: 0,
            };
            world.usage.insert(id.to_owned(), used);
        }
        world.host.mem_available_mb = 26;
        world.advance(INTERVAL);
        world.forget_what_happened();
        world.exits("a", 0);
        if !is_looked_at_before {
            // The machine was looked at before the end, and says so behind it.
            let (host, usage) = (world.host.clone(), world.usage.clone());
            world
                .agent
                .handle(world.now, Input::Sampled { host, usage });
        }
        assert_eq!(
            world.lacks(process("c", 17)).as_deref(),
            Some("mem_mb: asks 17, 16 free")
        );
        assert_eq!(world.lacks(process("c", 16)), None);
    }
}
