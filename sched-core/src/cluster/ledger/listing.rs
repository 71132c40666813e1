//! What a STATS says of an entry: by listing it, or by not listing it.

use std::sync::Arc;
use std::time::Instant;

use super::entry::{ClaimState, Entry, Extras, Measured, Unconfirmed, larger};
use super::sent::Resumption;
use crate::api::input::{InstanceReport, InstanceState};
use crate::api::resources::MAX_ADOPTED;
use crate::cluster::columns::Columns;

/// When an instance that a STATS does not list counts as missing. A START that the launcher has not seen yet cannot be
/// missing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissRules {
    /// How many STARTs the launcher has seen on this connection, by its report; `None` from original launchers, which
    /// do not say.
    pub(crate) starts_seen: Option<u64>,
    /// Whether everything queued for the node leaves at once.
    pub(crate) is_queue_clear: bool,
    /// STATS in a row without an instance after which its entry is dropped.
    pub(crate) missed_stats: u8,
}

impl MissRules {
    /// Whether the launcher reports that it has not seen this START yet.
    pub(super) fn is_unseen(&self, start: Unconfirmed) -> bool {
        self.starts_seen.is_some_and(|seen| seen < start.ordinal)
    }
}

impl Entry {
    /// The custom resources and the group that a native launcher reports for it, where they are not those that are known.
    /// So both are known after a restart of the scheduler.
    pub(super) fn other_extras(
        &self,
        report: &InstanceReport,
        columns: &Columns,
    ) -> Option<Extras> {
        if report.requested.is_none() && report.group.is_none() {
            return None;
        }
        let none = Extras::default();
        let known = self.extras.as_deref().unwrap_or(&none);
        let reported = report.custom.iter();
        let reported = reported.map(|(name, amount)| (&**name, (*amount).min(MAX_ADOPTED)));
        let custom = match report.requested {
            Some(_) => columns.asked(reported),
            None => known.custom.clone(),
        };
        let custom = match &self.floor {
            Some(floor) => larger(&custom, &floor.custom),
            None => custom,
        };
        let group = report.group.as_deref().map(Arc::from);
        let group = group.or_else(|| known.group.clone());
        let extras = Extras { custom, group };
        (extras != *known).then_some(extras)
    }

    /// Takes in the row that lists it; whether the row has something new of it.
    #[inline]
    pub(super) fn list(
        &mut self,
        report: &InstanceReport,
        rules: &MissRules,
        measured: Measured,
        now: Instant,
    ) -> bool {
        let latest = self.repeated.or(self.unconfirmed());
        match self.claim_state {
            // An original launcher does not say which STARTs it has seen: it is taken to have seen all of them.
            _ if rules.starts_seen.is_none() => self.open = 0,
            ClaimState::Claimed => {}
            ClaimState::Running => self.is_stop_late = false,
            // That it runs is what came of one START; of those repeated since nothing has been heard.
            ClaimState::Placed(_) if self.is_doubted => {}
            ClaimState::Placed(start) => {
                let unseen = u32::from(rules.is_unseen(start));
                self.open = self.open.saturating_sub(1).max(unseen);
                // Stops of before were answered before it began.
                self.is_stop_late &= unseen > 0;
            }
            ClaimState::InDoubt(_) => self.open = 0,
        }
        (self.is_doubted, self.is_remembered) = (false, false);
        self.is_starting = report.state == InstanceState::Pending;
        self.repeated = latest.filter(|_| self.open > 0);
        let is_news = self.claim_state != ClaimState::Running
            || self.reported != Some(report.state)
            || self.resumption == Resumption::Lost;
        self.claim_state = ClaimState::Running;
        if let Some(asked) = report.requested {
            self.is_known = true;
            let asked = asked.clamped(MAX_ADOPTED);
            self.asked = match &mut self.floor {
                Some(floor) => {
                    floor.said = Some(asked);
                    asked.max(floor.least)
                }
                None => asked,
            };
        }
        self.used_mem_mib = report.mem_used_mib.max(0);
        self.used_disk_mib = report.disk_used_mib.max(0);
        self.run.clone_from(&report.run);
        self.measure(report, measured, now);
        self.hear(report.state);
        self.misses = 0;
        is_news
    }

    /// Counts a STATS that does not list it; whether its entry is to be removed. What is in doubt is removed at once,
    /// what the node cannot have seen yet is not counted, anything else after `rules.missed_stats` in a row.
    pub(super) fn count_miss(&mut self, is_evidence: bool, rules: &MissRules) -> bool {
        match self.claim_state {
            // The node was sent nothing of it.
            ClaimState::Claimed => return false,
            // The first STATS after a reconnect settles what was in doubt.
            ClaimState::InDoubt(_) => return true,
            // Its launcher may have been restarted with nothing to list.
            ClaimState::Running if self.is_remembered => {}
            _ if !is_evidence => return false,
            // The START may not have been written yet, or the launcher says that it has not seen it.
            ClaimState::Placed(_) if !rules.is_queue_clear => return false,
            ClaimState::Placed(start) if rules.is_unseen(start) => return false,
            ClaimState::Running if self.repeated.is_some_and(|start| rules.is_unseen(start)) => {
                return false;
            }
            ClaimState::Placed(_) | ClaimState::Running => {}
        }
        self.misses += 1;
        self.misses >= rules.missed_stats
    }
}
