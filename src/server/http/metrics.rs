//! `GET /metrics`: what there is and what was done, in numbers, for Prometheus.
//!
//! Nothing is counted here. Each scrape gathers: counters from where they are kept, sums over nodes and the queue in
//! steps between which others get the core's lock. So scrapes cost nothing in between, and one of a large cluster takes
//! more steps but holds up no one. No label names an instance, a tenant or a node, so that there are as many series
//! with a hundred thousand nodes as with ten; but for certificates of peers that end soon, of which the first
//! [`MAX_PEER_CERTIFICATES`] are named.
//!
//! Names and meanings of the metrics are in `encode`; the `process_*` ones are read in [`process`].

mod encode;
mod process;
mod schedulers;

pub(super) use self::schedulers::of_standby;

use std::collections::HashSet;
use std::fmt::Write as _;

use axum::http::StatusCode;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use proto_frames::payload::StoreState;

use self::encode::Gathered;
use super::call::{Answer, Call, text_response};
use super::problem::Problem;
use super::serve::App;
use crate::server::expiry;
use sched_core::{
    CertificateHolder, EndingCertificate, QueueTotals, QueueTotalsCursor, Scheduler, Unwell,
    ending_certificates, named_certificates,
};

/// The OpenMetrics text format, version 1.0.0. It is sent whatever the request accepts.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Certificates of peers with a series of their own, those that end first: enough to see whose is next, and few where a
/// whole cluster's end on one day.
const MAX_PEER_CERTIFICATES: usize = 100;

/// `GET /metrics`. A registry is made for each scrape, because what is registered is the numbers of this moment.
///
/// # Errors
/// 500 `internal_error` if the encoder fails.
pub(super) async fn metrics(call: Call) -> Answer {
    let gathered = call.app.gather().await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(gathered));
    let mut text = String::new();
    if encode(&mut text, &registry).is_err() {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let mut detail = String::from("the metrics cannot be written");
        let _ = write!(detail, " after {} bytes", text.len());
        return Err(Problem::new(status, "internal_error", detail));
    }
    Ok(text_response(StatusCode::OK, MEDIA_TYPE, text))
}

impl App {
    /// Reads all numbers of one scrape. They are of slightly different moments: totals of nodes, then the queue, then
    /// counters.
    async fn gather(&self) -> Gathered {
        let (_, totals) = self.totals().await;
        let mut queue = QueueTotals::default();
        let mut next = Some(QueueTotalsCursor::default());
        while let Some(from) = next {
            next = self
                .hub
                .ask_now(|scheduler, now| scheduler.add_queue_totals(now, from, &mut queue));
            tokio::task::yield_now().await;
        }
        // Under one hold of the lock, so that counters belong together.
        let (counters, glance, store) = self.hub.read_now(|scheduler, now| {
            (
                scheduler.counters(),
                scheduler.glance(),
                scheduler.store(now),
            )
        });
        let ending = self.hub.read_now(ending_certificates);
        let endings = expiry::counts(&ending);
        let (peer_certificates, unlisted_certificates) = self.of_peers(ending);
        let (queued_bytes, stalled) = self.hub.queue_totals();
        Gathered {
            totals,
            queue,
            counters,
            glance,
            is_durable: store.state == StoreState::Written,
            queued_bytes,
            stalled,
            holds: self.hub.holds.read(),
            placements: self.hub.placements.read(),
            commits: self.hub.commits(),
            history: self.hub.history_totals(),
            handshakes: self.hub.handshakes(),
            endings,
            peer_certificates,
            unlisted_certificates,
            reloads: self.hub.reloads.counts(),
            reloaded_at_s: self.hub.reloads.last_taken_s(),
            certificates: self.credentials.now().certificates.clone(),
            process: process::read(),
            is_leaving: self.hub.is_shutting_down(),
            schedulers: self.hub.schedulers(),
        }
    }

    /// The certificates of peers that end first, each with its peer, and how many others end within the month or have.
    fn of_peers(&self, mut ending: Vec<EndingCertificate>) -> (Vec<(String, i64)>, usize) {
        ending.retain(|it| matches!(it.holder, CertificateHolder::Peer(_)));
        let unlisted = ending.len().saturating_sub(MAX_PEER_CERTIFICATES);
        if unlisted > 0 {
            ending.select_nth_unstable(MAX_PEER_CERTIFICATES);
            ending.truncate(MAX_PEER_CERTIFICATES);
        }
        ending.sort_unstable();
        let named = |scheduler: &Scheduler, _| named_certificates(scheduler, &ending);
        let named = self.hub.read_now(named).into_iter().zip(&ending);
        let of_peers = named.filter_map(|(what, it)| match what? {
            Unwell::PeerCertificate { uuid, .. } => Some((uuid.to_string(), it.ends_at_s)),
            _ => None,
        });
        let mut listed: Vec<(String, i64)> = of_peers.collect();
        // A peer with several sessions is one series, with the certificate that ends first.
        let mut seen = HashSet::new();
        listed.retain(|(uuid, _)| seen.insert(uuid.clone()));
        (listed, unlisted)
    }
}
