//! FNV-1a for 64 bits: a hash that is the same in every build and on every machine.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// A hash of the bytes written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fnv(u64);

impl Fnv {
    /// The hash of no bytes.
    pub(crate) fn new() -> Self {
        Self(OFFSET)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

#[test]
fn the_hash_has_its_published_values() {
    // From the tables of http://www.isthe.com/chongo/tech/comp/fnv/.
    for (bytes, hash) in [
        (&b""[..], 0xcbf2_9ce4_8422_2325),
        (b"a", 0xaf63_dc4c_8601_ec8c),
        (b"foobar", 0x8594_4171_f739_67e8),
    ] {
        let mut fnv = Fnv::new();
        fnv.write(bytes);
        assert_eq!(fnv.get(), hash);
    }
}
