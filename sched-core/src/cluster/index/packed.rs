//! Amounts as small floats, 64 to a lane row, so that one pass of plain vector instructions rules a block out.
//!
//! What is packed only ever proposes: a slot whose packed amount is too small does not cover, one whose packed amount
//! is large enough may. The exact amounts, which the index keeps beside, decide.

use crate::api::resources::Resources;

/// Slots in a block: as many as a `u64` has bits.
pub(super) const BLOCK: usize = 64;

/// Bits of an amount that survive packing. Amounts below 2¹² are packed exactly, larger ones to one part in 2048, and
/// those from 2⁴² on (an exbibyte of memory and beyond) are all alike. One bit more would let amounts be alike from
/// 2²⁷ on, which a disk in MiB can reach.
const KEPT_BITS: u32 = 12;

/// The largest code: one below the last `u16`, since negative amounts take the lowest.
const MAX_CODE: u64 = u16::MAX as u64 - 1;

/// One packed amount of each slot of a block.
pub(super) type Lanes = [i16; BLOCK];

/// An amount's image: a larger amount never has a smaller one.
#[inline]
pub(super) fn pack(amount: i64) -> i16 {
    let Ok(amount) = u64::try_from(amount) else {
        return i16::MIN;
    };
    let shift = (u64::BITS - amount.leading_zeros()).saturating_sub(KEPT_BITS);
    // The leading one carries into the exponent, so the codes go on where those of the next smaller exponent end.
    let code = (u64::from(shift) << (KEPT_BITS - 1)) + (amount >> shift);
    let code = code.min(MAX_CODE) as i32;
    (code + 1 + i32::from(i16::MIN)) as i16
}

/// Lanes of a row that hold at least this much, as bits; bit `i` is lane `i`.
// On its own: inlined into a search it is compiled lane by lane.
#[inline(never)]
pub(super) fn at_least(lanes: &Lanes, least: i16) -> u64 {
    let mut hold = [0; BLOCK];
    for (holds, &lane) in hold.iter_mut().zip(lanes) {
        *holds = u8::from(lane >= least);
    }
    bits(&hold)
}

/// The packed base resources of a block's slots.
#[derive(Debug, Clone)]
pub(super) struct PackedBlock {
    mem: Lanes,
    vcpus: Lanes,
    disk: Lanes,
}

/// A packed request.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedResources {
    mem: i16,
    vcpus: i16,
    disk: i16,
}

impl PackedResources {
    /// The image of these amounts.
    #[inline]
    pub(super) fn new(amounts: &Resources) -> Self {
        Self {
            mem: pack(amounts.mem_mib),
            vcpus: pack(amounts.vcpus),
            disk: pack(amounts.disk_mib),
        }
    }
}

impl PackedBlock {
    /// Slots that cover nothing.
    pub(super) const EMPTY: Self = Self {
        mem: [i16::MIN; BLOCK],
        vcpus: [i16::MIN; BLOCK],
        disk: [i16::MIN; BLOCK],
    };

    /// Changes one slot's amounts.
    #[inline]
    pub(super) fn set(&mut self, lane: usize, amounts: &Resources) {
        let packed = PackedResources::new(amounts);
        self.mem[lane] = packed.mem;
        self.vcpus[lane] = packed.vcpus;
        self.disk[lane] = packed.disk;
    }

    /// The slots that may cover a request, as bits: every slot that does is among them.
    #[inline]
    pub(super) fn candidates(&self, asked: PackedResources) -> u64 {
        if self.may_cover(asked) {
            self.candidate_bits(asked)
        } else {
            0
        }
    }

    /// Whether any slot may cover: most blocks of an adversarial mix end here, so no bits are made for them.
    #[inline(never)]
    fn may_cover(&self, asked: PackedResources) -> bool {
        let slack = (0..BLOCK).map(|lane| self.slack(lane, asked));
        slack.fold(i16::MIN, i16::max) >= 0
    }

