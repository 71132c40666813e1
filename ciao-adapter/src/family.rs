//! The UUIDs of one adapter's instances, which begin alike, so that the scheduler can be asked for these alone.

use uuid::Uuid;

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

    /// A UUID for a new instance: random, but for the first four bytes, which are the family.
    #[must_use]
    pub fn new_instance(self) -> Uuid {
        let mut bytes = *Uuid::new_v4().as_bytes();
        bytes[..4].copy_from_slice(&self.0.to_be_bytes());
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
}
