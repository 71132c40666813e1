//! What the store holds on its way to the core: opened at start, its STARTs read again. How it is kept is `store`'s
//! part.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::warn;

use super::store::Opened;
use super::wire;
use sched_core::{self, Record, RecordKey, Restored, RestoredStart};

/// Opens the store, and gives the core's settings what is in it.
///
/// The core is told that it is durable: it then withholds answers until records are on disk.
///
/// # Errors
/// Another process has it open, or the system does not let it be used.
pub(super) fn restore(directory: &Path, scheduler: &mut sched_core::Config) -> io::Result<Opened> {
    let mut opened = Opened::open(directory)?;
    give(std::mem::take(&mut opened.records), scheduler);
    Ok(opened)
}

/// Gives the core's settings these records.
pub(super) fn give(records: Vec<(RecordKey, Record)>, scheduler: &mut sched_core::Config) {
    scheduler.durable = true;
    scheduler.restored = records.into_iter().map(restored).collect();
}

/// The unix time now, in milliseconds; 0 for a clock before 1970.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// A START is kept as the payload that came, and read here in the way that it was read then.
fn restored((key, record): (RecordKey, Record)) -> Restored {
    let start = match (&key, &record) {
        (RecordKey::Instance(name), Record::Instance(instance)) => instance
            .payload
            .as_ref()
            .and_then(|payload| start(name, payload.clone(), instance.sender))
            .map(Box::new),
        (RecordKey::Array(uuid), Record::Array(array)) => {
            let end = usize::try_from(array.start_bytes).unwrap_or(usize::MAX);
            let payload = array.payload.slice(..end.min(array.payload.len()));
            start(&format!("array {uuid}"), payload, array.sender).map(Box::new)
        }
        _ => None,
    };
    Restored { key, record, start }
}

/// A START that was taken in before; `None` if it cannot be read any more, which is possible where limits have changed.
/// The core then no longer manages the instance, with a cause that says so.
fn start(name: &str, payload: bytes::Bytes, sender: proto_frames::Uuid) -> Option<RestoredStart> {
    wire::kept(payload, sender)
        .inspect_err(|why| {
            let detail = &why.detail;
            warn!(
                event = "start_unreadable",
                "the START of {name} cannot be read any more: {detail}"
            );
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto_frames::Uuid;

    use super::{Record, RecordKey, restored};
    use sched_core::{InstanceId, InstanceRecord};

    fn with_payload(payload: &str) -> (RecordKey, Record) {
        let record = InstanceRecord {
            payload: Some(Bytes::copy_from_slice(payload.as_bytes())),
            sender: Uuid::from_u128(7),
            ..InstanceRecord::default()
        };
        let key = RecordKey::Instance("web-1".into());
        (key, Record::Instance(Box::new(record)))
    }

    #[test]
    fn a_start_that_was_kept_is_read_again() {
        let (key, record) = with_payload(
            "start:\n  instance_uuid: web-1\n  requirements:\n    mem_mb: 64\n    vcpus: 2\n",
        );
        let found = restored((key.clone(), record.clone()));
        assert_eq!((found.key, found.record), (key, record));
        let start = found.start.expect("the START can be read");
        let request = start.request;
        assert_eq!(request.instance, InstanceId::new("web-1"));
        assert_eq!((request.asked.mem_mib, request.asked.vcpus), (64, 2));
    }

    #[test]
    fn a_start_that_cannot_be_read_any_more_leaves_its_record() {
        let (key, record) = with_payload("start: [");
        let found = restored((key, record.clone()));
        assert_eq!((found.record, found.start), (record, None));
    }
}
