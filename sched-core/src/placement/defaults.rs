//! What STARTs ask for that do not say it themselves: `policy.defaults`, and over it what is said of their tenant. So STARTs
//! of controllers that know nothing of `scheduling` wait, are tried again and survive their nodes as well.

use std::sync::Arc;

use indexmap::IndexMap;
use sched_model::{OnNodeLoss, Span};

use crate::api::rules::{PolicyRules, StartDefaults, TenantId};
use crate::api::start::StartRequest;

/// The defaults of a policy.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    of_all: StartDefaults,
    of_tenants: IndexMap<TenantId, StartDefaults>,
    /// Whether there are any: most policies have none, and STARTs are not looked at for them then.
    are_any: bool,
}

impl Defaults {
    /// Those of these rules.
    pub(crate) fn new(rules: &PolicyRules) -> Self {
        let none = StartDefaults::default();
        let of_tenants: IndexMap<_, _> = rules.tenants.iter().cloned().collect();
        Self {
            are_any: rules.defaults != none || of_tenants.values().any(|it| *it != none),
            of_all: rules.defaults.clone(),
            of_tenants,
        }
    }

    /// Adds to a START what it does not say itself. Returns what of that its launcher has to be told: whether it is to be
    /// started elsewhere when its node is lost, and how long it may run.
    #[inline]
    pub(crate) fn complete(&self, request: &mut Arc<StartRequest>) -> (bool, Option<Span>) {
        match self.are_any {
            true => self.add(request),
            false => (false, None),
        }
    }

    fn add(&self, request: &mut Arc<StartRequest>) -> (bool, Option<Span>) {
        let tenant = request.tenant.as_ref();
        let own = tenant.and_then(|tenant| self.of_tenants.get(tenant));
        let none = StartDefaults::default();
        let (own, all) = (own.unwrap_or(&none), &self.of_all);
        let before = request.scheduling.clone().unwrap_or_default();
        let mut asked = before.clone();
        asked.queue = asked.queue.or(own.queue).or(all.queue);
        asked.priority = asked.priority.or(own.priority).or(all.priority);
        asked.attempts = asked.attempts.or(own.attempts).or(all.attempts);
        asked.relocate = asked.relocate.or(own.relocate).or(all.relocate);
        asked.time_limit = asked.time_limit.or(own.time_limit).or(all.time_limit);
        // A START with `retry: {on: [node_failure]}` says it itself, with a limit.
        if asked.on_node_loss == OnNodeLoss::default() && !before.restarts_on_node_loss() {
            let said = own.on_node_loss.as_ref().or(all.on_node_loss.as_ref());
            asked.on_node_loss = said.cloned().unwrap_or_default();
        }
        if asked == before {
            return (false, None);
        }
        let restart_on_loss = asked.restarts_on_node_loss() && !before.restarts_on_node_loss();
        let time_limit = asked.time_limit.filter(|_| before.time_limit.is_none());
        Arc::make_mut(request).scheduling = Some(asked);
        (restart_on_loss, time_limit)
    }
}
