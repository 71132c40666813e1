//! The coordinator's part that hands STARTs to the session: at once, over the next connection, or once more.

use std::sync::Arc;

use ciao_adapter::sent::unix_ms;

use crate::coordinator::Coordinator;
use crate::definition::{self, Definition};
use crate::instance::Fate;
use crate::requests::Ask;

/// Most instances that are sent again at a time.
const RETRIED_AT_A_TIME: usize = 256;

impl Coordinator {
    /// Sends an instance's START to the session. Without a connection the instance goes to `unsent`. A kept definition
    /// that cannot be read any more makes it fail.
    pub(super) fn submit(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        if it.is_sent() || it.record.fate != Fate::Run || self.noted.contains(instance) {
            return;
        }
        let Some(session) = &self.session else {
            it.held_back = format!("the scheduler is not reachable: {}", self.down);
            self.unsent.push_back(Arc::clone(instance));
            return;
        };
        if it.record.sent_ms.is_none() {
            it.record.sent_ms = Some(unix_ms());
            self.noted.insert(Arc::clone(instance));
            return self.keep(instance);
        }
        let payload = match Definition::read(&it.record.definition) {
            Ok(definition) => {
                let name = definition::name(&it.record.id, it.is_nameless);
                let of_set = it.record.set.is_some();
                let group = of_set.then(|| definition::group(&it.record.workload));
                let (uuid, id) = (&it.record.instance, &it.record.id);
                definition.start(uuid, id, name, group.as_deref(), &self.settings.defaults)
            }
            Err(error) => return self.fail(instance, error.to_string()),
        };
        if session.send(Ask::Start(payload)).is_ok() {
            it.note_sent();
        } else {
            // The connection is lost, which the session has yet to report.
            it.held_back = "the scheduler is not reachable".to_owned();
            self.unsent.push_back(Arc::clone(instance));
        }
    }

    /// Sends what waits for a connection, in order.
    pub(super) fn submit_unsent(&mut self) {
        if self.session.is_none() {
            return;
        }
        let all = std::mem::take(&mut self.unsent);
        all.iter().for_each(|it| self.submit(it));
    }

    /// Sends some of what the scheduler refused; for an instance that is to go, its DELETE.
    pub(super) fn try_again(&mut self) {
        if self.session.is_none() {
            return;
        }
        let some: Vec<_> = self.retry.iter().take(RETRIED_AT_A_TIME).cloned().collect();
        for instance in some {
            self.retry.remove(&instance);
            match self.instances.get(&instance).map(|it| &it.record.fate) {
                Some(Fate::Destroy) => self.delete(&instance),
                _ => self.submit(&instance),
            }
        }
    }
}
