//! The payloads of a load run: made from templates and read by looking for one key, because a parser per frame would
//! make the generator the bottleneck.
//!
//! Reading by key is safe here because it only decides what is counted: a payload of another layout is counted as
//! foreign or unreadable. For the same reason nothing here is used outside load runs.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proto_frames::Uuid;
use proto_frames::payload::{Payload, Ready, Stats};

use crate::load::scheduling::Scheduling;

/// Disk each simulated launcher reports, in units of 10⁶ bytes; STARTs of a load run ask for none.
const DISK_MB: i64 = 500_000;

/// CPUs each simulated launcher reports: so many that memory alone decides.
const CPUS: i64 = 1_000_000;

/// What the STARTs of a load run are and its launchers run, and no others: work of others is not placed on simulated
/// nodes, which would lose it, nor that of the run on launchers of this project.
pub const VM_TYPE: &str = "load";

/// The label that the launchers of a run have beside others, with [`RunId::mark`] as its value.
pub const RUN_LABEL: &str = "load.run";

/// Length of a UUID in text.
const UUID_LEN: usize = 36;

/// As this project writes it in YAML, and the original too.
const INSTANCE_KEY: &[u8] = b"instance_uuid: ";

/// What marks the messages of one run: the first eight digits of its instances' UUIDs.
///
/// Random for each run, so that the messages of an earlier run are recognised as foreign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunId(u32);

impl RunId {
    /// The mark with this number.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self(id)
    }

    /// UUID of instance number `seq`, a valid version 4 UUID in text.
    ///
    /// `0a1b2c3d-0000-4000-8000-00000000002a` is instance 42 of run `0a1b2c3d`.
    #[must_use]
    pub fn instance(self, seq: usize) -> String {
        format!("{:08x}-0000-4000-8000-{seq:012x}", self.0)
    }

    /// The number of the first instance that a payload names, if it is one of this run.
    ///
    /// `None` for another run, and for a payload that names no instance.
    #[must_use]
    pub fn seq_in(self, payload: &[u8]) -> Option<usize> {
        let value = value_of(payload, INSTANCE_KEY)?;
        let id = std::str::from_utf8(value.get(..UUID_LEN)?).ok()?;
        let (run, rest) = id.split_at_checked(8)?;
        let seq = rest.strip_prefix("-0000-4000-8000-")?;
        (u32::from_str_radix(run, 16) == Ok(self.0)).then_some(())?;
        usize::from_str_radix(seq, 16).ok()
    }

    /// What tells the launchers of this run from those of other runs, as a label's value: never a number.
    ///
    /// Required by the STARTs of a run with `--force`.
    #[must_use]
    pub fn mark(self) -> String {
        format!("run-{:08x}", self.0)
    }

    /// Host name of simulated launcher number `index`.
    ///
    /// By it the STATS of this run are recognised.
    #[must_use]
    pub fn hostname(self, index: usize) -> String {
        format!("load-{:08x}-{index}", self.0)
    }

    /// Whether a STATS payload comes from a launcher of this run.
    #[must_use]
    pub fn reported(self, payload: &[u8]) -> bool {
        let mark = format!("load-{:08x}-", self.0);
        value_of(payload, b"hostname: ").is_some_and(|value| value.starts_with(mark.as_bytes()))
    }
}

/// The reason in a StartFailure payload.
#[must_use]
pub fn reason_in(payload: &[u8]) -> &str {
    value_of(payload, b"reason: ")
        .and_then(|value| std::str::from_utf8(value).ok())
        .unwrap_or("unreadable")
}

