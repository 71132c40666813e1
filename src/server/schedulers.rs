//! Several schedulers behind one name, in what the one that leads says of itself: who stands by, and how etcd is.
//!
//! The core knows nothing of it. What is read from etcd now and then ([`Schedulers`]) is added to the answer of a query
//! on its way out, and to those over HTTP.

use sched_core::{Action, Message};
use sched_model::SchedulersView;
use tokio::sync::watch;

use super::hub::Hub;
use super::sentences;

/// What was read last; `None` before that.
pub type Schedulers = watch::Receiver<Option<SchedulersView>>;

impl Hub {
    /// The schedulers behind this one's name; `None` where it is alone, or has not looked yet.
    pub(super) fn schedulers(&self) -> Option<SchedulersView> {
        let schedulers = self.limits.schedulers.as_ref()?;
        schedulers.borrow().clone()
    }

    /// Adds them to an answer that says how the scheduler is.
    pub(super) fn add_schedulers(&self, action: &mut Action) {
        let Action::Send { message, .. } = action else {
            return;
        };
        let Message::QueryResult(page) = message else {
            return;
        };
        let Some(status) = &mut page.payload.status else {
            return;
        };
        status.schedulers = self.schedulers();
        if let Some(schedulers) = &status.schedulers {
            status
                .conditions
                .extend(sentences::of_schedulers(schedulers));
            status.well = Some(status.conditions.is_empty());
        }
    }
}
