//! What is asked about the versions of the configuration, on its way there, and a configuration that was kept, on its way
//! to the core.

use std::io;
use std::sync::Arc;

use tracing::error;

use super::{Hub, InputBatch};
use crate::server::configuration::keeper::Keeper;
use crate::server::configuration::opening::Opened;
use sched_core::{ClusterConfiguration, Input, NodeRule, Parcel, SessionId};

impl Hub {
    /// Keeps versions of the configuration here from now on. Called once, before anything is accepted.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(in crate::server) fn keep_configuration_in(
        self: &Arc<Self>,
        opened: Opened,
    ) -> io::Result<()> {
        let keeper = opened.start(Arc::downgrade(self))?;
        if self.configuration.set(keeper).is_err() {
            error!(
                event = "internal_error",
                "there is a keeper of the configuration already"
            );
        }
        Ok(())
    }

    /// The versions of the configuration; `None` in tests that have none.
    pub(in crate::server) fn configuration(&self) -> Option<&Keeper> {
        self.configuration.get()
    }

    /// Has the keeper of the versions do what a peer asks for. Under the scheduler's lock: nothing waits.
    pub(super) fn ask_configuration(
        &self,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        parcel: Parcel,
    ) {
        let Some(keeper) = self.configuration.get() else {
            return;
        };
        if let Err(refused) = keeper.ask(session, parcel)
            && let Some(writer) = self.queue_behind(session, refused)
        {
            batch.wakers.push(writer);
        }
    }

    /// Notes that a CONFIGURE of this session is in force. Under the scheduler's lock.
    pub(super) fn configured(&self, session: SessionId, payload: bytes::Bytes) {
        if let Some(keeper) = self.configuration.get() {
            keeper.configured(self.subject_of(session).unwrap_or_default(), payload);
        }
    }

    /// Gives the core a configuration that is kept, unless a newer one is in force, which is asked under its lock.
    pub(in crate::server) fn configure(
        &self,
        cluster: ClusterConfiguration,
        is_superseded: impl FnOnce() -> bool,
    ) {
        self.in_batch(None, |batch, scheduler| {
            if is_superseded() {
                return;
            }
            scheduler.handle(batch.now, Input::Configure(Box::new(cluster)));
            self.dispatch(scheduler, batch);
        });
    }

    /// Gives the core what the node file says now.
    pub(in crate::server) fn set_node_rules(&self, rules: Vec<NodeRule>) {
        self.handle([Input::NodeRules(rules)], None);
    }
}
