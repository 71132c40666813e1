//! What is kept of one end, and what that is in bytes.
//!
//! ```text
//! a field     tag, a byte below 0x80, and a number, as a variable-length integer (LEB128)
//!             | tag, a byte from 0x80, and the length of a text or a UUID, likewise, and its bytes
//! a record    its fields, in the order of their tags; what is not known is left out
//! ```
//!
//! Tags are added and never given another meaning; one that is not known is passed over. Times but that of the end are how
//! much earlier something was, so that most take two or three bytes. A usual end without labels has about 150 bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proto_frames::Uuid;
use proto_frames::payload::array::element_uuid;
use proto_frames::payload::{EndOutcome, EndedRun};

/// One end. Borrows its texts from the record that it is made of, or from the bytes that it is read of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::server) struct EndRow<'a> {
    pub(in crate::server) instance: Id<'a>,
    pub(in crate::server) name: &'a str,
    /// Where it was an element of an array, its index.
    pub(in crate::server) index: Option<u64>,
    pub(in crate::server) program: &'a str,
    pub(in crate::server) tenant: Id<'a>,
    pub(in crate::server) node: Option<Uuid>,
    pub(in crate::server) hostname: &'a str,
    /// A word of [`EndOutcome`].
    pub(in crate::server) outcome: &'a str,
    pub(in crate::server) exit_code: Option<i64>,
    /// Why its START failed; empty if it did not.
    pub(in crate::server) failed: &'a str,
    pub(in crate::server) detail: &'a str,
    /// When it ended, unix milliseconds.
    pub(in crate::server) ended_ms: u64,
    /// When it was put on record, by the clock of the system: later ends have later ones, as long as that is not set back.
    /// The other times are by the clock of the core, which goes on from where that was at its start.
    pub(in crate::server) noted_ms: u64,
    pub(in crate::server) submitted_ms: Option<u64>,
    pub(in crate::server) started_ms: Option<u64>,
    pub(in crate::server) run: u64,
    pub(in crate::server) restarts: u64,
    pub(in crate::server) retries: u64,
    pub(in crate::server) ran_ms: Option<u64>,
    pub(in crate::server) peak_kib: Option<u64>,
    pub(in crate::server) cpu_ms: Option<u64>,
    pub(in crate::server) output_bytes: Option<u64>,
    /// Who asked for its end; empty where it ended by itself, or that is not known.
    pub(in crate::server) by: &'a str,
    /// Its labels, a line `KEY=VALUE` each ([`labels_of`]).
    pub(in crate::server) labels: Cow<'a, str>,
}

/// Labels as they are kept. One that would not be a line is left out: the scheduler takes none, and its launcher has put it
/// there.
pub(super) fn labels_of(labels: &BTreeMap<String, String>) -> String {
    let is_line = |text: &str| !text.contains(char::is_control);
    let lines = labels
        .iter()
        .filter(|(key, value)| is_line(key) && is_line(value) && !key.contains('='));
    lines
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

/// An identifier: mostly a UUID, which takes half as much in its own form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Id<'a> {
    Uuid(Uuid),
    /// Another text; empty for none.
    Text(&'a str),
}

impl Default for Id<'_> {
    fn default() -> Self {
        Self::Text("")
    }
}

impl<'a> Id<'a> {
    /// The identifier of a text. Only the usual form of a UUID counts as one, so that each text comes back as it was.
    pub(in crate::server) fn new(text: &'a str) -> Self {
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.to_string() == text => Self::Uuid(uuid),
            _ => Self::Text(text),
        }
    }

    /// The same of a UUID as people write it, with capitals or without.
    pub(super) fn of_any_case(text: &'a str) -> Self {
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.to_string().eq_ignore_ascii_case(text) => Self::Uuid(uuid),
            _ => Self::Text(text),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Uuid(uuid) => uuid.to_string(),
            Self::Text(text) => text.to_owned(),
        }
    }
}

