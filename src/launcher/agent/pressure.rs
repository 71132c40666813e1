//! The guard against a node that is short of memory: from a limit on it takes no more work, and says why, until it is well
//! below that limit.

use tracing::{info, warn};

use super::Agent;

/// The limit is divided by this once it is reached: a node that is just below takes work, is above again, and so on.
const RELIEF: i64 = 2;

/// How short of memory a node is; 0 where that cannot be found out, or is not looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Share of the last ten seconds in which no process went on because all waited for memory, in percent: `full avg10`
    /// of the kernel's pressure stall information.
    pub stalled_percent: i64,
    /// Part of the swap space that is in use, in percent.
    pub swap_percent: i64,
}

/// From where on a node takes no more work; `None` = however short of memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PressureLimits {
    /// Limit of [`Pressure::stalled_percent`].
    pub stalled_percent: Option<i64>,
    /// Limit of [`Pressure::swap_percent`].
    pub swap_percent: Option<i64>,
}

/// In what a node is short of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strain {
    /// Its processes wait for memory.
    Stalled,
    /// Its swap space is in use.
    Swap,
}

impl Agent {
    /// Takes in how short of memory the node is.
    pub(super) fn feel_pressure(&mut self, pressure: Pressure) {
        let limits = self.settings.pressure_limits;
        let is_over = |strain: Strain| {
            let (is, limit) = match strain {
                Strain::Stalled => (pressure.stalled_percent, limits.stalled_percent),
                Strain::Swap => (pressure.swap_percent, limits.swap_percent),
            };
            let relief = match self.strain {
                Some(felt) if felt == strain => RELIEF,
                _ => 1,
            };
            limit.is_some_and(|limit| is.saturating_mul(relief) >= limit)
        };
        let strain = [Strain::Stalled, Strain::Swap]
            .into_iter()
            .find(|&it| is_over(it));
        if strain == self.strain {
            return;
        }
        self.strain = strain;
        let Pressure {
            stalled_percent,
            swap_percent,
        } = pressure;
        match self.fault() {
            Some(fault) => warn!(
                event = "pressure_begun",
                stalled_percent, swap_percent, "no more work is taken: {fault}"
            ),
            None => info!(
                event = "pressure_over",
                stalled_percent, swap_percent, "work is taken again"
            ),
        }
    }

    /// Why the node takes no work although it may have room, for people; the same words as long as that lasts.
    pub(super) fn fault(&self) -> Option<String> {
        let limits = self.settings.pressure_limits;
        let short = || match self.strain? {
            Strain::Stalled => Some(format!(
                "short of memory: for {}% of the time or more all processes waited for it (--pressure-limit)",
                limits.stalled_percent?
            )),
            Strain::Swap => Some(format!(
                "short of memory: {}% or more of the swap space is in use (--swap-limit)",
                limits.swap_percent?
            )),
        };
        self.storage_fault.clone().or_else(short)
    }
}
