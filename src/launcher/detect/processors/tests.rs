//! A recorded machine of two sockets with two NUMA nodes each, two cores to a node and two threads to a core, and what is
//! chosen there. `machine` is cut down to the files that are read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::super::agent::{Pinning, Processors};
use super::{list, processors};

/// The recorded tree: processors 0 to 15, of which 8 to 15 are the second threads of the cores of 0 to 7; two to a node.
/// A GPU at node 1 that says so, one at node 3 that says -1 but has its processors, and one that says nothing.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/launcher/detect/processors/machine")
}

fn found(own: &[u16], gpus: i64) -> Processors {
    let resources = BTreeMap::from([("gpu".to_owned(), gpus)]);
    processors(&root(), own, Pinning::Numa, &resources).unwrap()
}

#[test]
fn processors_are_found_with_their_cores_and_numa_nodes() {
    let all: Vec<u16> = (0..16).collect();
    let found = found(&all, 3);
    let rows = found.all.iter().map(|it| (it.number, it.core, it.node));
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 16);
    assert_eq!(rows[..4], [(0, 0, 0), (8, 0, 0), (1, 1, 0), (9, 1, 0)]);
    assert_eq!(rows[14..], [(7, 7, 3), (15, 7, 3)]);
}

#[test]
fn devices_are_on_the_node_that_they_say_or_that_their_processors_are_of() {
    let gpus = |amount| found(&[0, 1], amount).devices.get("gpu").cloned();
    assert_eq!(gpus(3), Some(vec![Some(1), Some(3), None]));
    // Which of them the node's two are is not known.
    assert_eq!(gpus(2), None);
}

#[test]
fn only_what_the_launcher_may_run_on_is_there() {
    let found = found(&[9, 4], 0);
    let rows: Vec<_> = found
        .all
        .iter()
        .map(|it| (it.number, it.core, it.node))
        .collect();
    assert_eq!(rows, [(9, 1, 0), (4, 4, 2)]);
    assert_eq!(
        processors(&root(), &[], Pinning::Cores, &BTreeMap::new()),
        None
    );
}

#[test]
fn a_machine_that_says_nothing_has_one_node_and_as_many_cores_as_processors() {
    let root = tempfile::tempdir().unwrap();
    let found = processors(root.path(), &[0, 1], Pinning::Numa, &BTreeMap::new()).unwrap();
    let rows = found.all.iter().map(|it| (it.number, it.core, it.node));
    assert_eq!(rows.collect::<Vec<_>>(), [(0, 0, 0), (1, 1, 0)]);
}

#[test]
fn lists_of_the_kernel_are_read_and_what_is_no_number_is_left_out() {
    let read = |text: &str| list(text).into_iter().collect::<Vec<_>>();
    assert_eq!(read("0-3,8\n"), [0, 1, 2, 3, 8]);
    assert_eq!(read("\n"), [0; 0]);
    assert_eq!(read("x,5,3-1,70000"), [5]);
    assert_eq!(read("0-65535").len(), super::MAX_PROCESSORS);
}
