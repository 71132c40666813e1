//! Overrides: what of a START is no longer as it says, in a document before it (added by this project):
//!
//! ```text
//! overrides:
//!   restart: true
//!   mem_mb: 1024
//!   vcpus: 4
//!   disk_gb: 20
//!   resources:
//!     gpu: 1
//!   time_used: 90s
//! ...
//! start:
//!   instance_uuid: 0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01
//! ```
//!
//! The line `...` ends it, and what follows is the payload of the START as its controller sent it, byte for byte. Sent to
//! launchers that announced `overrides`; others are sent a START whose text was edited to say the same.
//!
//! A payload whose first document has the key `start` is that START and no overrides, whatever else it has. Schedulers
//! take no other START, so that none from a controller is ever read as overrides.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched_model::record;

use super::document::{Payload, payload};
use super::error::{Fault, PayloadError};
use super::guard::{self, SMALL};
use super::locate::locate;
use super::scheduling::Scheduling;
use super::span::Span;
use super::start::{Start, Storage, add_disk};
use super::trailing;

record! {
    /// `overrides: {restart, mem_mb, …}`: of what is absent, the START behind it says what applies.
    pub struct Overrides {
        /// Whether the instance is to be started again: it ran before.
        restart: bool as "restart" unless empty,
        /// Memory, MiB, not negative.
        mem_mb: Option<i64> as "mem_mb" unless empty,
        /// Virtual CPUs, not negative.
        vcpus: Option<i64> as "vcpus" unless empty,
        /// What the local disks add up to, GiB, not negative: the last of them grows or shrinks, and others shrink where
        /// that is not enough; a START without any gets one.
        disk_gb: Option<i64> as "disk_gb" unless empty,
        /// Custom resources by name, none negative: all of them, so that of those not named here it has 0.
        resources: Option<BTreeMap<String, i64>> as "resources" unless empty,
        /// How much of its time limit the instance has used up on other nodes.
        time_used: Option<Span> as "time_used" unless empty,
    }
}

payload!(Overrides under "overrides", SMALL);

/// Reads a START that a scheduler has placed, with the overrides before it if there are any, for who is to run it.
///
/// # Errors
/// As [`Start::decode_placed`] of the START, whose lines are counted from its own first one; of the overrides, what
/// cannot be read, a negative amount, and a disk of more than 64 bits of MiB.
pub fn decode_start(payload: &[u8]) -> Result<Start, PayloadError> {
    let lacks_start = match Start::decode_placed(payload) {
        Err(error) if is_missing(&error, "start") => error,
        read => return read,
    };
    let (document, behind) = trailing::split(payload);
    let overrides = match Overrides::decode(document) {
        Err(error) if is_missing(&error, "overrides") => return Err(lacks_start),
        read => read?,
    };
    if let Err(error) = overrides.check() {
        return Err(locate(guard::first_document(document, SMALL)?, error));
    }
    let mut start = Start::decode_placed(behind)?;
    overrides.apply(&mut start);
    Ok(start)
}

fn is_missing(error: &PayloadError, key: &str) -> bool {
    error.fault == Fault::Missing && error.key == key
}

impl Overrides {
    /// These overrides and the START that they are for, as one payload.
    #[must_use]
    pub fn before(&self, start: &[u8]) -> Bytes {
        trailing::join(&self.encode(), start)
    }

    /// Makes a START say what applies.
    pub fn apply(&self, start: &mut Start) {
        start.restart |= self.restart;
        start.time_used = self.time_used.or(start.time_used);
        let requirements = &mut start.requirements;
        requirements.mem_mb = self.mem_mb.unwrap_or(requirements.mem_mb);
        requirements.vcpus = self.vcpus.unwrap_or(requirements.vcpus);
        if let Some(disk_gib) = self.disk_gb {
            set_disk(&mut start.storage, disk_gib);
        }
        if let Some(resources) = &self.resources {
            set_resources(&mut start.scheduling, resources);
        }
    }

    fn check(&self) -> Result<(), PayloadError> {
        let amounts = [
            ("mem_mb", self.mem_mb),
            ("vcpus", self.vcpus),
            ("disk_gb", self.disk_gb),
        ];
        for (key, amount) in amounts {
            not_negative(key, amount.unwrap_or_default())?;
        }
        for (name, amount) in self.resources.iter().flatten() {
            not_negative(&format!("resources.{name}"), *amount)?;
        }
        if add_disk(0, self.disk_gb.unwrap_or_default()).is_none() {
            return wrong("disk_gb", Fault::TooLarge);
        }
        Ok(())
    }
}