/// Fields that are numbers.
mod number {
    pub(super) const ENDED: u8 = 0x01;
    /// How much later the scheduler learned of it.
    pub(super) const NOTED: u8 = 0x02;
    /// How much earlier.
    pub(super) const SUBMITTED: u8 = 0x03;
    /// How much earlier.
    pub(super) const STARTED: u8 = 0x04;
    /// 2n, or for negative ones -2n - 1.
    pub(super) const EXIT_CODE: u8 = 0x05;
    /// The place of its word among those of this version, which are added at the end.
    pub(super) const OUTCOME: u8 = 0x06;
    pub(super) const RUN: u8 = 0x07;
    pub(super) const RESTARTS: u8 = 0x08;
    pub(super) const RAN: u8 = 0x09;
    pub(super) const PEAK: u8 = 0x0a;
    pub(super) const CPU: u8 = 0x0b;
    pub(super) const OUTPUT: u8 = 0x0c;
    pub(super) const INDEX: u8 = 0x0d;
    pub(super) const RETRIES: u8 = 0x0e;
    /// How much earlier it was put on record, by a clock that was set back since the end was timed.
    pub(super) const NOTED_BEFORE: u8 = 0x0f;
}

/// Fields that are bytes.
mod text {
    pub(super) const INSTANCE_UUID: u8 = 0x81;
    pub(super) const INSTANCE: u8 = 0x82;
    pub(super) const NODE: u8 = 0x83;
    pub(super) const HOSTNAME: u8 = 0x84;
    pub(super) const NAME: u8 = 0x85;
    pub(super) const TENANT_UUID: u8 = 0x86;
    pub(super) const TENANT: u8 = 0x87;
    pub(super) const PROGRAM: u8 = 0x88;
    pub(super) const FAILED: u8 = 0x89;
    pub(super) const DETAIL: u8 = 0x8a;
    pub(super) const BY: u8 = 0x8b;
    pub(super) const LABELS: u8 = 0x8c;
}

/// The word for an outcome that is not known ([`EndOutcome::Unknown`]).
pub(super) const UNKNOWN: &str = "unknown";

/// From this tag on, a field is bytes.
const FIRST_OF_BYTES: u8 = 0x80;

