//! Which processors instances get, keep and give up: by sentences, and by seeds against rules that hold for any choice.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fastrand::Rng;
use proto_frames::payload::RunProgress;

use super::*;
use crate::launcher::agent::{Cpus, Pinning, Processors};
use crate::launcher::detect::processors;

/// The recorded machine of `launcher/detect`: 16 processors, of which n and n + 8 share a core, four to each of four NUMA
/// nodes; one of its three GPUs is at node 1, one at node 3, and of one it is not known.
fn machine(pinning: Pinning) -> Processors {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = root.join("src/launcher/detect/processors/machine");
    let own: Vec<u16> = (0..16).collect();
    let resources = BTreeMap::from([("gpu".to_owned(), 3)]);
    processors(&root, &own, pinning, &resources).unwrap()
}

fn pinned(pinning: Pinning) -> World {
    let mut world = World::disconnected();
    world.host.cpus_online = 16;
    world.features = Features {
        resources: BTreeMap::from([("gpu".to_owned(), 3)]),
        processors: Some(machine(pinning)),
        ..Features::default()
    };
    world.agent = world.new_agent();
    world.connect();
    world.forget_what_happened();
    world
}

fn asks(id: &str, vcpus: i64, gpus: i64) -> Start {
    let mut start = process(id, 1);
    start.requirements.vcpus = vcpus;
    start.scheduling = (gpus > 0).then(|| Scheduling {
        resources: BTreeMap::from([("gpu".to_owned(), gpus)]),
        ..Scheduling::default()
    });
    start
}

impl World {
    /// Starts it; on which processors it is to run, as the kernel writes them.
    fn starts_on(&mut self, start: Start) -> String {
        let id = start.instance_uuid.clone();
        self.orders.clear();
        self.start(start);
        let cpus = self.orders.iter().find_map(|order| match order {
            AgentAction::Spawn(workload) => Some(workload.cpus.to_string()),
            _ => None,
        });
        self.handle(Input::Started { instance: id });
        self.forget_what_happened();
        cpus.expect("the START is refused")
    }

    fn own(&self, id: &str) -> String {
        self.records[id].cpus.to_string()
    }

    /// Where the instance is moved by the orders since the last look.
    fn moved(&mut self) -> Vec<String> {
        let orders = self.orders();
        let moves = orders.into_iter().filter_map(|order| match order {
            AgentAction::Pin { cpus, .. } => Some(cpus.to_string()),
            _ => None,
        });
        moves.collect()
    }

    fn run(&mut self, id: &str) -> Option<RunProgress> {
        let stats = self.stats();
        let row = stats.instances.iter().find(|it| it.instance_uuid == id);
        row.unwrap().run.as_deref().cloned()
    }
}

#[test]
fn instances_get_whole_cores_and_share_one_only_for_a_thread_that_is_left() {
    let mut world = pinned(Pinning::Cores);
    assert_eq!(world.starts_on(asks("a", 2, 0)), "0,8");
    assert_eq!(world.starts_on(asks("b", 3, 0)), "1-2,9");
    assert_eq!(world.starts_on(asks("c", 1, 0)), "10");
    assert_eq!(world.starts_on(asks("d", 1, 0)), "3");
    assert_eq!(world.starts_on(asks("e", 2, 0)), "4,12");
    world.exits("a", 0);
    assert_eq!(world.starts_on(asks("f", 2, 0)), "0,8");
    assert_eq!(world.starts_on(asks("g", 0, 0)), "");
}

#[test]
fn an_instance_stays_on_one_numa_node_where_it_fits_and_fills_the_fullest() {
    let mut world = pinned(Pinning::Numa);
    assert_eq!(world.starts_on(asks("a", 3, 0)), "0-1,8");
    assert_eq!(world.starts_on(asks("b", 2, 0)), "2,10");
    assert_eq!(world.starts_on(asks("c", 2, 0)), "3,11");
    assert_eq!(world.starts_on(asks("d", 1, 0)), "9");
    assert_eq!(world.starts_on(asks("e", 6, 0)), "4-6,12-14");
    // As many as there are, but on no node.
    assert_eq!(world.starts_on(asks("f", 2, 0)), "7,15");
}

