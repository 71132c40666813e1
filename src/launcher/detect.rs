//! What a machine is and has, found out without rights: `uname`, `/proc` and `/sys` in, labels and counts out.
//!
//! Read once, when the launcher starts. What cannot be found out is left out: a label that is not there meets no
//! `require`, a resource that is not there fits nothing. Not here: figures that change (`host`), and what is
//! made of all this together with the command line (the program).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

pub use processors::processors;

mod processors;

/// Bytes read of one file. `/proc/cpuinfo` grows with the machine, and only its first processor matters.
const MAX_FILE_LEN: u64 = 64 * 1024;

/// Entries looked at in one directory: more than the 8192 processors that Linux supports, and what stands beside them.
const MAX_ENTRIES: usize = 16_384;

/// Longest label that is made of what a machine says, in bytes: well within what a label may be, and longer than any
/// processor's name.
const MAX_WORD_LEN: usize = 128;

/// PCI base class and subclass of VGA controllers, which many machines have for their console alone.
const VGA: u32 = 0x0300;

/// PCI base class and subclass of 3D controllers: graphics processors without a screen.
const CONTROLLER_3D: u32 = 0x0302;

/// PCI base class and subclass of processing accelerators.
const ACCELERATOR: u32 = 0x1200;

/// Trade marks in processors' names, which are a nuisance in an expression.
const TRADE_MARKS: [&str; 4] = ["(R)", "(r)", "(TM)", "(tm)"];

