//! Tenant isolation: nodes of an aggregate that is reserved for tenants take work of these tenants alone.
//!
//! Tenants may still run on all nodes that are reserved for no one. A node in several such aggregates is open to the
//! tenants of each. A START without a tenant runs on unreserved nodes alone.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::facts::TENANT;
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;

/// Rejects nodes that are reserved, and not for the START's tenant. Concerns every START while any node is reserved.
/// Lasting: reservations change with the configuration alone.
#[derive(Debug)]
pub(super) struct Tenants;

impl Filter for Tenants {
    fn name(&self) -> &'static str {
        "tenants"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.is_any_reserved
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let tenant = asked
            .query
            .request()
            .tenant
            .as_ref()
            .map(ToString::to_string);
        let mut is_reserved = false;
        for reserved_for in node.label(TENANT) {
            if Some(reserved_for) == tenant.as_deref() {
                return Ok(());
            }
            is_reserved = true;
        }
        if is_reserved { Err(Miss(0)) } else { Ok(()) }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let mut others = to.labels.with_key(TENANT);
        if let Some(tenant) = &asked.query.request().tenant {
            let tenant = tenant.to_string();
            let own = to
                .labels
                .with_values(TENANT, std::iter::once(tenant.as_str()));
            for slot in own.iter() {
                others.remove(slot);
            }
        }
        to.masks.push(Mask::outside(Arc::new(others)));
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Tenants
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Tenant
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
