//! Figures of the machine: `/proc`, `/sys` and `statvfs` in, [`HostFigures`] out; and a launcher's share of them.
//!
//! What cannot be found out is -1, which never fits anything. Per-instance figures are in [`super::usage`].

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use super::agent::{HostFigures, Network, Pressure};

/// What a figure says that could not be found out.
const UNKNOWN: i64 = -1;

/// `/proc/meminfo` counts in KiB.
const KIB_PER_MIB: i64 = 1024;

/// READY counts disk in units of 10⁶ bytes, as the original does.
const DISK_UNIT: u64 = 1_000_000;

/// How much of the machine a launcher may hand out; `None` = all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Memory, in MiB.
    pub mem_mb: Option<i64>,
    /// Processors.
    pub cpus: Option<i64>,
    /// Disk, in 10⁶ bytes.
    pub disk_mb: Option<i64>,
}

/// The machine's figures at this moment, with the disk that holds `dir`. It reads a handful of small files, and what
/// cannot be read is unknown (-1), or 0 for pressure.
pub(crate) fn sample(dir: &Path, pressure_file: &Path) -> HostFigures {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (mem_total_mb, mem_available_mb) = parse_memory(&memory);
    let (disk_total_mb, disk_available_mb) = disk(dir);
    HostFigures {
        mem_total_mb,
        mem_available_mb,
        disk_total_mb,
        disk_available_mb,
        load: parse_load(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        cpus_online: std::thread::available_parallelism()
            .map_or(UNKNOWN, |cpus| to_i64(cpus.get())),
        networks: networks(),
        pressure: Pressure {
            stalled_percent: fs::read_to_string(pressure_file)
                .ok()
                .and_then(|text| parse_stalled(&text))
                .unwrap_or(0),
            swap_percent: parse_swap(&memory).unwrap_or(0),
        },
    }
}

/// The machine's name as `uname` gives it.
pub(crate) fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Why a machine cannot give such a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// More memory than there is.
    #[error(
        "--mem {asked}: this machine has {has} MiB; give at most that, or leave --mem out for all of it"
    )]
    Memory {
        /// Asked for, in MiB.
        asked: i64,
        /// There, in MiB.
        has: i64,
    },
    /// More disk than there is.
    #[error(
        "--disk {}MiB: the file system of the state directory has {} MiB; give at most that, or leave --disk out for all \
         of it",
        as_mebibytes(*asked),
        as_mebibytes(*has)
    )]
    Disk {
        /// Asked for, in 10⁶ bytes.
        asked: i64,
        /// There, in 10⁶ bytes.
        has: i64,
    },
}

/// An amount of disk in MiB that was given in the unit in which nodes report theirs, 10⁶ bytes.
fn as_mebibytes(megabytes: i64) -> i128 {
    (i128::from(megabytes) * 1_000_000).div_euclid(1 << 20)
}

impl Share {
    /// Compares it with what the machine has, the disk being the one that holds `dir` or will hold it. More processors
    /// than there are may be handed out; what is not known of the machine refuses nothing.
    ///
    /// # Errors
    /// [`ShareError`]: the first thing of which there is less than that.
    pub fn check(&self, dir: &Path) -> Result<(), ShareError> {
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let there = dir.ancestors().find(|dir| dir.exists());
        self.check_against(parse_memory(&memory).0, disk(there.unwrap_or(dir)).0)
    }

    /// The comparison itself, with the machine's memory (MiB) and disk (10⁶ bytes).
    fn check_against(&self, mem: i64, disk: i64) -> Result<(), ShareError> {
        let too_much =
            |asked: Option<i64>, has: i64| asked.filter(|it| has != UNKNOWN && *it > has);
        if let Some(asked) = too_much(self.mem_mb, mem) {
            return Err(ShareError::Memory { asked, has: mem });
        }
        match too_much(self.disk_mb, disk) {
            Some(asked) => Err(ShareError::Disk { asked, has: disk }),
            None => Ok(()),
        }
    }

    /// The machine as a launcher with this share reports it, whose instances use that much memory (MiB) and disk (10⁶
    /// bytes): what is left of the share, and never more than the machine has.
    pub(crate) fn of(
        self,
        mut machine: HostFigures,
        mem_used_mb: i64,
        disk_used_mb: i64,
    ) -> HostFigures {
        let limit = |total: &mut i64, available: &mut i64, share: Option<i64>, used: i64| {
            if let Some(share) = share {
                *total = share.min(if *total < 0 { share } else { *total });
                *available = (*available).min((*total - used).max(0));
            }
        };
        limit(
            &mut machine.mem_total_mb,
            &mut machine.mem_available_mb,
            self.mem_mb,
            mem_used_mb,
        );
        limit(
            &mut machine.disk_total_mb,
            &mut machine.disk_available_mb,
            self.disk_mb,
            disk_used_mb,
        );
        if let Some(cpus) = self.cpus {
            machine.cpus_online = cpus;
        }
        machine
    }
}