/// What the machine is; `root` is `/` but in tests.
///
/// | label | meaning |
/// | --- | --- |
/// | `arch`, `os`, `kernel` | as `uname` says: machine, system in lower case, release |
/// | `cpu.model` | the first processor's name in words that need no quotes |
/// | `cpu.cores` | cores that are online; threads of one core count once |
/// | `numa.nodes` | NUMA nodes |
pub fn labels(root: &Path) -> BTreeMap<String, String> {
    let uname = rustix::system::uname();
    let found = [
        ("arch", word(&uname.machine().to_string_lossy())),
        (
            "os",
            word(&uname.sysname().to_string_lossy().to_lowercase()),
        ),
        ("kernel", word(&uname.release().to_string_lossy())),
        ("cpu.model", cpu_model(root)),
        ("cpu.cores", count(cores(root))),
        ("numa.nodes", count(numa_nodes(root))),
    ];
    found
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// What the machine has that can be counted; `root` is `/` but in tests.
///
/// | resource | meaning |
/// | --- | --- |
/// | `hugepages-2Mi`, … | huge pages of that size that the kernel holds ready, used or not |
/// | `pci.10de-2230`, … | PCI functions of that vendor and device that are display controllers or accelerators |
/// | `gpu` | those of them that are 3D controllers |
pub fn resources(root: &Path) -> BTreeMap<String, i64> {
    let mut found = hugepages(root);
    for function in pci_functions(root) {
        for name in function.resources() {
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

/// The first `model name` of `/proc/cpuinfo`, which other architectures than x86 do not have.
fn cpu_model(root: &Path) -> Option<String> {
    let cpuinfo = read(&root.join("proc/cpuinfo"))?;
    let name = cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == "model name").then_some(value)
    })?;
    let plain = TRADE_MARKS
        .iter()
        .fold(name.to_owned(), |name, mark| name.replace(mark, " "));
    word(&plain)
}

/// The text as one word of letters, digits and `. _ -`, cut where it is too long; everything else is a break between
/// words. `None` if nothing is left.
fn word(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let parts: Vec<&str> = text
        .split(|c| !is_part(c))
        .filter(|part| !part.is_empty())
        .collect();
    let mut word = parts.join("-");
    word.truncate(MAX_WORD_LEN);
    (!word.is_empty()).then_some(word)
}

/// A count as a label; none of something that every machine has means that it could not be counted.
fn count(number: usize) -> Option<String> {
    (number > 0).then(|| number.to_string())
}

/// Cores that are online: the threads of one list the same siblings.
fn cores(root: &Path) -> usize {
    let cpus = root.join("sys/devices/system/cpu");
    let siblings = numbered(&cpus, "cpu")
        .into_iter()
        .filter_map(|cpu| read(&cpus.join(cpu).join("topology/thread_siblings_list")));
    siblings.collect::<BTreeSet<_>>().len()
}

/// How many NUMA nodes the kernel lists.
fn numa_nodes(root: &Path) -> usize {
    numbered(&root.join("sys/devices/system/node"), "node").len()
}

/// Huge pages, by size; sizes without any are left out.
fn hugepages(root: &Path) -> BTreeMap<String, i64> {
    let sizes = root.join("sys/kernel/mm/hugepages");
    let pages = |name: String| {
        let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        let size = size_name(kib.parse().ok()?)?;
        let pages = read(&sizes.join(&name).join("nr_hugepages"))?;
        let pages: i64 = pages.trim().parse().ok()?;
        (pages > 0).then(|| (format!("hugepages-{size}"), pages))
    };
    entries(&sizes).into_iter().filter_map(pages).collect()
}

/// A size in the largest unit that makes it a whole number.
fn size_name(kib: u64) -> Option<String> {
    const UNITS: [(u64, &str); 3] = [(1024 * 1024, "Gi"), (1024, "Mi"), (1, "Ki")];
    let (unit, name) = UNITS
        .into_iter()
        .find(|(unit, _)| kib > 0 && kib.is_multiple_of(*unit))?;
    Some(format!("{}{name}", kib / unit))
}

/// A PCI function that computes or draws.
struct PciFunction {
    /// Where it is, such as `0000:3b:00.0`.
    address: String,
    /// Base class and subclass, without the programming interface.
    class: u32,
    vendor: u32,
    device: u32,
}

impl PciFunction {
    /// The resources of which it is a unit.
    fn resources(&self) -> impl Iterator<Item = String> + use<> {
        let kind = format!("pci.{:04x}-{:04x}", self.vendor, self.device);
        let gpu = (self.class == CONTROLLER_3D).then(|| "gpu".to_owned());
        [kind].into_iter().chain(gpu)
    }
}

/// The PCI functions that are display controllers or processing accelerators, in order of address; of others, and of what
/// cannot be read, nothing.
fn pci_functions(root: &Path) -> Vec<PciFunction> {
    let devices = root.join("sys/bus/pci/devices");
    let function = |address: String| {
        let number = |file: &str| {
            let text = read(&devices.join(&address).join(file))?;
            u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        let class = number("class")? >> 8;
        if !matches!(class, VGA | CONTROLLER_3D | ACCELERATOR) {
            return None;
        }
        let is_id = |id: &u32| *id <= u32::from(u16::MAX);
        Some(PciFunction {
            class,
            vendor: number("vendor").filter(is_id)?,
            device: number("device").filter(is_id)?,
            address,
        })
    };
    let addresses: BTreeSet<String> = entries(&devices).into_iter().collect();
    addresses.into_iter().filter_map(function).collect()
}

/// The entries of a directory that are `prefix` and a number.
fn numbered(dir: &Path, prefix: &str) -> Vec<String> {
    let mut names = entries(dir);
    names.retain(|name| {
        name.strip_prefix(prefix)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    });
    names
}

/// The names in a directory, at most [`MAX_ENTRIES`]; none if it cannot be read.
fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().take(MAX_ENTRIES);
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// The first [`MAX_FILE_LEN`] bytes of a file as text; `None` if it cannot be read.
fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE_LEN).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use proto_frames::payload::expression::is_name;
    use tempfile::TempDir;

    use super::{MAX_WORD_LEN, labels, resources, size_name, word};

    /// A simulated `/` with these files.
    fn machine(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn pci(root: &Path, address: &str, class: &str, vendor: &str, device: &str) {
        let dir = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in [("class", class), ("vendor", vendor), ("device", device)] {
            fs::write(dir.join(file), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn cores_are_counted_once_however_many_threads_they_have() {
        let cpu = |number: u32| {
            format!("sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        };
        let root = machine(&[
            (&cpu(0), "0,2\n"),
            (&cpu(1), "1,3\n"),
            (&cpu(2), "0,2\n"),
            (&cpu(3), "1,3\n"),
            ("sys/devices/system/cpu/cpu4/online", "0\n"),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/node/node0/cpulist", "0,2\n"),
            ("sys/devices/system/node/node1/cpulist", "1,3\n"),
            ("sys/devices/system/node/has_cpu", "0-1\n"),
        ]);
        let labels = labels(root.path());
        assert_eq!(
            (&labels["cpu.cores"][..], &labels["numa.nodes"][..]),
            ("2", "2")
        );
    }

    #[test]
    fn a_processors_name_needs_no_quotes_in_an_expression() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz\n\n\
            processor\t: 1\nmodel name\t: Another\n";
        let root = machine(&[("proc/cpuinfo", cpuinfo)]);
        assert_eq!(
            labels(root.path())["cpu.model"],
            "Intel-Xeon-Gold-6230-CPU-2.10GHz"
        );
        assert_eq!(word(" \"a, b\" (c) = d\n").as_deref(), Some("a-b-c-d"));
        assert_eq!(word("()"), None);
        assert_eq!(word(&"a".repeat(1000)).unwrap().len(), MAX_WORD_LEN);
    }

    #[test]
    fn huge_pages_are_counted_by_size_where_there_are_any() {
        let root = machine(&[
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "512\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
                "1\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                "0\n",
            ),
            ("sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "7\n"),
            (
                "sys/kernel/mm/hugepages/hugepages-32kB/nr_hugepages",
                "many\n",
            ),
        ]);
        let expected = [("hugepages-2Mi", 512), ("hugepages-64Ki", 7)];
        assert_eq!(
            resources(root.path()),
            expected
                .map(|(name, pages)| (name.to_owned(), pages))
                .into()
        );
        assert_eq!(size_name(2 * 1024 * 1024).as_deref(), Some("2Gi"));
        assert_eq!(size_name(0), None);
    }

    #[test]
    fn display_controllers_and_accelerators_are_counted_and_nothing_else() {
        let root = machine(&[]);
        let add = |address: &str, class: &str, vendor: &str, device: &str| {
            pci(root.path(), address, class, vendor, device);
        };
        add("0000:00:00.0", "0x060000", "0x8086", "0x0d57");
        add("0000:01:00.0", "0x030200", "0x10de", "0x2230");
        add("0000:02:00.0", "0x030200", "0x10de", "0x2230");
        add("0000:03:00.0", "0x030000", "0x1a03", "0x2000");
        add("0000:04:00.0", "0x120000", "0x1da3", "0x1020");
        add("0000:05:00.0", "0x030200", "broken", "0x2230");
        let found = resources(root.path());
        let expected = [
            ("gpu", 2),
            ("pci.10de-2230", 2),
            ("pci.1a03-2000", 1),
            ("pci.1da3-1020", 1),
        ];
        assert_eq!(found, expected.map(|(name, n)| (name.to_owned(), n)).into());
    }

    #[test]
    fn what_is_not_there_is_not_said() {
        let root = machine(&[]);
        let labels = labels(root.path());
        assert_eq!(labels.keys().collect::<Vec<_>>(), ["arch", "kernel", "os"]);
        assert_eq!(labels["os"], "linux");
        assert_eq!(resources(root.path()), BTreeMap::new());
    }

    #[test]
    fn this_machine_has_labels_with_names() {
        let root = Path::new("/");
        let (labels, resources) = (labels(root), resources(root));
        assert!(labels.len() >= 3, "{labels:?}");
        assert!(
            labels
                .keys()
                .chain(resources.keys())
                .all(|name| is_name(name))
        );
    }
}
