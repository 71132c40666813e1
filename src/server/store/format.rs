//! What a record is in bytes.
//!
//! ```text
//! key     'i' and the instance as payloads write it
//!         | 'n' and the node's UUID, 16 bytes
//!         | 'b' and a bound UUID, 16 bytes
//!         | 'c' and the UUID of a node that claims are on, 16 bytes
//!         | 'a' and the UUID of an array, 16 bytes
//!         | 'p' and the UUID of an array, of how far it is
//!         | 'e' and the number of a run of an instance that is over, u64 big-endian
//! value   length of the payload, u32 big-endian; 0xffff_ffff = there is none
//!         the payload, as it came
//!         everything else, as a JSON object
//! ```
//!
//! JSON, because names of fields survive additions, a person can read it in a damaged file, and it is there already; a
//! compact encoding without names (postcard) would save a third and would read a record of another version as nonsense.
//! The payload, which is most of a record, is outside of it. Damaged bytes are not looked for here: the database has
//! checksums.
//!
//! A field that is added makes no new format: where it is missing it has its default, and a program that does not know it
//! passes it over. Nor does a kind of record: a program that does not know it names such records as unreadable and leaves
//! them where they are. A format that is newer than this program's is refused.
//!
//! An instance `web-1` with a payload of 29 bytes, its length as hexadecimal digits:
//!
//! ```text
//! key     iweb-1
//! value   0000001d start: {instance_uuid: web-1} {"arrived_ms":1790000000000,"history":[…],…}
//! ```
//!
//! (without the spaces around the payload).

use bytes::Bytes;
use proto_frames::Uuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::private::JsonFault;
use sched_core::{
    ArrayProgressRecord, ArrayRecord, BindingRecord, ClaimsRecord, InstanceRecord, NodeRecord,
    Record, RecordKey, RunRecord,
};

/// The format that is written, and the only one that is read: no program was released that wrote another.
pub(super) const FORMAT: u64 = 2;

/// The first byte of a key says the kind of record. Kinds are added and never given another meaning.
pub(in crate::server) const INSTANCE: u8 = b'i';
const NODE: u8 = b'n';
const BINDING: u8 = b'b';
const CLAIMS: u8 = b'c';
const RUN: u8 = b'e';
const ARRAY: u8 = b'a';
const ARRAY_PROGRESS: u8 = b'p';

/// The length that says that there is no payload. No payload is as long: frames are bounded by far less.
const NO_PAYLOAD: u32 = u32::MAX;