impl<'a> EndRow<'a> {
    /// The bytes of it.
    pub(in crate::server) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(192));
        out.number(number::ENDED, self.ended_ms);
        out.number(number::NOTED, self.noted_ms.saturating_sub(self.ended_ms));
        let before = |at: u64| self.ended_ms.saturating_sub(at);
        out.known(number::SUBMITTED, self.submitted_ms.map(before));
        out.known(number::STARTED, self.started_ms.map(before));
        let zigzag = |code: i64| ((code << 1) ^ (code >> 63)).cast_unsigned();
        out.known(number::EXIT_CODE, self.exit_code.map(zigzag));
        out.known(number::OUTCOME, place_of(self.outcome));
        out.known(number::RUN, Some(self.run).filter(|run| *run > 0));
        out.known(number::RESTARTS, Some(self.restarts).filter(|it| *it > 0));
        out.known(number::RETRIES, Some(self.retries).filter(|it| *it > 0));
        out.known(number::RAN, self.ran_ms);
        out.known(number::PEAK, self.peak_kib);
        out.known(number::CPU, self.cpu_ms);
        out.known(number::OUTPUT, self.output_bytes);
        out.known(number::INDEX, self.index);
        let noted_before = Some(before(self.noted_ms)).filter(|ms| *ms > 0);
        out.known(number::NOTED_BEFORE, noted_before);
        out.id(text::INSTANCE_UUID, text::INSTANCE, self.instance);
        if let Some(node) = self.node {
            out.bytes(text::NODE, node.as_bytes());
        }
        out.bytes(text::HOSTNAME, self.hostname.as_bytes());
        out.bytes(text::NAME, self.name.as_bytes());
        out.id(text::TENANT_UUID, text::TENANT, self.tenant);
        out.bytes(text::PROGRAM, self.program.as_bytes());
        out.bytes(text::FAILED, self.failed.as_bytes());
        out.bytes(text::DETAIL, self.detail.as_bytes());
        out.bytes(text::BY, self.by.as_bytes());
        out.bytes(text::LABELS, self.labels.as_bytes());
        out.0
    }

    /// What was encoded so; `None` where that is damaged.
    pub(in crate::server) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Reader(bytes);
        let mut row = Self {
            outcome: UNKNOWN,
            ..Self::default()
        };
        let (mut noted, mut noted_before) = (0, 0);
        let (mut submitted, mut started) = (None, None);
        while let Some(tag) = rest.byte() {
            if tag >= FIRST_OF_BYTES {
                let bytes = rest.bytes()?;
                row.take_bytes(tag, bytes)?;
                continue;
            }
            let value = rest.number()?;
            match tag {
                number::ENDED => row.ended_ms = value,
                number::NOTED => noted = value,
                number::SUBMITTED => submitted = Some(value),
                number::STARTED => started = Some(value),
                number::EXIT_CODE => {
                    let code = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
                    row.exit_code = Some(code);
                }
                number::OUTCOME => row.outcome = word_at(value),
                number::RUN => row.run = value,
                number::RESTARTS => row.restarts = value,
                number::RETRIES => row.retries = value,
                number::RAN => row.ran_ms = Some(value),
                number::PEAK => row.peak_kib = Some(value),
                number::CPU => row.cpu_ms = Some(value),
                number::OUTPUT => row.output_bytes = Some(value),
                number::INDEX => row.index = Some(value),
                number::NOTED_BEFORE => noted_before = value,
                _ => {}
            }
        }
        let noted_ms = row.ended_ms.saturating_add(noted);
        row.noted_ms = noted_ms.saturating_sub(noted_before);
        row.submitted_ms = submitted.map(|it| row.ended_ms.saturating_sub(it));
        row.started_ms = started.map(|it| row.ended_ms.saturating_sub(it));
        Some(row)
    }

    fn take_bytes(&mut self, tag: u8, bytes: &'a [u8]) -> Option<()> {
        let text = || std::str::from_utf8(bytes).ok();
        let uuid = || Uuid::from_slice(bytes).ok();
        match tag {
            text::INSTANCE_UUID => self.instance = Id::Uuid(uuid()?),
            text::INSTANCE => self.instance = Id::Text(text()?),
            text::NODE => self.node = Some(uuid()?),
            text::HOSTNAME => self.hostname = text()?,
            text::NAME => self.name = text()?,
            text::TENANT_UUID => self.tenant = Id::Uuid(uuid()?),
            text::TENANT => self.tenant = Id::Text(text()?),
            text::PROGRAM => self.program = text()?,
            text::FAILED => self.failed = text()?,
            text::DETAIL => self.detail = text()?,
            text::BY => self.by = text()?,
            text::LABELS => self.labels = text()?.into(),
            _ => {}
        }
        Some(())
    }

    /// The array that it was an element of: its own UUID and its index say which.
    pub(super) fn array(&self) -> Option<Uuid> {
        let index = u32::try_from(self.index?).ok()?;
        match self.instance {
            Id::Uuid(uuid) => Some(element_uuid(uuid, index)),
            Id::Text(_) => None,
        }
    }

    /// As it is shown, under its number.
    pub(in crate::server) fn view(&self, number: u64) -> EndedRun {
        let ms = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        EndedRun {
            number,
            instance_uuid: self.instance.text(),
            name: self.name.to_owned(),
            array_uuid: self.array().map(|it| it.to_string()).unwrap_or_default(),
            index: self.index,
            program: self.program.to_owned(),
            tenant: self.tenant.text(),
            node_uuid: self.node.map(|it| it.to_string()).unwrap_or_default(),
            hostname: self.hostname.to_owned(),
            outcome: EndOutcome::from(self.outcome),
            exit_code: self.exit_code,
            failed: self.failed.to_owned(),
            detail: self.detail.to_owned(),
            submitted_at_ms: self.submitted_ms.map(ms),
            started_at_ms: self.started_ms.map(ms),
            ended_at_ms: ms(self.ended_ms),
            run: Some(self.run).filter(|run| *run > 0),
            restarts: self.restarts,
            retries: self.retries,
            ran_ms: self.ran_ms,
            peak_kib: self.peak_kib,
            cpu_ms: self.cpu_ms,
            output_bytes: self.output_bytes,
            by: self.by.to_owned(),
            labels: self
                .labels()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        }
    }

    /// Its labels.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.lines().filter_map(|line| line.split_once('='))
    }
}

/// Where an outcome's word is among all.
fn place_of(word: &str) -> Option<u64> {
    let at = EndOutcome::KNOWN.iter().position(|known| *known == word)?;
    u64::try_from(at).ok()
}

