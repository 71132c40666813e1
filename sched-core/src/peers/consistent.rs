//! What must always hold of peers, recomputed from scratch and compared.

use sched_model::Role;

use crate::peers::Peers;
use crate::peers::session::{LISTENER, Session};

impl Peers {
    /// Recomputes what is kept in step and compares: identities, controllers, subscribers, combinations of roles, and
    /// who waits for answers. Part of `Scheduler::invariants`.
    ///
    /// # Errors
    /// Names the first thing that does not hold.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (identity, id) in &self.identities {
            let session = self.get(*id);
            let is_its = |session: &Session| session.identity() == *identity;
            ensure(session.is_some_and(is_its), || {
                format!("{identity:?} names {id:?}, which has ended or is another peer's")
            })?;
        }
        let listed = [
            (&self.controllers, Role::CONTROLLER),
            (&self.subscribers, LISTENER),
        ];
        for (list, role) in listed {
            for (at, id) in list.iter().enumerate() {
                let session = self.get(*id);
                ensure(
                    session.is_some_and(|it| it.hello.role.intersects(role)),
                    || format!("{id:?} is listed as {role} and has ended, or is none"),
                )?;
                ensure(!list[..at].contains(id), || {
                    format!("{id:?} is listed twice as {role}")
                })?;
            }
        }
        for (id, session) in &self.sessions {
            let roles = Role::CONTROLLER | Role::OPERATOR;
            ensure(!session.hello.role.contains(roles), || {
                format!("{id:?} is controller and operator")
            })?;
            let is_viewer = session.hello.role.contains(Role::VIEWER);
            ensure(!is_viewer || session.hello.role == Role::VIEWER, || {
                format!("{id:?} is a viewer and something else")
            })?;
            let subscribes = !session.topics.is_empty();
            ensure(self.subscribers.contains(id) == subscribes, || {
                format!("{id:?} is listed as a subscriber without a topic, or has one and is not")
            })?;
        }
        let mut askers = self.answers.operators();
        let gone = askers.find(|id| self.get(*id).is_none());
        ensure(gone.is_none(), || {
            format!("{gone:?} waits for an answer and has ended")
        })
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
