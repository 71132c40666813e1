//! The room that a node has for instances, by its report and its limits. Worked out when one of these changes, not with
//! each claim, so that what is free follows from two subtractions.
//!
//! ```text
//!  capacity  = (total - reserved) * ratio
//!  available = what the node reports as available + (capacity - total)
//!  free      = min(available - held, capacity - asked)        (vcpus: capacity - held)
//! ```
//!
//! *asked* is what all instances on the node asked for; *held* is what they asked for and do not use yet, since what
//! they use is already missing from what the node reports as available (`cluster::ledger`).

use crate::api::input::NodeReport;
use crate::api::resources::{MAX_REPORTED, Resources};
use crate::cluster::ledger::Claims;
use crate::cluster::traits::Limits;

/// What a node's claims are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// What it could offer if nothing ran on it; -1 where its report has no figure.
    pub(super) capacity: Resources,
    /// What its report calls available, scaled; of vcpus all of them. `i64::MIN` where it does not say.
    available: Resources,
}

impl Room {
    /// That of a node which has not reported.
    pub(super) const UNKNOWN: Self = Self {
        capacity: Resources::UNKNOWN,
        available: Resources::NEVER,
    };

    /// By a report and these limits.
    pub(super) fn new(report: Option<&NodeReport>, limits: &Limits) -> Self {
        let Some(report) = report else {
            return Self::UNKNOWN;
        };
        let (mem_mib, mem_available) = figures(
            (report.mem_total_mib, report.mem_available_mib),
            (limits.mem_ratio, limits.reserved_mem_mib),
        );
        let (disk_mib, disk_available) = figures(
            (report.disk_total_mb, report.disk_available_mb),
            (limits.disk_ratio, limits.reserved_disk_mib),
        );
        let vcpus = limits.vcpus(report.cpus_online);
        Self {
            capacity: Resources {
                mem_mib,
                vcpus: vcpus.unwrap_or(-1),
                disk_mib,
            },
            available: Resources {
                mem_mib: mem_available,
                vcpus: vcpus.unwrap_or(i64::MIN),
                disk_mib: disk_available,
            },
        }
    }

    /// What is free with these claims: what is reported as available, scaled, less what is held; and never more than
    /// the capacity less all that was asked for.
    ///
    /// If a node reported what is available and what its instances use at the same moment, the second bound would say
    /// nothing more. But the two reports come one after the other, and what an instance began or ceased to use between
    /// them would be counted in neither. Negative where more is claimed than there is; `i64::MIN` where the node has
    /// not said.
    #[inline]
    pub(super) fn free(&self, claims: &Claims) -> Resources {
        let (held, asked) = (claims.held, claims.asked);
        let free = |available: i64, capacity: i64, held: i64, asked: i64| match available {
            i64::MIN => i64::MIN,
            _ if capacity < 0 => available.saturating_sub(held),
            _ => {
                let left = capacity.saturating_sub(asked);
                available.saturating_sub(held).min(left)
            }
        };
        let (available, capacity) = (self.available, self.capacity);
        Resources {
            mem_mib: free(
                available.mem_mib,
                capacity.mem_mib,
                held.mem_mib,
                asked.mem_mib,
            ),
            vcpus: match available.vcpus {
                i64::MIN => i64::MIN,
                vcpus => vcpus.saturating_sub(held.vcpus),
            },
            disk_mib: free(
                available.disk_mib,
                capacity.disk_mib,
                held.disk_mib,
                asked.disk_mib,
            ),
        }
    }
}

/// The capacity of one resource and what is available of it. Reports above `MAX_REPORTED` are cut to that, so that sums
/// over instances cannot overflow; negative figures count as not reported.
fn figures((total, available): (i64, i64), (ratio, reserved): (f64, i64)) -> (i64, i64) {
    let capacity = if total < 0 {
        -1
    } else {
        let offered = total.min(MAX_REPORTED).saturating_sub(reserved).max(0);
        (offered as f64 * ratio) as i64
    };
    let reported = available.min(MAX_REPORTED);
    let available = if available < 0 {
        i64::MIN
    } else if total < 0 {
        reported.saturating_sub(reserved)
    } else {
        reported.saturating_add(capacity - total.min(MAX_REPORTED))
    };
    (capacity, available)
}

#[cfg(test)]
mod tests {
    use super::{MAX_REPORTED, figures};

    #[test]
    fn a_figure_that_is_not_reported_offers_nothing_and_has_no_bound() {
        assert_eq!(figures((100, -1), (1.0, 10)), (90, i64::MIN));
        assert_eq!(figures((-1, 100), (1.0, 10)), (-1, 90));
        assert_eq!(figures((-1, -1), (2.0, 0)), (-1, i64::MIN));
    }

    #[test]
    fn what_is_available_is_scaled_as_the_whole_is() {
        // A hundred, of which ten are reserved, offered twice: eighty more than there are.
        assert_eq!(figures((100, 70), (2.0, 10)), (180, 150));
        assert_eq!(figures((100, 70), (1.0, 200)), (0, -30));
    }

    #[test]
    fn no_report_is_believed_beyond_a_bound() {
        assert_eq!(
            figures((i64::MAX, i64::MAX), (1.0, 0)),
            (MAX_REPORTED, MAX_REPORTED)
        );
    }
}
