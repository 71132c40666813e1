//! `ciaoctl status`: whether all is well, and if not, what.
//!
//! What is not well is the scheduler's list; [`crate::ctl::health`] makes the rest of the screen of what it lists beside. [`Exit::Unwell`] is
//! for scripts and monitoring.

use std::path::Path;

use jiff::Timestamp;
use proto_frames::payload::QueryKind;

use crate::ctl::client::ClientError;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::health::{RECENT, Seen, health};
use crate::ctl::units::span;
use crate::net::tls::{self, TrustAnchors, TrustFiles};
use crate::printable::{Printable, counted};

/// Shows the cluster on one screen; the exit code says whether all is well.
///
/// Five queries, one after the other. A scheduler that does not know the first one is described by the others.
///
/// # Errors
/// [`CommandError`].
pub async fn status(context: &mut Context<'_>) -> Result<Exit, CommandError> {
    let client = &mut context.client;
    let status = match client.list(QueryKind::Status, None).await {
        Ok(listing) => listing.status,
        // It does not know the question.
        Err(ClientError::Query { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let seen = Seen {
        status,
        nodes: client.list(QueryKind::Nodes, None).await?.nodes,
        instances: client.list(QueryKind::Instances, None).await?.instances,
        queue: client.list(QueryKind::Queue, None).await?.instances,
        ended: client.ended_within(None, RECENT).await?,
        own_certificates: own_certificates(&context.config.cert, &context.config.trust),
        now_ms: Timestamp::now().as_millisecond(),
    };
    let health = health(&seen);
    let exit = match health.is_well() {
        true => Exit::Done,
        false => Exit::Unwell,
    };
    if context.json {
        context.out.document(&health.json(&seen))?;
        return Ok(exit);
    }
    let first = match health.problems.len() {
        0 => "all is well".to_owned(),
        problems => format!("not well: {}", counted(problems as u64, "problem")),
    };
    context
        .out
        .verdict(&Printable::new(first), health.is_well())?;
    for problem in &health.problems {
        let since = problem
            .since_s
            .map(|since| format!(" (for {})", span(since)));
        let (what, since) = (&problem.what, since.unwrap_or_default());
        context
            .out
            .line(&Printable::new(format_args!("  {what}{since}")))?;
        if !problem.advice.is_empty() {
            let advice = &problem.advice;
            context
                .out
                .line(&Printable::new(format_args!("    {advice}")))?;
        }
    }
    for (what, how) in &health.glance {
        context
            .out
            .line(&Printable::new(format_args!("{what:13} {how}")))?;
    }
    Ok(exit)
}

/// The files that this program connects with, and when each ends. They were read a moment ago: what cannot be read
/// now is left out.
///
/// Seconds of Unix time.
fn own_certificates(cert: &Path, trust: &TrustFiles) -> Vec<(String, i64)> {
    let identity = tls::load_identity(cert).ok().map(|it| it.expiry());
    let anchors = tls::load_trust(trust).ok();
    let crls = anchors.iter().flat_map(TrustAnchors::crl_expiries);
    let anchors = anchors.as_ref().map(TrustAnchors::expiry);
    identity.into_iter().chain(anchors).chain(crls).collect()
}