/// Why a record cannot be read. The record is left out and named in the log; it stays in the file.
#[derive(Debug, thiserror::Error)]
pub(in crate::server) enum Unreadable {
    /// Its key is of no kind that there is.
    #[error("a key of no known kind")]
    Key,
    /// Its value ends too early.
    #[error("it ends too early")]
    Short,
    /// The rest of it is not what it should be.
    #[error(transparent)]
    Json(#[from] JsonFault),
}

/// The bytes of a key. Keys of one kind stand together in the table; those of runs ascend with their number, because it
/// is big-endian.
pub(in crate::server) fn encode_key(key: &RecordKey) -> Vec<u8> {
    let number;
    let (kind, name) = match key {
        RecordKey::Run(run) => {
            number = run.to_be_bytes();
            (RUN, &number[..])
        }
        RecordKey::Instance(text) => (INSTANCE, text.as_bytes()),
        RecordKey::Node(uuid) => (NODE, &uuid.as_bytes()[..]),
        RecordKey::Binding(uuid) => (BINDING, &uuid.as_bytes()[..]),
        RecordKey::Claims(uuid) => (CLAIMS, &uuid.as_bytes()[..]),
        RecordKey::Array(uuid) => (ARRAY, &uuid.as_bytes()[..]),
        RecordKey::ArrayProgress(uuid) => (ARRAY_PROGRESS, &uuid.as_bytes()[..]),
    };
    let mut bytes = Vec::with_capacity(1 + name.len());
    bytes.push(kind);
    bytes.extend_from_slice(name);
    bytes
}

/// The value of a record: its payload, where it has one, outside of the JSON.
pub(in crate::server) fn encode(record: &Record) -> Vec<u8> {
    match record {
        Record::Instance(instance) => join(instance.payload.as_deref(), instance),
        Record::Node(node) => join(None, node),
        Record::Binding(binding) => join(None, binding),
        Record::Claims(claims) => join(None, claims),
        Record::Run(run) => join(None, run),
        Record::Array(array) => join(Some(&array.payload), array),
        Record::ArrayProgress(progress) => join(None, progress),
    }
}

/// The record of these bytes, in the format of this program ([`FORMAT`]). Fields that are missing have their defaults;
/// unknown fields are passed over.
///
/// # Errors
/// [`Unreadable`]. A length that is longer than the value is compared with it before anything is copied.
pub(in crate::server) fn decode(
    key: &[u8],
    value: &[u8],
) -> Result<(RecordKey, Record), Unreadable> {
    let (payload, rest) = split(value)?;
    match key.split_first() {
        Some((&INSTANCE, name)) => {
            let name = std::str::from_utf8(name).map_err(|_| Unreadable::Key)?;
            let mut record: InstanceRecord = from_json(rest)?;
            record.payload = payload.map(Bytes::copy_from_slice);
            let record = Record::Instance(Box::new(record));
            Ok((RecordKey::Instance(name.into()), record))
        }
        Some((&NODE, name)) => {
            let uuid = Uuid::from_slice(name).map_err(|_| Unreadable::Key)?;
            let record: NodeRecord = from_json(rest)?;
            Ok((RecordKey::Node(uuid), Record::Node(record)))
        }
        Some((&BINDING, name)) => {
            let uuid = Uuid::from_slice(name).map_err(|_| Unreadable::Key)?;
            let record: BindingRecord = from_json(rest)?;
            Ok((RecordKey::Binding(uuid), Record::Binding(record)))
        }
        Some((&CLAIMS, name)) => {
            let uuid = Uuid::from_slice(name).map_err(|_| Unreadable::Key)?;
            let record: ClaimsRecord = from_json(rest)?;
            Ok((RecordKey::Claims(uuid), Record::Claims(record)))
        }
        Some((&ARRAY, name)) => {
            let uuid = Uuid::from_slice(name).map_err(|_| Unreadable::Key)?;
            let mut record: ArrayRecord = from_json(rest)?;
            record.payload = Bytes::copy_from_slice(payload.unwrap_or_default());
            Ok((RecordKey::Array(uuid), Record::Array(Box::new(record))))
        }
        Some((&ARRAY_PROGRESS, name)) => {
            let uuid = Uuid::from_slice(name).map_err(|_| Unreadable::Key)?;
            let record: ArrayProgressRecord = from_json(rest)?;
            Ok((
                RecordKey::ArrayProgress(uuid),
                Record::ArrayProgress(record),
            ))
        }
        Some((&RUN, name)) => {
            let number = run_number(name).ok_or(Unreadable::Key)?;
            let record: RunRecord = from_json(rest)?;
            Ok((RecordKey::Run(number), Record::Run(Box::new(record))))
        }
        _ => Err(Unreadable::Key),
    }
}

/// A key in words, for people. In log lines about records that cannot be read; bytes that are no text are escaped.
pub(in crate::server) fn name(key: &[u8]) -> String {
    match key.split_first() {
        Some((&INSTANCE, name)) => format!("instance {}", name.escape_ascii()),
        Some((&NODE, name)) => format!("node {}", uuid_or_bytes(name)),
        Some((&BINDING, name)) => format!("bound UUID {}", uuid_or_bytes(name)),
        Some((&CLAIMS, name)) => format!("claims on node {}", uuid_or_bytes(name)),
        Some((&ARRAY, name)) => format!("array {}", uuid_or_bytes(name)),
        Some((&ARRAY_PROGRESS, name)) => format!("progress of array {}", uuid_or_bytes(name)),
        Some((&RUN, name)) => match run_number(name) {
            Some(number) => format!("ended instance {number}"),
            None => format!("key {}", key.escape_ascii()),
        },
        _ => format!("key {}", key.escape_ascii()),
    }
}

/// The number of a run in its key; `None` if it is not eight bytes long.
fn run_number(name: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(name.try_into().ok()?))
}

/// A UUID, or the bytes escaped where they are none.
fn uuid_or_bytes(name: &[u8]) -> String {
    Uuid::from_slice(name).map_or_else(|_| name.escape_ascii().to_string(), |uuid| uuid.to_string())
}

/// A payload's length, the payload, and the rest as JSON.
fn join(payload: Option<&[u8]>, rest: &impl Serialize) -> Vec<u8> {
    let payload_len = payload.map_or(NO_PAYLOAD, |payload| {
        u32::try_from(payload.len()).expect("a frame's payload is shorter than 4 GiB")
    });
    let mut bytes = payload_len.to_be_bytes().to_vec();
    bytes.extend_from_slice(payload.unwrap_or_default());
    serde_json::to_writer(&mut bytes, rest)
        .expect("plain data with names for keys has a JSON form");
    bytes
}

/// Inverse of [`join`]: payload and JSON, borrowed.
fn split(value: &[u8]) -> Result<(Option<&[u8]>, &[u8]), Unreadable> {
    let (len, rest) = value.split_first_chunk().ok_or(Unreadable::Short)?;
    match u32::from_be_bytes(*len) {
        NO_PAYLOAD => Ok((None, rest)),
        len => {
            let len = usize::try_from(len).map_err(|_| Unreadable::Short)?;
            let (payload, rest) = rest.split_at_checked(len).ok_or(Unreadable::Short)?;
            Ok((Some(payload), rest))
        }
    }
}

fn from_json<T: DeserializeOwned>(rest: &[u8]) -> Result<T, Unreadable> {
    Ok(serde_json::from_slice(rest).map_err(JsonFault::from)?)
}
