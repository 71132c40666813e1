//! `requirements.node_id` and `hostname`: only the node or host with that name.

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::ids::canonical_uuid;
use crate::cluster::view::{Asked, Candidate};

#[derive(Debug)]
pub(super) struct Pin;

const OTHER_ID: Miss = Miss(0);
const OTHER_HOST: Miss = Miss(1);

impl Filter for Pin {
    fn name(&self) -> &'static str {
        "pin"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.request.node_id.is_some() || asked.request.hostname.is_some()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let request = asked.request;
        if let Some(id) = request.node_id.as_deref()
            && canonical_uuid(id) != Some(node.uuid())
        {
            return Err(OTHER_ID);
        }
        match request.hostname.as_deref() {
            Some(hostname) if hostname != node.hostname() => Err(OTHER_HOST),
            _ => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let (nodes, pool) = (to.view.nodes, to.view.pool);
        let slot = |key| nodes.node(key).slots()[pool as usize];
        if let Some(id) = asked.request.node_id.as_deref() {
            let key = canonical_uuid(id).and_then(|uuid| nodes.by_uuid(uuid));
            to.only(key.and_then(slot).into_iter().collect());
        } else if let Some(hostname) = asked.request.hostname.as_deref() {
            to.only(
                nodes
                    .by_hostname(hostname)
                    .iter()
                    .copied()
                    .filter_map(slot)
                    .collect(),
            );
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Pinned
    }

    fn describe(&self, miss: Miss, asked: &Asked<'_>) -> String {
        let (what, name) = if miss == OTHER_ID {
            ("node", asked.request.node_id.as_deref())
        } else {
            ("host", asked.request.hostname.as_deref())
        };
        format!("not the {what} asked for ({})", name.unwrap_or_default())
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