#[test]
fn an_instance_is_near_its_devices_where_it_fits_there() {
    let mut world = pinned(Pinning::Numa);
    assert_eq!(world.starts_on(asks("a", 2, 1)), "2,10", "device 0, node 1");
    assert_eq!(
        world.starts_on(asks("b", 3, 1)),
        "6-7,14",
        "device 1, node 3"
    );
    world.exits("a", 0);
    world.exits("b", 0);
    assert_eq!(world.starts_on(asks("c", 1, 0)), "0");
    assert_eq!(world.starts_on(asks("d", 4, 1)), "2-3,10-11");
    world.exits("d", 0);
    assert_eq!(world.starts_on(asks("e", 3, 0)), "1,8-9");
    assert_eq!(world.starts_on(asks("f", 1, 0)), "2");
    assert_eq!(
        world.starts_on(asks("g", 4, 1)),
        "4-5,12-13",
        "it does not fit near its device"
    );
}

#[test]
fn one_for_which_there_are_not_enough_runs_on_all_and_says_so() {
    let mut world = pinned(Pinning::Cores);
    assert_eq!(world.starts_on(asks("a", 15, 0)), "0-14");
    assert_eq!(world.starts_on(asks("b", 2, 0)), "");
    let said = world.run("b").unwrap();
    assert_eq!((&*said.cpus, said.unpinned), ("", true));
    let said = world.run("a").unwrap();
    assert_eq!((&*said.cpus, said.unpinned), ("0-14", false));
    assert_eq!(world.starts_on(asks("c", 1, 0)), "15");
    assert_eq!(world.starts_on(asks("d", 0, 0)), "");
    assert_eq!(world.run("d"), None, "it asked for none");
}

#[test]
fn without_pinning_nothing_is_said_or_recorded_of_processors() {
    let mut world = World::connected();
    assert_eq!(world.starts_on(asks("a", 1, 0)), "");
    assert_eq!(world.run("a"), None);
    let record = serde_json::to_string(&world.records["a"]).unwrap();
    assert!(!record.contains("cpus\":["), "{record}");
    world.update("a", 1, 2);
    world.limits_set("a", Ok(()));
    assert_eq!(world.moved(), [""; 0]);
}

#[test]
fn the_next_launcher_knows_whose_processors_they_are() {
    let mut world = pinned(Pinning::Numa);
    world.starts_on(asks("a", 4, 0));
    world.starts_on(asks("b", 2, 0));
    world.restart(|id| match id {
        "a" => ProcessFate::Running,
        _ => ProcessFate::EndedByItself(0),
    });
    world.connect();
    assert_eq!(world.own("a"), "0-1,8-9");
    assert_eq!(world.own("b"), "");
    assert_eq!(world.moved(), [""; 0]);
    assert_eq!(world.starts_on(asks("c", 2, 0)), "2,10");
    // One that does not pin leaves them where they run.
    world.features.processors = None;
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(world.run("a").unwrap().cpus, "0-1,8-9");
    assert_eq!(world.starts_on(asks("d", 2, 0)), "");
    assert_eq!(world.run("d"), None);
}

#[test]
fn an_update_moves_an_instance_and_one_that_fails_moves_it_back() {
    let mut world = pinned(Pinning::Numa);
    world.starts_on(asks("a", 2, 0));
    world.update("a", 1, 4);
    assert_eq!(world.moved(), ["0-1,8-9"]);
    world.limits_set("a", Err("it cannot"));
    assert_eq!(world.moved(), ["0,8"]);
    world.update("a", 1, 3);
    world.limits_set("a", Ok(()));
    assert_eq!(world.moved(), ["0-1,8"]);
    world.update("a", 1, 1);
    assert_eq!(world.moved(), [""; 0], "not before it has less");
    world.limits_set("a", Ok(()));
    assert_eq!(world.moved(), ["0"]);
    world.starts_on(asks("b", 14, 0));
    world.update("a", 1, 3);
    world.limits_set("a", Ok(()));
    assert_eq!(world.moved(), ["0-15"], "there are not enough");
    assert!(world.run("a").unwrap().unpinned);
}