    // On its own for the same reason as `at_least`.
    #[inline(never)]
    fn candidate_bits(&self, asked: PackedResources) -> u64 {
        let mut cover = [0; BLOCK];
        for (lane, covers) in cover.iter_mut().enumerate() {
            *covers = u8::from(self.slack(lane, asked) >= 0);
        }
        bits(&cover)
    }

    /// How much the scarcest resource of a slot is above what is asked for; negative if the slot does not cover.
    /// Saturating differences, minima and maxima of 16 bits are what every x86-64 has for eight lanes at once; the
    /// compiler makes branches of comparisons that are joined by "and".
    #[inline]
    fn slack(&self, lane: usize, asked: PackedResources) -> i16 {
        let mem = self.mem[lane].saturating_sub(asked.mem);
        let vcpus = self.vcpus[lane].saturating_sub(asked.vcpus);
        let disk = self.disk[lane].saturating_sub(asked.disk);
        mem.min(vcpus).min(disk)
    }

    /// Whether a slot's packed amounts are the image of these.
    pub(super) fn is_image(&self, lane: usize, amounts: &Resources) -> bool {
        let packed = PackedResources::new(amounts);
        self.mem[lane] == packed.mem
            && self.vcpus[lane] == packed.vcpus
            && self.disk[lane] == packed.disk
    }
}

/// Bytes that are 0 or 1 as bits.
#[inline]
fn bits(bytes: &[u8; BLOCK]) -> u64 {
    /// Moves bit 0 of byte `i` to bit `56 + i` of the product; no two of the partial products meet.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let eights = bytes.as_chunks::<8>().0.iter().enumerate();
    eights.fold(0, |bits, (at, eight)| {
        bits | (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) << (8 * at)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BLOCK, at_least, bits, pack};

    /// Amounts of every magnitude, either sign.
    fn amounts() -> impl Strategy<Value = i64> {
        prop_oneof![
            (any::<i64>(), 0u32..64).prop_map(|(amount, shift)| amount >> shift),
            (0u32..63, -2i64..3).prop_map(|(bit, off)| (1i64 << bit).saturating_add(off)),
            Just(i64::MIN),
            Just(i64::MAX),
        ]
    }

    proptest! {
        #[test]
        fn a_larger_amount_never_has_a_smaller_image(one in amounts(), other in amounts()) {
            prop_assert!(one < other || pack(one) >= pack(other), "{one} {other}");
            prop_assert!(one > other || pack(one) <= pack(other), "{one} {other}");
        }

        #[test]
        fn a_loss_is_less_than_one_part_in_two_thousand(amount in 4096i64..1 << 41) {
            prop_assert!(pack(amount + amount / 2000) > pack(amount), "{amount}");
        }

        #[test]
        fn bits_are_the_lanes_that_hold_enough(
            lanes in proptest::collection::vec(-3i16..3, BLOCK),
            least in -3i16..3,
        ) {
            let lanes: [i16; BLOCK] = lanes.try_into().unwrap();
            let bits = at_least(&lanes, least);
            for (lane, amount) in lanes.iter().enumerate() {
                prop_assert_eq!(bits >> lane & 1 == 1, *amount >= least);
            }
        }
    }

    #[test]
    fn small_amounts_are_told_apart_and_negative_ones_are_lowest() {
        for amount in 0..4096 {
            assert!(pack(amount - 1) < pack(amount), "{amount}");
        }
        assert_eq!(pack(-1), pack(i64::MIN));
        assert_eq!(pack(1 << 42), pack(i64::MAX));
        assert!(pack((1 << 42) - 1) <= pack(1 << 42));
    }

    #[test]
    fn every_byte_has_its_bit() {
        for lane in 0..BLOCK {
            let mut bytes = [0; BLOCK];
            bytes[lane] = 1;
            assert_eq!(bits(&bytes), 1 << lane);
        }
        assert_eq!(bits(&[1; BLOCK]), u64::MAX);
    }
}
