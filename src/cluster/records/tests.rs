//! Writes are cut and joined as they were.

use std::collections::BTreeMap;

use super::{
    Entries, Limits, MAX_BYTES, MAX_OPS, VALUE_PART, Written, decode, encode, joined, keys, parts,
};

#[test]
fn a_part_is_read_as_it_was_written() {
    let part: Entries = vec![
        (b"ia".to_vec(), Some(b"value".to_vec())),
        (b"ib".to_vec(), None),
        (b"ic".to_vec(), Some(Vec::new())),
    ];
    let bytes = encode(&part);
    assert_eq!(decode(&bytes), Some(part));
    assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
}

#[test]
fn a_write_is_cut_into_what_one_transaction_takes() {
    let entry = |number: usize, len| (vec![b'i', number as u8], Some(vec![0; len]));
    let many: Entries = (0..250).map(|number| entry(number, 10)).collect();
    let lens: Vec<usize> = parts(many, Limits::default())
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(lens, [MAX_OPS, MAX_OPS, 50]);
    let long: Entries = (0..3).map(|number| entry(number, 400_000)).collect();
    let lens: Vec<usize> = parts(long, Limits::default())
        .iter()
        .map(Vec::len)
        .collect();
    assert_eq!(lens, [2, 1]);
}

/// What a new leader would read.
fn read(etcd: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let below = |name: &str| {
        let name = name.as_bytes();
        let of = etcd.iter().filter(|(key, _)| key.starts_with(name));
        let cut = of.map(|(key, value)| (key[name.len()..].to_vec(), value.clone()));
        cut.collect::<Vec<_>>()
    };
    let mut records: BTreeMap<_, _> = below(keys::RECORDS).into_iter().collect();
    for (key, (value, _)) in joined(below(keys::LONG)) {
        assert_eq!(records.insert(key, value), None, "a record stands twice");
    }
    records
}

/// Writes of records of all lengths, of which some are not carried out: what is there then is what was written.
#[test]
fn a_record_of_any_length_replaces_any_other() {
    let mut random = fastrand::Rng::with_seed(7);
    let lens = [0, 1, VALUE_PART, VALUE_PART + 1, 3 * VALUE_PART, MAX_BYTES];
    let mut state = Written::default();
    let (mut etcd, mut expected) = (BTreeMap::new(), BTreeMap::new());
    for round in 0..300_u32 {
        let key = {
            let byte = b"ia/"[random.usize(..3)];
            vec![byte; random.usize(1..3)]
        };
        let byte = round.to_le_bytes()[0];
        let len = lens[random.usize(..lens.len())];
        let value = random.bool().then(|| vec![byte; len]);
        let entries = state.record((key.clone(), value.clone()));
        let one_each = entries.iter().map(|(key, _)| key);
        let one_each: std::collections::BTreeSet<_> = one_each.collect();
        assert_eq!(one_each.len(), entries.len(), "etcd refuses a key twice");
        if random.u8(..4) == 0 {
            continue;
        }
        for (key, value) in &entries {
            let key = key.clone();
            match value {
                Some(value) => etcd.insert(key, value.clone()),
                None => etcd.remove(&key),
            };
        }
        // An answer that was lost.
        if random.u8(..4) > 0 {
            state.wrote(&entries);
        }
        match value {
            Some(value) => expected.insert(key, value),
            None => expected.remove(&key),
        };
        assert_eq!(read(&etcd), expected, "round {round}");
    }
    assert!(expected.values().any(|it| it.len() > VALUE_PART));
}
