//! The processors of a machine, with their cores and NUMA nodes, and the NUMA nodes of its devices.
//!
//! ```text
//! sys/devices/system/node/node1/cpulist                    4-7,20-23
//! sys/devices/system/cpu/cpu4/topology/thread_siblings_list    4,20
//! sys/bus/pci/devices/0000:3b:00.0/numa_node               1, or -1 where the firmware does not say
//! sys/bus/pci/devices/0000:3b:00.0/local_cpulist           4-7,20-23
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::agent::{Pinning, Processor, Processors};
use super::{numbered, pci_functions, read};

/// Most processors that a list of the kernel may name: more than the 8192 that Linux supports.
const MAX_PROCESSORS: usize = 16_384;

/// Those of the machine's processors that the launcher may run on, which are `own`; none where it is not known. `root` is
/// `/` but in tests.
///
/// Where devices are is known of those resources of which the node has as many units as are found on the machine: their
/// indices are those of the PCI functions in order of address.
pub fn processors(
    root: &Path,
    own: &[u16],
    pinning: Pinning,
    resources: &BTreeMap<String, i64>,
) -> Option<Processors> {
    let nodes = nodes(root);
    let processor = |&number: &u16| Processor {
        number,
        core: core_of(root, number),
        node: node_of(&nodes, number).unwrap_or(0),
    };
    let mut all: Vec<Processor> = own.iter().map(processor).collect();
    all.sort_by_key(|it| (it.core, it.number));
    let mut devices: BTreeMap<String, Vec<Option<u16>>> = BTreeMap::new();
    for function in pci_functions(root) {
        let node = device_node(root, &function.address, &nodes);
        for name in function.resources() {
            devices.entry(name).or_default().push(node);
        }
    }
    devices.retain(|name, units| {
        let amount = resources.get(name).copied();
        amount.and_then(|it| usize::try_from(it).ok()) == Some(units.len())
    });
    (!all.is_empty()).then_some(Processors {
        pinning,
        all,
        devices,
    })
}

/// The processors of each NUMA node.
fn nodes(root: &Path) -> BTreeMap<u16, BTreeSet<u16>> {
    let dir = root.join("sys/devices/system/node");
    let node = |name: String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        Some((number, list(&read(&dir.join(name).join("cpulist"))?)))
    };
    numbered(&dir, "node")
        .into_iter()
        .filter_map(node)
        .collect()
}

fn node_of(nodes: &BTreeMap<u16, BTreeSet<u16>>, processor: u16) -> Option<u16> {
    let mut nodes = nodes.iter();
    let (node, _) = nodes.find(|(_, processors)| processors.contains(&processor))?;
    Some(*node)
}

/// The lowest of the processors that share a core with this one.
fn core_of(root: &Path, processor: u16) -> u16 {
    let dir = root.join(format!("sys/devices/system/cpu/cpu{processor}/topology"));
    let siblings = read(&dir.join("thread_siblings_list")).unwrap_or_default();
    list(&siblings).first().copied().unwrap_or(processor)
}

/// The NUMA node of a PCI function: as it says, or the one that all processors near it are of.
fn device_node(root: &Path, address: &str, nodes: &BTreeMap<u16, BTreeSet<u16>>) -> Option<u16> {
    let dir = root.join("sys/bus/pci/devices").join(address);
    let said = read(&dir.join("numa_node")).and_then(|text| text.trim().parse().ok());
    if said.is_some() {
        return said;
    }
    let near = list(&read(&dir.join("local_cpulist")).unwrap_or_default());
    let mut of: BTreeSet<Option<u16>> = near.iter().map(|it| node_of(nodes, *it)).collect();
    let node = of.pop_first()?;
    node.filter(|_| of.is_empty())
}

/// A list as the kernel writes them: `0-3,8`. What is not understood is left out.
fn list(text: &str) -> BTreeSet<u16> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
    };
    let ranges = text.trim().split(',').filter_map(range);
    ranges.flatten().take(MAX_PROCESSORS).collect()
}

#[cfg(test)]
mod tests;
