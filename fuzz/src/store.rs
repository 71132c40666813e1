//! Records of the store: what is read is written as the same, and what ends too early is no record.

use ciao_scheduler::server::fuzz_support::{record, record_bytes};

use crate::choice;

/// First byte: the length of the key. Then the key, then the value.
pub fn store(data: &[u8]) {
    let Some((key_len, data)) = choice(data) else {
        return;
    };
    let (key, value) = data.split_at(key_len.min(data.len()));
    let Some((name, found)) = record(key, value) else {
        return;
    };
    let (key, value) = record_bytes(&name, &found);
    assert_eq!(
        record(&key, &value),
        Some((name, found)),
        "after encoding and decoding"
    );
    for end in [0, 3, value.len() / 2, value.len() - 1] {
        assert_eq!(
            record(&key, &value[..end]),
            None,
            "{end} of {} bytes",
            value.len()
        );
    }
    let mut other_kind = key.clone();
    other_kind[0] = !other_kind[0];
    assert_eq!(
        record(&other_kind, &value),
        None,
        "of a kind that is not known"
    );
}
