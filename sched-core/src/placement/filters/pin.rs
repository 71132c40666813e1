//! `requirements.node_id` and `hostname`, or the one node that a workflow knows the instance must go to
//! (`Query::pinned`): only the node or host with that name.
//!
//! The only filter that gives a list of slots instead of masks, so a pinned START costs the same in a cluster of any
//! size. A `node_id` that is no UUID matches no node. Several nodes may have the same host name; all of them match.

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects all nodes but the one or those that are named. Lasting: names do not change while a node is connected.
#[derive(Debug)]
pub(super) struct Pin;

/// The query names another node by UUID.
const OTHER_ID: Miss = Miss(0);
/// The START names another host.
const OTHER_HOST: Miss = Miss(1);

impl Filter for Pin {
    fn name(&self) -> &'static str {
        "pin"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query.is_pinned()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let query = asked.query;
        if query.node().is_some_and(|only| only != Some(node.uuid())) {
            return Err(OTHER_ID);
        }
        match query.hostname() {
            Some(hostname) if hostname != node.hostname() => Err(OTHER_HOST),
            _ => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let view = to.view;
        if let Some(only) = asked.query.node() {
            let key = only.and_then(|uuid| view.nodes.by_uuid(uuid));
            to.only(key.and_then(|key| view.slot(key)).into_iter().collect());
        } else if let Some(hostname) = asked.query.hostname() {
            let keys = view.nodes.by_hostname(hostname).iter();
            to.only(keys.filter_map(|&key| view.slot(key)).collect());
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Pinned
    }

    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack {
        if miss == OTHER_ID {
            Lack::Node(asked.query.pin_text().into())
        } else {
            Lack::Host(asked.query.hostname().unwrap_or_default().into())
        }
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
