//! Read-only answers for people and programs: pages of nodes, instances and controllers, the queue, histories, and the
//! heartbeat's few rows.
//!
//! A QUERY frame of an operator or controller and the GET routes of the HTTP API end here in the same call,
//! [`Scheduler::look_up`]. It runs under the core's lock, so a page is bounded in rows, in entries looked at and in
//! bytes (`page`), and a client asks for the next with the cursor it was given. Causes stay data here; the server adds
//! the sentences to the rows afterwards.
//!
//! Each kind of row has its file: `arrays`, `nodes`, `drains`, `instances` (and the queue), `history` (and runs that are over), `totals`,
//! `queue_totals`, `waiting` (why now), `conditions` (what is not well), `heartbeat`, `providers`, `trial` (what other rules
//! would change). Nothing here changes what the scheduler decides.

mod arrays;
mod conditions;
pub(crate) mod dependencies;
pub(crate) mod drains;
mod heartbeat;
mod history;
mod instances;
pub(crate) mod known;
mod nodes;
pub(crate) mod page;
pub(crate) mod places;
mod providers;
mod queue_totals;
pub(crate) mod records;
pub(crate) mod snapshot;
mod totals;
mod trial;
pub(crate) mod verdict;
pub(crate) mod waiting;

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::query::MAX_LIMIT;
use sched_model::{
    CertificateView, ControllerRole, ControllerView, Query, QueryKind, QueryResult, Role,
    StatusView,
};

use crate::Scheduler;
use crate::api::config::About;
use crate::api::explained::QueryProblem;
use crate::api::ids::SessionId;
use crate::api::record::RunRecord;
use crate::sight::Sight;

use self::page::Page;
use self::waiting::Detail;

pub use self::conditions::{ending_certificates, named_certificates};
pub use self::heartbeat::{Heartbeat, HeartbeatNode};
pub use self::providers::{ClaimsCursor, Provider, ProvidersCursor};
pub use self::queue_totals::{QueueTotals, QueueTotalsCursor};
pub use self::totals::{Glance, NodeCount, ResourceTotal, Totals, TotalsCursor};

/// What is said of the process to who asks.
#[must_use]
pub fn about(scheduler: &Scheduler) -> &About {
    &scheduler.sight().config.about
}

impl Scheduler {
    /// The images named by STARTs that are kept: those of managed instances, under the names that node labels use.
    /// Plain instances keep no START, so their images are not among these. O(managed instances).
    #[must_use]
    pub fn images_in_use(&self) -> BTreeSet<String> {
        let managed = self.instances.iter();
        let requests = managed.filter_map(|(_, instance)| instance.request());
        let images = requests.flat_map(|request| request.image.iter().chain(&request.more_images));
        // Many STARTs name the same few.
        let distinct: BTreeSet<&str> = images.map(|image| &**image).collect();
        distinct.into_iter().map(str::to_owned).collect()
    }

    /// The answer to a query at this moment: one page, empty with a problem where the kind or the cursor is not known.
    /// What bounds its time is in `page`; controllers, of which there are few, are bounded by the largest limit alone.
    #[must_use]
    pub fn look_up(&mut self, now: Instant, query: &Query) -> Page {
        let mut page = self.sight().page(now, query);
        let instances = &mut page.payload.instances;
        let is_one = instances.len() == 1 && query.matching.is_some();
        let detail = match is_one {
            true => Detail::Reasons,
            false => Detail::Cause,
        };
        self.explain_rows(now, detail, (instances, &mut page.cause.instances));
        page
    }
}

/// Runs that are over as they would be put on record, before the one with this number, the latest first, at most so many. For
/// who has no records of them on disk.
#[must_use]
pub fn runs_before(scheduler: &Scheduler, number: u64, most: usize) -> Vec<(u64, RunRecord)> {
    scheduler.sight().runs_before(number, most)
}

/// How many runs that are over were forgotten.
#[must_use]
pub fn runs_forgotten(scheduler: &Scheduler) -> u64 {
    scheduler.instances.runs_forgotten()
}

impl Sight<'_> {
    /// The same, with why instances began to wait in place of why they wait now.
    fn page(&self, now: Instant, query: &Query) -> Page {
        let mut result = Page::from(QueryResult {
            id: query.id,
            what: query.what.clone(),
            ..QueryResult::default()
        });
        match &query.what {
            QueryKind::Nodes => self.query_nodes(now, query, &mut result),
            QueryKind::Instances => self.query_instances(now, query, &mut result),
            QueryKind::Controllers => {
                result.controllers = self.controller_rows(now);
                result.store = Some(self.journal.view(now, self.pending.for_disk().0));
            }
            QueryKind::Status => {
                result.cause.conditions = self.conditions(now);
                result.status = Some(self.status_view(now));
            }
            QueryKind::Arrays => self.query_arrays(query, &mut result),
            QueryKind::Queue => self.query_queue(now, query, &mut result),
            QueryKind::History => self.query_history(query, &mut result),
            QueryKind::Ended => self.query_ended(query, &mut result),
            // Those on record are not the core's.
            QueryKind::Ends | QueryKind::Other(_) => {
                let what = query.what.as_str().into();
                result.cause.problem = Some(QueryProblem::UnknownKind(what));
            }
        }
        result
    }

    /// The scheduler itself: version, uptime, whether the recovery window is open, its disk and certificates.
    fn status_view(&self, now: Instant) -> StatusView {
        let about = &self.config.about;
        let certificate = |(file, ends_at_s): &(String, i64)| CertificateView {
            file: file.clone(),
            ends_at_s: *ends_at_s,
        };
        let uptime = now
            .saturating_duration_since(self.clock.started())
            .as_secs();
        StatusView {
            uuid: self.config.uuid.to_string(),
            version: about.version.clone(),
            uptime_s: i64::try_from(uptime).unwrap_or(i64::MAX),
            recovering: self.recovery.is_open(),
            store: self.journal.view(now, self.pending.for_disk().0),
            certificates: about.certificates.iter().map(certificate).collect(),
            configuration: about.configuration.clone(),
            log_levels: about.log_levels.clone(),
            well: None,
            conditions: Vec::new(),
            schedulers: None,
        }
    }

    /// Controllers in order of connection, the master first, then operators and viewers. The scheduler's own session,
    /// by which its HTTP API speaks, is not shown.
    fn controller_rows(&self, now: Instant) -> Vec<ControllerView> {
        let controllers = self.peers.controllers().iter().map(|&id| {
            (
                id,
                if self.peers.is_master(id) {
                    ControllerRole::Master
                } else {
                    ControllerRole::Backup
                },
            )
        });
        let is_own = |id: &SessionId| self.peers.session(*id).uuid() == self.config.uuid;
        let listeners = self.peers.listeners().filter(|id| !is_own(id));
        let operators = listeners.map(|id| {
            let is_viewer = self.peers.session(id).role() == Role::VIEWER;
            let standing = if is_viewer {
                ControllerRole::Viewer
            } else {
                ControllerRole::Operator
            };
            (id, standing)
        });
        let row = |(id, standing): (SessionId, ControllerRole)| {
            let session = self.peers.session(id);
            ControllerView {
                uuid: session.uuid().to_string(),
                standing,
                connected_s: now.saturating_duration_since(session.since()).as_secs() as i64,
                certificate_ends_at_s: session.certificate_ends_s(),
            }
        };
        controllers
            .chain(operators)
            .take(MAX_LIMIT as usize)
            .map(row)
            .collect()
    }
}
