//! Formats: those of other programs are set aside, and one record that cannot be read harms no other.

use redb::{Database, TableDefinition};

use super::*;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");

/// A store of another program: its format, and its records byte for byte.
fn of_format(directory: &Path, format: u64, records: &[(&[u8], &[u8])]) {
    let database = Database::create(directory.join(STORE_FILE)).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut about = transaction.open_table(ABOUT).unwrap();
        about.insert("format", format).unwrap();
        let mut table = transaction.open_table(RECORDS).unwrap();
        for (key, value) in records {
            table.insert(*key, *value).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// A value as a program wrote it before instances had a history.
const FIRST: &[u8] =
    b"\x00\x00\x00\x07start: {\"sender\":\"00000000-0000-0000-0000-000000000001\",\
    \"life\":\"suspended\",\"arrived_ms\":1795000000000,\"order\":3}";

/// What the program wrote of [`full`] before it kept causes and states as data: the instance, and its node.
const BEFORE_CAUSES: [&[u8]; 2] = [
    b"\x00\x00\x00\x0b\x00\xff not text{\"sender\":\"00000000-0000-0000-0000-000000000002\",\"priority\":100,\
      \"life\":\"migrating\",\"node\":\"00000000-0000-0000-0000-000000000abc\",\
      \"target\":\"00000000-0000-0000-0000-000000000def\",\"arrived_ms\":1,\"deadline_ms\":18446744073709551615,\
      \"attempts\":3,\"order\":4,\"tried\":[{\"node\":\"00000000-0000-0000-0000-000000000abc\",\
      \"reason\":\"full_cn\",\"detail\":\"no memory\"}],\"history\":[{\"at_ms\":5,\"what\":\"placed\",\
      \"node\":\"00000000-0000-0000-0000-000000000abc\",\"detail\":\"\\\"quoted\\\"\\n\"}],\"by_operator\":true,\
      \"updated\":{\"mem_mib\":6,\"vcpus\":7,\"disk_mib\":8,\"resources\":{\"gpu\":9}},\"time_used_ms\":14,\"has_run\":true,\
      \"max_attempts\":3,\"lease_ms\":10,\"is_deleted\":true,\"told_to_stop\":true,\"relocate\":true,\
      \"restart_on_loss\":true,\"time_limit_ms\":13,\"batch\":\"batch-1\",\"batch_operator\":\"00000000-0000-0000-0000-000000000009\"}",
    b"\xff\xff\xff\xff{\"cordoned\":true,\"cordoned_since_ms\":10,\"lease_ms\":30000,\
      \"drain\":{\"deadline_ms\":11,\"parallel\":2,\"total\":40,\"moved\":12},\
      \"ends\":{\"incarnation\":\"00000000-0000-0000-0000-000000000003\",\"seq\":8589934592}}",
];

#[test]
fn what_was_written_before_causes_were_data_is_read_and_still_written_so() {
    let directory = tempfile::tempdir().unwrap();
    let keys = full().map(|(key, _)| format::encode_key(&key));
    let mut records = keys.iter().map(Vec::as_slice).zip(BEFORE_CAUSES);
    of_format(directory.path(), 2, &records.clone().collect::<Vec<_>>());
    let before_runs = full().map(|(key, record)| (key, before_runs(record)));
    assert_eq!(contents(directory.path()), before_runs);
    assert!(before_runs.iter().all(|(_, record)| {
        let (_, bytes) = records.next().unwrap();
        format::encode(record) == bytes
    }));
}

/// A record as it was before runs had numbers, and before there were retries, dependencies and arrays.
fn before_runs(record: Record) -> Record {
    match record {
        Record::Instance(instance) => Record::Instance(Box::new(InstanceRecord {
            runs: 0,
            ran_on: None,
            earlier_runs: Vec::new(),
            retries: 0,
            after: Vec::new(),
            array: None,
            index: None,
            ..*instance
        })),
        other => other,
    }
}

#[test]
fn every_life_that_was_ever_written_is_read() {
    let lives = [
        ("waiting", Life::Waiting),
        ("placing", Life::Placing),
        ("running", Life::Running),
        ("suspending", Life::Suspending),
        ("suspended", Life::Suspended),
        ("resuming", Life::Resuming),
        ("stopping", Life::Stopping),
        ("migrating", Life::Migrating),
    ];
    for (word, life) in lives {
        let value = format!("{{\"life\":\"{word}\"}}");
        let value = [&u32::MAX.to_be_bytes()[..], value.as_bytes()].concat();
        let (_, record) = format::decode(b"iweb-1", &value).unwrap();
        let expected = InstanceRecord {
            life,
            ..InstanceRecord::default()
        };
        assert_eq!(record, Record::Instance(Box::new(expected)), "{word}");
    }
}

#[test]
fn a_store_of_a_newer_program_is_set_aside_whole() {
    let directory = tempfile::tempdir().unwrap();
    of_format(directory.path(), format::FORMAT + 1, &[(b"iweb-1", FIRST)]);
    assert!(contents(directory.path()).is_empty());
    assert_eq!(kept(directory.path()), ["store.redb.damaged-1"]);
    let aside = directory.path().join("store.redb.damaged-1");
    let database = Database::open(aside).unwrap();
    let records = redb::ReadableDatabase::begin_read(&database).unwrap();
    let records = records.open_table(RECORDS).unwrap();
    assert_eq!(records.get(&b"iweb-1"[..]).unwrap().unwrap().value(), FIRST);
}

#[test]
fn a_format_that_was_never_released_is_set_aside() {
    for format in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        of_format(directory.path(), format, &[(b"iweb-1", FIRST)]);
        assert!(contents(directory.path()).is_empty());
        assert_eq!(kept(directory.path()), ["store.redb.damaged-1"]);
    }
}

#[test]
fn one_record_that_cannot_be_read_harms_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let values: [(&[u8], &[u8]); 8] = [
        (b"ino-length", b"\x00\x00"),
        (b"itoo-short", b"\x00\x00\x00\xffstart"),
        (b"ino-json", b"\xff\xff\xff\xff{"),
        (b"istrange-life", b"\xff\xff\xff\xff{\"life\":\"dancing\"}"),
        (b"i\xff", b"\xff\xff\xff\xff{}"),
        (b"nshort", b"\xff\xff\xff\xff{}"),
        (b"", b"\xff\xff\xff\xff{}"),
        (b"xother", b"\xff\xff\xff\xff{}"),
    ];
    of_format(directory, format::FORMAT, &values);
    write(directory, [put(1, 1)]);
    let found = file::open(&directory.join(STORE_FILE), IfAbsent::Fail).unwrap();
    assert_eq!(found.records, [(instance(1), waiting(1))]);
    assert_eq!(found.unreadable.len(), values.len());
}

