//! The UUIDs of one adapter's instances, which begin alike, so that the scheduler can be asked for these alone.

use uuid::Uuid;

use crate::sent::unix_ms;

/// What the UUIDs of all instances of one adapter begin with: their first field, 32 bits.
///
/// It is drawn at random when the adapter's file is made, and kept there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Family(u32);

impl Family {
    /// The family of this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// A family at random.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4().as_fields().0)
    }

    /// Its number, as it is kept.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// What UUIDs of its instances begin with as text: eight hex digits.
    #[must_use]
    pub fn prefix(self) -> String {
        format!("{:08x}", self.0)
    }

    /// A UUID for a new instance: the family, 28 bits of the time, and 62 random bits, in the form of a random one.
    ///
    /// ```text
    /// ffffffff-tttt-4ttt-rrrr-rrrrrrrrrrrr      family, milliseconds of Unix time, random
    /// ```
    ///
    /// Records of instances are kept by UUID, here and by the scheduler. Those that are made and written together are
    /// side by side in the files then, where each would change a page of its own. The time starts over every three days,
    /// which costs nothing.
    #[must_use]
    pub fn new_instance(self) -> Uuid {
        self.instance_made_at(unix_ms())
    }

    fn instance_made_at(self, at_ms: u64) -> Uuid {
        let mut bytes = *Uuid::new_v4().as_bytes();
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
        let [.., a, b, c, d] = (at_ms << 4).to_be_bytes();
        bytes[4] = a;
        bytes[5] = b;
        // Its upper half is the version.
        bytes[6] = bytes[6] & 0xf0 | c >> 4;
        bytes[7] = c << 4 | d >> 4;
        Uuid::from_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_instances_begin_with_the_prefix_and_differ() {
        let family = Family::new(0x0f00_0a01);
        assert_eq!(family.prefix(), "0f000a01");
        let [one, other] = [(); 2].map(|()| family.new_instance().to_string());
        assert!(one.starts_with("0f000a01-"), "{one}");
        assert!(other.starts_with("0f000a01-"), "{other}");
        assert_ne!(one, other);
    }

    #[test]
    fn instances_that_are_made_one_after_the_other_are_in_that_order() {
        let family = Family::new(1);
        for at_ms in [0, 15, 255, 0xfff, 0xf_ffff, 0xfff_fffe, 1_795_000_000_000] {
            let (one, next) = (at_ms, at_ms + 1);
            let [one, next] = [one, next].map(|it| family.instance_made_at(it).to_string());
            assert!(one < next, "{one} {next}");
            assert_eq!((&one[14..15], &next[14..15]), ("4", "4"));
        }
    }
}