fn not_negative(key: &str, amount: i64) -> Result<(), PayloadError> {
    if amount < 0 {
        return wrong(key, Fault::Negative(amount));
    }
    Ok(())
}

/// An error about a key of `overrides`.
fn wrong<T>(key: &str, fault: Fault) -> Result<T, PayloadError> {
    Err(PayloadError::new(format!("overrides.{key}"), fault))
}

/// Makes the local disks add up to so much: the last one grows or shrinks, and others only where that is not enough.
fn set_disk(storage: &mut Vec<Storage>, disk_gib: i64) {
    let mut left = disk_gib;
    let has_local = storage.iter().any(|disk| disk.local);
    if !has_local && left > 0 {
        let (local, ephemeral) = (true, true);
        storage.push(Storage {
            local,
            ephemeral,
            ..Storage::default()
        });
    }
    let last = storage.iter().rposition(|disk| disk.local);
    for (at, disk) in storage.iter_mut().enumerate().filter(|(_, it)| it.local) {
        let is_last = Some(at) == last;
        disk.size = if is_last { left } else { disk.size.min(left) };
        left -= disk.size;
    }
}

/// Names that are asked for no more stay with 0: that they were there is no reason to write a document again.
fn set_resources(scheduling: &mut Option<Scheduling>, wanted: &BTreeMap<String, i64>) {
    if wanted.is_empty() && scheduling.is_none() {
        return;
    }
    let resources = &mut scheduling.get_or_insert_default().resources;
    for amount in resources.values_mut() {
        *amount = 0;
    }
    for (name, amount) in wanted {
        resources.insert(name.clone(), *amount);
    }
}

#[cfg(test)]
mod tests {
    use super::{Overrides, Payload, Span, Start, decode_start};
    use crate::payload::{PayloadErrorKind, peek};

    const START: &str = "---
start:
  instance_uuid: a
  storage:
  - local: true
    size: 7
  - size: 9
  - local: true
    size: 3
  requirements:
    mem_mb: 5
    vcpus: 1
  scheduling:
    resources: {gpu: 2, nic: 1}
...
#cloud-config
";

    fn given(overrides: &Overrides) -> Start {
        decode_start(&overrides.before(START.as_bytes())).unwrap()
    }

    #[test]
    fn they_are_written_as_documented() {
        let all = Overrides {
            restart: true,
            mem_mb: Some(1024),
            vcpus: Some(4),
            disk_gb: Some(20),
            resources: Some([("gpu".to_owned(), 1)].into()),
            time_used: Some(Span::from_ms(90_000)),
        };
        let text = "overrides:\n  restart: true\n  mem_mb: 1024\n  vcpus: 4\n  disk_gb: 20\n  resources:\n    gpu: 1\n  time_used: 90s\n";
        assert_eq!(all.encode(), text);
        assert_eq!(Overrides::decode(text.as_bytes()), Ok(all.clone()));
        assert_eq!(all.before(START.as_bytes()), format!("{text}...\n{START}"));
        let none = Overrides {
            resources: Some([].into()),
            ..Overrides::default()
        };
        assert_eq!(none.encode(), "overrides:\n  resources: {}\n");
        assert_eq!(Overrides::decode(&none.encode()), Ok(none));
    }

    #[test]
    fn keys_absent_from_overrides_are_taken_from_the_start() {
        let plain = decode_start(START.as_bytes()).unwrap();
        assert_eq!(given(&Overrides::default()), plain);
        let restart = Overrides {
            restart: true,
            ..Overrides::default()
        };
        let expected = Start {
            restart: true,
            ..plain
        };
        assert_eq!(given(&restart), expected);
    }

