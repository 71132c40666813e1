//! Volumes and ports of a START (`storage[].id`, `networking.vnic_uuid`) that some node reports in `volumes`: only
//! nodes that have all of these.
//!
//! A volume that no node reports is taken to be reachable from everywhere, such as one on network storage, and rules
//! out no node. Without this filter in the policy, volumes are only preferred (`weighers`).

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::facts::VOLUME;
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;

/// Rejects nodes that lack one of the START's volumes that some node has. The miss is the index of the first one that
/// is lacking. Lasting: volumes do not move by themselves.
#[derive(Debug)]
pub(super) struct Volumes;

impl Filter for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        !asked.volumes.is_empty()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        match asked.volumes.iter().position(|it| !node.has_volume(it)) {
            Some(at) => Err(Miss(u32::try_from(at).unwrap_or(u32::MAX))),
            None => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        for volume in &asked.volumes {
            let has_it = to.labels.with_values(VOLUME, std::iter::once(*volume));
            to.masks.push(Mask::inside(Arc::new(has_it)));
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Volumes
    }

    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack {
        Lack::Volume(self.what(miss, asked).into())
    }

    fn what(&self, miss: Miss, asked: &Asked<'_>) -> String {
        let volume = asked.volumes.get(miss.0 as usize);
        volume.map_or_else(String::new, |it| (*it).to_owned())
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