#[test]
fn a_suspended_instance_gives_its_processors_up_and_gets_others_when_it_is_resumed() {
    let mut world = pinned(Pinning::Cores);
    world.starts_on(asks("a", 2, 0));
    world.suspend("a");
    assert_eq!(world.own("a"), "0,8", "it still runs");
    world.frozen("a", Ok(()));
    assert_eq!((world.own("a"), world.moved()), (String::new(), vec![]));
    assert_eq!(world.run("a"), None);
    assert_eq!(world.starts_on(asks("b", 2, 0)), "0,8");
    world.resume("a");
    let orders = world.orders();
    let is_moved = orders.iter().position(|it| {
        *it == AgentAction::Pin {
            instance: "a".to_owned(),
            cpus: Cpus(vec![1, 9]),
        }
    });
    let is_thawed = orders
        .iter()
        .position(|it| matches!(it, AgentAction::Thaw(_)));
    assert!(is_moved.unwrap() < is_thawed.unwrap(), "{orders:?}");
    world.thawed("a", Ok(()));
    assert_eq!((world.own("a"), world.moved()), ("1,9".to_owned(), vec![]));
}

#[test]
fn processors_are_written_as_the_kernel_does() {
    let text = |numbers: &[u16]| Cpus(numbers.to_vec()).to_string();
    assert_eq!(text(&[]), "");
    assert_eq!(text(&[9, 8, 1, 3, 2]), "1-3,8-9");
    assert_eq!(text(&[5, 65535, 65534]), "5,65534-65535");
}

/// After each step: every processor has one owner, and an instance has as many as vcpus, or none because there were too few.
fn hold(world: &World, all: usize) {
    let mut owned = BTreeSet::new();
    for (id, record) in &world.records {
        let cpus = &record.cpus.0;
        assert!(!record.has_ended() || cpus.is_empty(), "{id} has ended");
        for cpu in cpus {
            assert!(
                owned.insert(*cpu),
                "{cpu} has two owners: {:?}",
                world.records
            );
        }
    }
    assert!(owned.len() <= all);
}

#[test]
fn processors_have_one_owner_in_random_lives() {
    for_each_seed(200, |seed| {
        let mut rng = Rng::with_seed(seed);
        let pinning = [Pinning::Cores, Pinning::Numa][rng.usize(0..2)];
        let mut world = pinned(pinning);
        let (mut own, mut others) = (0, 0);
        for _ in 0..100 {
            let id = ["a", "b", "c", "d", "e", "f"][rng.usize(0..6)];
            let stage = world.records.get(id).is_some_and(|it| !it.has_ended());
            match rng.u8(0..7) {
                0 | 1 if !stage => {
                    let vcpus = rng.i64(1..6);
                    world.start(asks(id, vcpus, 0));
                    world.handle(Input::Started {
                        instance: id.to_owned(),
                    });
                    let got = world.records.get(id).map_or(0, |it| it.cpus.0.len());
                    own += usize::from(got > 0);
                    others += usize::from(got == 0);
                }
                2 => world.exits(id, 0),
                3 => {
                    world.suspend(id);
                    world.frozen(id, [Ok(()), Err("no")][rng.usize(0..2)]);
                }
                4 => {
                    world.resume(id);
                    world.thawed(id, [Ok(()), Err("no")][rng.usize(0..2)]);
                }
                5 => {
                    world.update(id, 1, rng.i64(0..6));
                    world.limits_set(id, [Ok(()), Err("no")][rng.usize(0..2)]);
                }
                _ => {
                    world.restart(|_| ProcessFate::Running);
                    world.connect();
                }
            }
            hold(&world, 16);
        }
        assert!(own > 0, "{own} {others}");
    });
}