/// Total, and free plus file cache (`MemFree`, `Active(file)`, `Inactive(file)`, as the original counts), in MiB.
fn parse_memory(meminfo: &str) -> (i64, i64) {
    let kib = |name: &str| kib(meminfo, name);
    let total = kib("MemTotal").map_or(UNKNOWN, |kib| kib / KIB_PER_MIB);
    let available = || Some(kib("MemFree")? + kib("Active(file)")? + kib("Inactive(file)")?);
    (total, available().map_or(UNKNOWN, |kib| kib / KIB_PER_MIB))
}

/// `avg10` of the line `full avg10=0.00 avg60=0.00 avg300=0.00 total=0`, rounded down, as `/proc/pressure/memory` has
/// it.
fn parse_stalled(pressure: &str) -> Option<i64> {
    let full = pressure
        .lines()
        .find_map(|line| line.strip_prefix("full "))?;
    let mut averages = full.split_ascii_whitespace();
    let average = averages.find_map(|word| word.strip_prefix("avg10="))?;
    average.split('.').next()?.parse().ok()
}

/// The part of the swap space that is in use, in percent; `None` where there is none.
fn parse_swap(meminfo: &str) -> Option<i64> {
    let (total, free) = (kib(meminfo, "SwapTotal")?, kib(meminfo, "SwapFree")?);
    let used = total.saturating_sub(free).saturating_mul(100);
    used.checked_div(total)
}

/// One figure of `/proc/meminfo`, in KiB.
fn kib(meminfo: &str, name: &str) -> Option<i64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The whole part of the load average over one minute, the first figure of `/proc/loadavg`.
fn parse_load(loadavg: &str) -> i64 {
    loadavg
        .split('.')
        .next()
        .and_then(|load| load.parse().ok())
        .unwrap_or(UNKNOWN)
}

/// Size of the file system that holds `dir`, and what an ordinary user may still write, in 10⁶ bytes.
fn disk(dir: &Path) -> (i64, i64) {
    let Ok(disk) = rustix::fs::statvfs(dir) else {
        return (UNKNOWN, UNKNOWN);
    };
    let units = |blocks: u64| to_i64(blocks.saturating_mul(disk.f_frsize) / DISK_UNIT);
    (units(disk.f_blocks), units(disk.f_bavail))
}

/// The IPv4 addresses of the machine's interfaces that have a hardware address, from `/proc` and `/sys`. An address
/// belongs to the first interface with a connected route that covers it; loopback and tunnels without a hardware
/// address are left out.
fn networks() -> Vec<Network> {
    let local =
        parse_local_addresses(&fs::read_to_string("/proc/net/fib_trie").unwrap_or_default());
    let routes = parse_connected_routes(&fs::read_to_string("/proc/net/route").unwrap_or_default());
    let network = |ip: Ipv4Addr| {
        let interface = &routes.iter().find(|route| route.covers(ip))?.interface;
        let mac = fs::read_to_string(format!("/sys/class/net/{interface}/address"))
            .ok()?
            .trim_end()
            .to_owned();
        let real = mac.bytes().any(|byte| !matches!(byte, b'0' | b':'));
        real.then(|| Network {
            ip: ip.to_string(),
            mac,
        })
    };
    local.into_iter().filter_map(network).collect()
}

/// A network that one interface is attached to directly.
#[derive(Debug, PartialEq, Eq)]
struct ConnectedRoute {
    interface: String,
    /// The network's address, as a number.
    destination: u32,
    mask: u32,
}

impl ConnectedRoute {
    /// Whether the address is in this network.
    fn covers(&self, ip: Ipv4Addr) -> bool {
        u32::from(ip) & self.mask == self.destination
    }
}

/// The machine's own addresses: in `/proc/net/fib_trie`, lines `/32 host LOCAL` under a line with the address.
fn parse_local_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            addresses.extend(last.filter(|address: &Ipv4Addr| !address.is_loopback()));
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The lines of `/proc/net/route` without a gateway. Addresses stand there in hexadecimal, least byte first.
fn parse_connected_routes(table: &str) -> Vec<ConnectedRoute> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |index: usize| {
            Some(
                u32::from_str_radix(fields.get(index)?, 16)
                    .ok()?
                    .swap_bytes(),
            )
        };
        let route = ConnectedRoute {
            interface: (*fields.first()?).to_owned(),
            destination: number(1)?,
            mask: number(7)?,
        };
        (number(2)? == 0 && route.mask != 0).then_some(route)
    };
    table.lines().skip(1).filter_map(route).collect()
}

