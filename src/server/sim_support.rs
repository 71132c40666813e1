//! The doors through which frames pass between peers and the core, for tests and fuzz targets alone and no part of the
//! interface: a simulated network carries the bytes that a real one would.

use bytes::{Bytes, BytesMut};
use proto_frames::payload::CommandRefused;
use proto_frames::{Encoder, Frame, Kind, Term, Uuid};

use super::notices::NoticeText;
use super::store::format;
use super::{Entries, Found, sentences, state, wire};
use sched_core::{
    Action, Input, KnownNode, Message, Notice, Parcel, Record, RecordKey, Refused, RestoredStart,
    Sent, SessionId,
};

/// What the core is told of a peer's frame, as a session reads it.
#[must_use]
pub fn input(session: SessionId, frame: Frame) -> Input {
    wire::input(session, frame)
}

/// Appends the bytes of a message of the core for one peer, as its writer does. `own` is the scheduler's UUID, and the term
/// under which it leads where it is one of several.
pub fn encode(
    message: &Message,
    (own, term): (Uuid, Option<Term>),
    peer: Uuid,
    encoder: &mut Encoder,
    dst: &mut BytesMut,
) {
    let own = wire::Own { uuid: own, term };
    wire::encode(message, own, peer, encoder, dst);
}

/// A frame as the core carries it.
#[must_use]
pub fn parcel(frame: Frame) -> Parcel {
    wire::parcel(frame)
}

/// The frame that a parcel of the core is.
#[must_use]
pub fn frame_of(parcel: &Parcel) -> Frame {
    wire::frame_of(parcel)
}

/// The kind of frame that a peer sends this in.
#[must_use]
pub fn kind_of(sent: Sent) -> Kind {
    wire::kind_of(sent)
}

/// What a native peer is told of something that was refused.
#[must_use]
pub fn refused(refused: &Refused) -> CommandRefused {
    wire::refused(refused)
}

/// A START that was kept, read again; `None` if it cannot be.
#[must_use]
pub fn kept(payload: Bytes, sender: Uuid) -> Option<RestoredStart> {
    wire::kept(payload, sender).ok()
}

/// Writes the sentences for people into what the core wants done.
pub fn word(action: &mut Action) {
    sentences::write(action);
}

/// The line in the log that a notice is.
#[must_use]
pub fn words(notice: &Notice) -> String {
    NoticeText(notice).to_string()
}

/// Records as bytes, as the store writes them.
pub fn entries<'a>(
    records: impl IntoIterator<Item = (&'a RecordKey, &'a Option<Record>)>,
) -> Entries {
    let records = records.into_iter();
    let encode = |(key, record): (&RecordKey, &Option<Record>)| {
        (format::encode_key(key), record.as_ref().map(format::encode))
    };
    records.map(encode).collect()
}

/// Inverse of [`entries`], of records that are there.
///
/// # Panics
/// One cannot be read.
#[must_use]
pub fn records(found: &Found) -> Vec<(RecordKey, Record)> {
    let read = |(key, value): &(Vec<u8>, Vec<u8>)| match format::decode(key, value) {
        Ok(record) => record,
        Err(why) => panic!("a record that was written cannot be read: {why}"),
    };
    found.iter().map(read).collect()
}

/// A list of nodes, as it is written.
#[must_use]
pub fn list_of_nodes(nodes: &[KnownNode]) -> String {
    state::list_of(nodes)
}

/// Inverse of [`list_of_nodes`].
#[must_use]
pub fn read_nodes(text: &str) -> Vec<KnownNode> {
    state::read_nodes(text)
}
