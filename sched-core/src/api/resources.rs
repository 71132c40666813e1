//! Amounts of what a node has and an instance asks for.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::api::no_fit::Amount;

/// Largest amount believed of a peer that reports one: 2⁵⁰ MiB is a zettabyte. Keeps every sum far from overflow.
pub(crate) const MAX_REPORTED: i64 = 1 << 50;

/// Largest amount believed of one instance that somebody else started: 2⁴⁰ MiB, so that the sum over a million of them
/// is no overflow.
pub(crate) const MAX_ADOPTED: i64 = 1 << 40;

/// Memory, vcpus and disk, as asked for or as free. Sums saturate: a peer may report anything up to 2⁶³.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Memory in MiB.
    pub mem_mib: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// Disk in MiB as asked for; nodes report units of 10⁶ bytes, which the original compares with MiB as they stand.
    pub disk_mib: i64,
}

impl Resources {
    /// Nothing at all.
    pub const ZERO: Self = Self {
        mem_mib: 0,
        vcpus: 0,
        disk_mib: 0,
    };

    /// Less than any request: what a node offers that takes no work, or whose figure is unknown.
    pub const NEVER: Self = Self {
        mem_mib: i64::MIN,
        vcpus: i64::MIN,
        disk_mib: i64::MIN,
    };

    /// What a node has of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        mem_mib: -1,
        vcpus: -1,
        disk_mib: -1,
    };

    /// Whether a request of `asked` fits into this much.
    #[must_use]
    pub const fn covers(&self, asked: &Self) -> bool {
        self.mem_mib >= asked.mem_mib
            && self.vcpus >= asked.vcpus
            && self.disk_mib >= asked.disk_mib
    }

    /// Each amount within `0 ..= limit`.
    #[must_use]
    pub fn clamped(self, limit: i64) -> Self {
        self.zip(Self::ZERO, |amount, least| amount.clamp(least, limit))
    }

    /// The smaller of each amount.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.zip(other, Ord::min)
    }

    /// The larger of each amount.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.zip(other, Ord::max)
    }

    /// Each amount with its counterpart.
    #[inline]
    fn zip(self, other: Self, with: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            mem_mib: with(self.mem_mib, other.mem_mib),
            vcpus: with(self.vcpus, other.vcpus),
            disk_mib: with(self.disk_mib, other.disk_mib),
        }
    }

    /// Amounts by what they are of.
    pub(crate) fn each(amount: impl Fn(Amount) -> i64) -> Self {
        Self {
            mem_mib: amount(Amount::Memory),
            vcpus: amount(Amount::Vcpus),
            disk_mib: amount(Amount::Disk),
        }
    }

    /// Its amounts by what they are of.
    pub(crate) fn amounts(&self) -> [(Amount, i64); 3] {
        [
            (Amount::Memory, self.mem_mib),
            (Amount::Vcpus, self.vcpus),
            (Amount::Disk, self.disk_mib),
        ]
    }

    /// One of its amounts.
    pub(crate) fn amount(&self, of: Amount) -> i64 {
        match of {
            Amount::Memory => self.mem_mib,
            Amount::Vcpus => self.vcpus,
            Amount::Disk => self.disk_mib,
        }
    }
}

impl Add for Resources {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, i64::saturating_add)
    }
}

impl Sub for Resources {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.zip(other, i64::saturating_sub)
    }
}

impl AddAssign for Resources {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Resources {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