/// The word at this place; one of a later version is not known.
fn word_at(place: u64) -> &'static str {
    let known = usize::try_from(place)
        .ok()
        .and_then(|at| EndOutcome::KNOWN.get(at));
    known.copied().unwrap_or(UNKNOWN)
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, tag: u8, value: u64) {
        self.0.push(tag);
        self.varint(value);
    }

    fn known(&mut self, tag: u8, value: Option<u64>) {
        if let Some(value) = value {
            self.number(tag, value);
        }
    }

    /// Nothing for no bytes.
    fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.number(tag, bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
    }

    fn id(&mut self, as_uuid: u8, as_text: u8, id: Id<'_>) {
        match id {
            Id::Uuid(uuid) => self.bytes(as_uuid, uuid.as_bytes()),
            Id::Text(text) => self.bytes(as_text, text.as_bytes()),
        }
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = (value & 0x7f).to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> EndRow<'static> {
        EndRow {
            instance: Id::new("0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01"),
            name: "nightly-render-0417",
            program: "render --frame 0417",
            tenant: Id::new("2491851d-dce9-48d6-b83a-a717417072ce"),
            node: Some(Uuid::from_u128(7)),
            hostname: "compute-0017.rack-3.example.org",
            outcome: "failed",
            exit_code: Some(-9),
            failed: "",
            detail: "",
            ended_ms: 1_795_000_000_000,
            noted_ms: 1_795_000_000_900,
            submitted_ms: Some(1_794_990_000_000),
            started_ms: Some(1_794_993_600_000),
            run: 1,
            index: Some(417),
            restarts: 2,
            retries: 1,
            ran_ms: Some(6_400_000),
            peak_kib: Some(8_388_608),
            cpu_ms: Some(51_000_000),
            output_bytes: Some(1 << 30),
            by: "",
            labels: Cow::Borrowed(""),
        }
    }

    #[test]
    fn an_end_with_every_field_comes_back_and_takes_no_more_than_300_bytes() {
        let row = usual();
        let bytes = row.encode();
        assert_eq!(EndRow::decode(&bytes), Some(row));
        // With its key, which is a number of eight bytes.
        assert!(bytes.len() + 8 <= 300, "{} bytes", bytes.len());
    }

    #[test]
    fn who_ended_it_and_its_labels_come_back() {
        let labels = [("project", "apollo"), ("run", "7")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut labels: BTreeMap<String, String> = labels.into();
        let row = EndRow {
            by: "operator CN=alice",
            labels: labels_of(&labels).into(),
            ..usual()
        };
        let bytes = row.encode();
        let read = EndRow::decode(&bytes).unwrap();
        assert_eq!(read, row);
        let view = read.view(1);
        assert_eq!((&*view.by, &view.labels), ("operator CN=alice", &labels));
        // From a launcher that checks nothing.
        labels.insert("a=b".to_owned(), "c".to_owned());
        labels.insert("line".to_owned(), "d\nproject=other".to_owned());
        assert_eq!(labels_of(&labels), "project=apollo\nrun=7\n");
    }

    #[test]
    fn when_an_end_was_put_on_record_comes_back_whatever_its_own_time_is() {
        for noted_ms in [0, 999, 1000, 1001, u64::MAX] {
            let row = EndRow {
                outcome: "unknown",
                ended_ms: 1000,
                noted_ms,
                ..EndRow::default()
            };
            assert_eq!(EndRow::decode(&row.encode()), Some(row));
        }
    }

    #[test]
    fn texts_that_are_no_usual_uuid_come_back_as_they_were() {
        for text in [
            "",
            "web-1",
            "0C7A5F7E-55F1-4F0C-9A53-6F9B7D2F3A01",
            "0c7a5f7e55f14f0c9a536f9b7d2f3a01",
        ] {
            let row = EndRow {
                instance: Id::new(text),
                outcome: "unknown",
                ..EndRow::default()
            };
            let bytes = row.encode();
            assert_eq!(EndRow::decode(&bytes).unwrap().view(1).instance_uuid, text);
        }
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over_and_what_is_cut_short_is_no_end() {
        let mut bytes = usual().encode();
        bytes.extend([0x7f, 0xff, 0x01, 0xff, 3, b'a', b'b', b'c']);
        assert_eq!(EndRow::decode(&bytes), Some(usual()));
        let whole = usual().encode();
        let damaged = (0..whole.len()).filter(|len| EndRow::decode(&whole[..*len]).is_none());
        assert!(damaged.count() > whole.len() / 2);
    }
}