/// What a simulated launcher says of itself.
///
/// All launchers of a run differ only in these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The node.
    pub node: Uuid,
    /// Its host name.
    pub hostname: String,
    /// Its memory, in MiB, all of it free.
    pub mem_mib: u64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl Report {
    /// The payload of READY.
    ///
    /// Encoded from the real payload type, so that it is valid by construction.
    #[must_use]
    pub fn ready(&self) -> Bytes {
        self.figures().encode()
    }

    /// The payload of STATS, with no instances: what READY says, and the status.
    #[must_use]
    pub fn stats(&self) -> Bytes {
        Stats {
            status: "READY".to_owned(),
            ..Stats::from(self.figures())
        }
        .encode()
    }

    /// Everything is free, and CPUs and disk are plenty, so that memory and labels decide the placement.
    fn figures(&self) -> Ready {
        let mem_mib = i64::try_from(self.mem_mib).unwrap_or(i64::MAX);
        Ready {
            node_uuid: self.node.to_string(),
            mem_total_mb: mem_mib,
            mem_available_mb: mem_mib,
            disk_total_mb: DISK_MB,
            disk_available_mb: DISK_MB,
            load: 0,
            cpus_online: CPUS,
            hostname: self.hostname.clone(),
            labels: self.labels.clone(),
            vm_types: vec![VM_TYPE.to_owned()],
            ..Ready::default()
        }
    }
}

/// What the STARTs of a run ask for.
///
/// The default asks for nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct StartShape<'a> {
    /// Memory, in MiB.
    pub mem_mib: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// The node they are pinned to, if any.
    pub node: Option<Uuid>,
    /// Bytes of comment at the end.
    pub pad: usize,
    /// Their `scheduling` section, if any.
    pub scheduling: Option<&'a Scheduling>,
}

/// The STARTs of a run: one template in which the instance's UUID is put.
///
/// The text is built once; each START is a copy with 36 bytes replaced.
#[derive(Debug, Clone)]
pub struct StartTemplate {
    run: RunId,
    bytes: Vec<u8>,
    /// Where the instance's UUID stands in `bytes`.
    at: usize,
}

impl StartTemplate {
    /// STARTs of this shape.
    ///
    /// Padding is a YAML comment, which the scheduler carries along without a meaning.
    #[must_use]
    pub fn new(run: RunId, shape: StartShape<'_>) -> Self {
        let StartShape {
            mem_mib,
            vcpus,
            node,
            pad,
            scheduling,
        } = shape;
        let pin = node.map_or_else(String::new, |node| format!("    node_id: {node}\n"));
        let scheduling = scheduling.map_or("", Scheduling::lines);
        let mut text = format!(
            "start:\n  tenant_uuid: 2491851d-dce9-48d6-b83a-a717417072ce\n  instance_uuid: {}\n  \
             docker_image: docker/latest\n  fw_type: efi\n  persistence: host\n  vm_type: {VM_TYPE}\n  networking:\n    \
             vnic_mac: \"\"\n    vnic_uuid: \"\"\n    concentrator_uuid: \"\"\n    concentrator_ip: \"\"\n    \
             subnet: \"\"\n    subnet_key: \"\"\n    subnet_uuid: \"\"\n    private_ip: \"\"\n    public_ip: false\n  \
             requirements:\n    mem_mb: {mem_mib}\n    vcpus: {vcpus}\n{pin}  restart: false\n{scheduling}",
            run.instance(0)
        );
        if pad > 0 {
            text.push('#');
            text.push_str(&"x".repeat(pad));
            text.push('\n');
        }
        let bytes = text.into_bytes();
        let at =
            position(&bytes, INSTANCE_KEY).expect("the template has the key") + INSTANCE_KEY.len();
        Self { run, bytes, at }
    }

    /// The START of instance number `seq`.
    ///
    /// Costs one copy of the payload.
    #[must_use]
    pub fn start(&self, seq: usize) -> Bytes {
        let mut bytes = BytesMut::from(&self.bytes[..]);
        bytes[self.at..self.at + UUID_LEN].copy_from_slice(self.run.instance(seq).as_bytes());
        bytes.freeze()
    }

    /// Size of each payload, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }
}