    #[test]
    fn resources_that_are_not_named_are_none() {
        let resources = |named: &[(&str, i64)]| {
            let named = named
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), *amount));
            let overrides = Overrides {
                resources: Some(named.collect()),
                ..Overrides::default()
            };
            let left = given(&overrides).scheduling.unwrap().resources;
            left.into_iter()
                .filter(|(_, amount)| *amount > 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(resources(&[]), []);
        let named = resources(&[("nic", 3), ("fpga", 1)]);
        assert_eq!(named, [("fpga".to_owned(), 1), ("nic".to_owned(), 3)]);
    }

    #[test]
    fn the_last_local_disk_grows_or_shrinks_first() {
        for (disk_gb, sizes) in [
            (20, [7, 9, 13]),
            (8, [7, 9, 1]),
            (4, [4, 9, 0]),
            (0, [0, 9, 0]),
        ] {
            let overrides = Overrides {
                disk_gb: Some(disk_gb),
                ..Overrides::default()
            };
            let start = given(&overrides);
            assert_eq!(start.disk_mib(), Some(disk_gb * 1024));
            let found: Vec<i64> = start.storage.iter().map(|disk| disk.size).collect();
            assert_eq!(found, sizes);
        }
        let diskless = b"overrides: {disk_gb: 2}\n...\nstart: {instance_uuid: a}\n";
        assert_eq!(decode_start(diskless).unwrap().disk_mib(), Some(2048));
    }

    #[test]
    fn bad_ones_are_refused_with_their_key_and_place() {
        use PayloadErrorKind::{InvalidData, InvalidPayload};
        for (text, kind, expected) in [
            (
                "overrides: 5",
                InvalidPayload,
                "overrides, line 1 column 12: expected a mapping, found integer `5`",
            ),
            (
                "overrides:\n  mem_mb: x",
                InvalidPayload,
                "overrides.mem_mb, line 2 column 11: expected a whole number, found `x`",
            ),
            (
                "overrides:\n  mem_mb: -1",
                InvalidData,
                "overrides.mem_mb, line 2 column 11: negative: -1",
            ),
            (
                "overrides:\n  vcpus: -1",
                InvalidData,
                "overrides.vcpus, line 2 column 10: negative: -1",
            ),
            (
                "overrides:\n  disk_gb: -1",
                InvalidData,
                "overrides.disk_gb, line 2 column 12: negative: -1",
            ),
            (
                "overrides:\n  disk_gb: 9223372036854775807",
                InvalidData,
                "overrides.disk_gb, line 2 column 12: too large",
            ),
            (
                "overrides:\n  resources: {gpu: -1}",
                InvalidData,
                "overrides.resources.gpu, line 2 column 20: negative: -1",
            ),
        ] {
            let error = decode_start(format!("{text}\n...\n{START}").as_bytes()).unwrap_err();
            assert_eq!((error.kind(), &*error.to_string()), (kind, expected));
        }
    }

    #[test]
    fn a_bad_start_behind_them_is_refused_as_one_alone() {
        for start in [
            "",
            "start: [",
            "start:\n  instance_uuid: \"\"\n",
            "else: 1\n",
        ] {
            let alone = decode_start(start.as_bytes()).unwrap_err();
            assert_eq!(Start::decode_placed(start.as_bytes()), Err(alone.clone()));
            let behind = Overrides::default().before(start.as_bytes());
            assert_eq!(decode_start(&behind), Err(alone), "{start}");
        }
        let nothing = decode_start(b"overrides: {}\n").unwrap_err();
        assert_eq!(nothing.kind(), PayloadErrorKind::InvalidPayload);
    }

    #[test]
    fn what_schedulers_take_from_a_controller_is_never_read_as_overrides() {
        let lone = Overrides::default().before(START.as_bytes());
        let error = peek::start(&lone).unwrap_err();
        assert_eq!(
            error.to_string(),
            "start, line 1 column 1: missing or empty"
        );
        for text in [
            "overrides: {mem_mb: 1}\nstart: {instance_uuid: a, requirements: {mem_mb: 9}}\n...\nstart: {instance_uuid: b}\n",
            "overrides:\n  mem_mb: 1\nstart:\n  instance_uuid: a\n  requirements:\n    mem_mb: 9\n...\nstart:\n  instance_uuid: b\n",
            "start: {instance_uuid: a, requirements: {mem_mb: 9}}\noverrides: {mem_mb: 1}\n",
            "start: {instance_uuid: a, requirements: {mem_mb: 9}, overrides: {mem_mb: 1}}\n---\noverrides: {mem_mb: 1}\n",
            "%YAML 1.1\n---\nstart: {instance_uuid: a, requirements: {mem_mb: 9}}\n",
        ] {
            // The quick reader's answer is what the scheduler accounts by.
            let taken = peek::start(text.as_bytes()).unwrap();
            let start = decode_start(text.as_bytes()).unwrap();
            assert_eq!((&*taken.instance_uuid, taken.mem_mb), ("a", 9), "{text}");
            assert_eq!(
                (&*start.instance_uuid, start.requirements.mem_mb),
                ("a", 9),
                "{text}"
            );
            let behind = decode_start(&Overrides::default().before(text.as_bytes()));
            assert_eq!(behind, Ok(start), "{text}");
        }
    }
}
