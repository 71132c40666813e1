//! Amounts of what a node has and an instance asks for.

use std::ops::{Add, AddAssign, Sub, SubAssign};

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
        Self {
            mem_mib: self.mem_mib.clamp(0, limit),
            vcpus: self.vcpus.clamp(0, limit),
            disk_mib: self.disk_mib.clamp(0, limit),
        }
    }

    /// The smaller of each amount.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self {
            mem_mib: self.mem_mib.min(other.mem_mib),
            vcpus: self.vcpus.min(other.vcpus),
            disk_mib: self.disk_mib.min(other.disk_mib),
        }
    }

    /// The larger of each amount.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            mem_mib: self.mem_mib.max(other.mem_mib),
            vcpus: self.vcpus.max(other.vcpus),
            disk_mib: self.disk_mib.max(other.disk_mib),
        }
    }
}

impl Add for Resources {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            mem_mib: self.mem_mib.saturating_add(other.mem_mib),
            vcpus: self.vcpus.saturating_add(other.vcpus),
            disk_mib: self.disk_mib.saturating_add(other.disk_mib),
        }
    }
}

impl Sub for Resources {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            mem_mib: self.mem_mib.saturating_sub(other.mem_mib),
            vcpus: self.vcpus.saturating_sub(other.vcpus),
            disk_mib: self.disk_mib.saturating_sub(other.disk_mib),
        }
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