/// A number that may be too large, which is then the largest.
fn to_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{
        HostFigures, Path, Share, ShareError, UNKNOWN, parse_connected_routes, parse_load,
        parse_local_addresses, parse_memory, parse_stalled, parse_swap, sample,
    };

    #[test]
    fn a_share_of_more_than_there_is_is_refused() {
        let share = |mem_mb, disk_mb| Share {
            mem_mb,
            disk_mb,
            cpus: Some(1_000),
        };
        assert_eq!(share(Some(100), Some(50)).check_against(100, 50), Ok(()));
        assert_eq!(share(Some(101), None).check_against(UNKNOWN, 50), Ok(()));
        let memory = ShareError::Memory {
            asked: 101,
            has: 100,
        };
        assert_eq!(share(Some(101), None).check_against(100, 50), Err(memory));
        let disk = ShareError::Disk { asked: 51, has: 50 };
        assert_eq!(share(None, Some(51)).check_against(100, 50), Err(disk));
    }

    const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:         1024000 kB\nMemAvailable:    9000000 kB\n\
        Cached:          4000000 kB\nActive:          9999999 kB\nInactive:        9999999 kB\n\
        Active(file):    2048000 kB\nInactive(file):  1024000 kB\n";

    #[test]
    fn available_memory_is_what_is_free_and_what_caches_files() {
        assert_eq!(parse_memory(MEMINFO), (16_000, 4_000));
        assert_eq!(parse_memory("MemTotal: 2048 kB\n"), (2, -1));
        assert_eq!(parse_memory(""), (-1, -1));
    }

    #[test]
    fn pressure_is_what_all_processes_waited_and_swap_what_is_in_use() {
        let psi = "some avg10=90.11 avg60=0.00 avg300=0.00 total=7\nfull avg10=61.99 avg60=0.20 avg300=0.00 total=5\n";
        assert_eq!(parse_stalled(psi), Some(61));
        assert_eq!(parse_stalled("some avg10=1.00\n"), None);
        let swap = |total: i64, free: i64| format!("SwapTotal: {total} kB\nSwapFree: {free} kB\n");
        assert_eq!(parse_swap(&swap(1000, 250)), Some(75));
        assert_eq!(parse_swap(&swap(0, 0)), None);
        assert_eq!(parse_swap(""), None);
    }

    #[test]
    fn load_is_rounded_down() {
        assert_eq!(parse_load("3.97 2.00 1.00 1/234 5678\n"), 3);
        assert_eq!(parse_load(""), -1);
    }

    #[test]
    fn a_share_bounds_what_is_reported_and_shrinks_by_what_is_used() {
        let machine = HostFigures {
            mem_total_mb: 1000,
            mem_available_mb: 600,
            disk_total_mb: 50,
            disk_available_mb: 40,
            cpus_online: 8,
            ..HostFigures::default()
        };
        let share = Share {
            mem_mb: Some(400),
            cpus: Some(2),
            disk_mb: Some(99),
        };
        let part = share.of(machine.clone(), 100, 0);
        assert_eq!((part.mem_total_mb, part.mem_available_mb), (400, 300));
        assert_eq!((part.disk_total_mb, part.disk_available_mb), (50, 40));
        assert_eq!(part.cpus_online, 2);
        assert_eq!(share.of(machine.clone(), 500, 0).mem_available_mb, 0);
        assert_eq!(Share::default().of(machine.clone(), 100, 0), machine);
    }

    #[test]
    fn an_address_is_found_with_its_interface() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        \
            /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        let addresses = parse_local_addresses(trie);
        assert_eq!(
            addresses,
            ["10.0.0.7".parse::<std::net::Ipv4Addr>().unwrap()]
        );
        let table = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let routes = parse_connected_routes(table);
        assert_eq!(routes.len(), 1);
        assert_eq!(routes[0].interface, "eth0");
        assert!(routes[0].covers(addresses[0]));
        assert!(!routes[0].covers("10.0.1.7".parse().unwrap()));
    }

    #[test]
    fn this_machine_has_figures() {
        let machine = sample(Path::new("/"), Path::new("/proc/pressure/memory"));
        assert!(
            machine.mem_total_mb > 0 && machine.mem_available_mb > 0 && machine.cpus_online > 0
        );
        assert!(
            machine.disk_total_mb >= machine.disk_available_mb && machine.load >= 0,
            "{machine:?}"
        );
    }
}