/// What stands behind `key` on its line, without quotes.
///
/// The first occurrence counts.
fn value_of<'a>(payload: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let value = &payload[position(payload, key)? + key.len()..];
    let value = &value[..value
        .iter()
        .position(|byte| matches!(byte, b'\n' | b'\r'))
        .unwrap_or(value.len())];
    match value {
        [b'"' | b'\'', inner @ .., b'"' | b'\''] => Some(inner),
        _ => Some(value),
    }
}

/// `None` if it is not there.
fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::Start;

    use super::*;

    #[test]
    fn the_number_of_a_start_comes_back_out_of_it() {
        let run = RunId::new(0xbeef);
        let shape = StartShape {
            pad: 100,
            ..StartShape::default()
        };
        let template = StartTemplate::new(run, shape);
        for seq in [0, 1, 4095, 123_456_789] {
            let start = template.start(seq);
            assert_eq!(run.seq_in(&start), Some(seq));
            assert_eq!(start.len(), template.size());
        }
        assert_eq!(
            RunId::new(0xbee0).seq_in(&template.start(7)),
            None,
            "another run's"
        );
    }

    #[test]
    fn quoted_values_and_strangers_are_understood() {
        let run = RunId::new(1);
        assert_eq!(
            run.seq_in(b"instance_uuid: \"00000001-0000-4000-8000-00000000000a\"\r\n"),
            Some(10)
        );
        assert_eq!(run.seq_in(b"instance_uuid: 1\n"), None);
        assert_eq!(
            run.seq_in("instance_uuid: ééééééééééééééééééé\n".as_bytes()),
            None
        );
        assert_eq!(run.seq_in(b""), None);
        assert_eq!(
            reason_in(b"node_uuid: x\nreason: full_cloud\nrestart: false\n"),
            "full_cloud"
        );
        assert_eq!(reason_in(b"nothing"), "unreadable");
    }

    #[test]
    fn a_runs_own_reports_are_told_from_others() {
        let run = RunId::new(7);
        let report = |hostname: &str| Report {
            node: Uuid::nil(),
            hostname: hostname.to_owned(),
            mem_mib: 1,
            labels: BTreeMap::new(),
        };
        assert!(run.reported(&report(&run.hostname(3)).stats()));
        assert!(!run.reported(&report("load-elsewhere").stats()));
    }

    #[test]
    fn ready_and_stats_say_the_same_of_a_launcher() {
        let report = Report {
            node: Uuid::from_u128(7),
            hostname: "load-1".into(),
            mem_mib: 4096,
            labels: [
                ("zone".into(), "zone-2".into()),
                ("true".into(), "true-1".into()),
            ]
            .into(),
        };
        let ready = Ready::decode(&report.ready()).unwrap();
        let stats = Stats::decode(&report.stats()).unwrap();
        assert_eq!(
            (&ready.labels, &stats.labels),
            (&report.labels, &report.labels)
        );
        assert_eq!(ready.mem_available_mb, 4096);
        assert_eq!(
            (
                ready.mem_total_mb,
                ready.disk_available_mb,
                ready.cpus_online,
                &ready.hostname
            ),
            (
                stats.mem_total_mb,
                stats.disk_available_mb,
                stats.cpus_online,
                &stats.hostname
            )
        );
    }

    #[test]
    fn a_start_has_its_scheduling_section_and_is_a_start_all_the_same() {
        let scheduling = Scheduling::read("{priority: 50, require: [zone = zone-1]}").unwrap();
        let shape = StartShape {
            mem_mib: 64,
            vcpus: 1,
            pad: 10,
            scheduling: Some(&scheduling),
            ..StartShape::default()
        };
        let payload = StartTemplate::new(RunId::new(1), shape).start(3);
        let start = Start::decode(&payload).unwrap();
        assert_eq!(start.requirements.mem_mb, 64);
        assert_eq!(start.instance_uuid, RunId::new(1).instance(3));
        let text = std::str::from_utf8(&payload).unwrap();
        assert!(text.contains("  scheduling:\n    priority: 50\n"), "{text}");
    }
}