#[test]
fn fields_of_a_newer_program_are_left_out_and_missing_ones_are_as_usual() {
    let (_, record) = format::decode(
        b"iweb-1",
        b"\xff\xff\xff\xff{\"priority\":9,\"colour\":\"red\"}",
    )
    .unwrap();
    let expected = InstanceRecord {
        priority: 9,
        ..InstanceRecord::default()
    };
    assert_eq!(record, Record::Instance(Box::new(expected)));
}

/// The files set aside in a directory.
pub(super) fn kept(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("damaged"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_bound_uuid_is_kept_without_a_new_format_and_named_where_it_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let uuid = Uuid::from_u128(9);
    let key = [b"b", &uuid.as_bytes()[..]].concat();
    of_format(
        directory.path(),
        format::FORMAT,
        &[
            (&key, b"\xff\xff\xff\xff{\"since_ms\":7}"),
            (b"bshort", b"\xff\xff\xff\xff{}"),
        ],
    );
    let found = Opened::open(directory.path()).unwrap();
    let binding = BindingRecord { since_ms: 7 };
    assert_eq!(
        found.records,
        [(RecordKey::Binding(uuid), Record::Binding(binding))]
    );
    assert_eq!(format::name(&key), format!("bound UUID {uuid}"));
    assert_eq!(format::name(b"bshort"), "bound UUID short");
}
