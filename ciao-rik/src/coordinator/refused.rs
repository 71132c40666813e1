//! The coordinator's part for what cannot be done.
//!
//! RIK's own controller ends as a process over any error of `ScheduleInstance`. So it gets a good answer, with the reason
//! as a notice, and its stream says what is true: an instance that lives is told as it is, one that could not be made has
//! failed. What the disk or the limits do not take is remembered in memory for that ([`RefusedCreates`]). A controller
//! that says that it knows sets takes errors.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use sched_model::cut::cut;
use tonic::Status;
use tracing::warn;

use crate::coordinator::{Action, Answer, Coordinator, Request, Step};
use crate::instance::{Fate, Instance, InstanceRecord};
use crate::updates::Caller;

/// Most instances that could not be made and are remembered, of all controllers together; the oldest are dropped first.
const MAX_REFUSED: usize = 4096;

/// Most bytes of their ids and reasons. Of an id alone that is too long to be kept there may be half a MiB.
const MAX_REFUSED_BYTES: usize = 16 << 20;

/// Most bytes of a reason that are kept and told; a longer one is cut. It may quote what the controller wrote.
const MAX_REASON: usize = 2 * 1024;

/// Where the answer to a request goes, and what the request was if its controller takes no error.
#[derive(Debug)]
pub(super) struct Reply {
    answer: Answer,
    without_error: Option<Plain>,
    /// Beside a good answer, in the place of what is said to all.
    notice: Option<String>,
    /// The instance whose status is told once more with a good answer.
    pub(super) again: Option<Arc<str>>,
}

/// A request of a controller that takes no errors.
#[derive(Debug)]
struct Plain {
    caller: Caller,
    id: String,
    is_create: bool,
}

impl Reply {
    /// The reply to a request for one instance.
    pub(super) fn new(answer: Answer, request: &Request, caller: &Caller) -> Self {
        let plain = || Plain {
            caller: caller.clone(),
            id: request.id.clone(),
            is_create: !matches!(request.action, Action::Destroy),
        };
        Self {
            answer,
            without_error: (!caller.takes_errors()).then(plain),
            notice: None,
            again: None,
        }
    }

    /// The reply to a request for a set. It may be an error: RIK's own controller asks for none, and a set that is refused
    /// has no id of which its stream could say so.
    pub(super) fn of_set(answer: Answer) -> Self {
        Self {
            answer,
            without_error: None,
            notice: None,
            again: None,
        }
    }

    /// Has a notice stand beside the good answer: nothing that runs comes of the request.
    pub(super) fn note(&mut self, refusal: &Status) {
        let why = reason(refusal);
        if let Some(plain) = &self.without_error {
            warn_of(&plain.id, &why);
        }
        self.notice = Some(why);
    }

    /// It is done, or will be.
    pub(super) fn done(self, notice: &Option<String>) {
        // The controller may have gone.
        let _ = self.answer.send(Ok(self.notice.or_else(|| notice.clone())));
    }
}

impl Coordinator {
    /// Refuses a request, which changes nothing. A controller that takes no error has a good answer, and is told how the
    /// instance is; one that it wants gone goes later.
    pub(super) fn refuse(&mut self, reply: Reply, refusal: Status) {
        let Some(Plain {
            caller,
            id,
            is_create,
        }) = reply.without_error
        else {
            // The controller may have gone.
            let _ = reply.answer.send(Err(refusal));
            return;
        };
        let mut why = reason(&refusal);
        let key = (Arc::clone(&caller.owner), id.clone());
        let known = self.by_id.get(&key).cloned();
        if !is_create && known.is_some() {
            why.insert_str(0, "it is destroyed once that can be written: ");
        }
        warn_of(&id, &why);
        let _ = reply.answer.send(Ok(Some(why.clone())));
        match known {
            Some(instance) => {
                self.notify_again(&instance);
                if !is_create {
                    self.to_go.insert(instance);
                }
            }
            None if is_create => {
                self.notify_failed(&caller.owner, &id, &why);
                self.refused.note(caller.owner, id, why);
            }
            // Its CREATE was refused a moment ago, with the same write.
            None if self.refused.contains(&caller.owner, &id) => self.notify_gone(&id, &caller),
            None => {}
        }
    }

    /// Has what could not be destroyed destroyed with the next write. What is not written by the end of the program is
    /// not destroyed, and told as it is.
    pub(super) fn destroy_what_is_to_go(&mut self) {
        let instances = &self.instances;
        let runs = |it: &Instance| it.fate_when_destroyed().is_some();
        self.to_go.retain(|it| instances.get(it).is_some_and(runs));
        // There may be as many as there are instances.
        let is_destroyed = |(step, _): &(Step, _)| match step {
            Step::Destroy(it) => Some(Arc::clone(it)),
            Step::Set(..) | Step::ForgetSet(_) => None,
        };
        let staged: BTreeSet<_> = self.staged.iter().filter_map(is_destroyed).collect();
        let missing = self.to_go.difference(&staged).cloned();
        self.staged
            .extend(missing.map(|it| (Step::Destroy(it), None)));
    }

    /// The record of an instance that has failed before it began. It is kept as any that has failed.
    pub(super) fn record_of_failed(
        &self,
        workload: String,
        id: String,
        why: &Status,
        caller: &Caller,
    ) -> InstanceRecord {
        InstanceRecord {
            id,
            instance: self.family.new_instance().to_string().into(),
            workload,
            // It is never sent.
            definition: "".into(),
            owner: Arc::clone(&caller.owner),
            set: None,
            fate: Fate::Failed(reason(why)),
            sent_ms: None,
        }
    }
}

/// Why, as it is kept and told.
fn reason(refusal: &Status) -> String {
    cut(refusal.message(), MAX_REASON).into_owned()
}

fn warn_of(id: &str, why: &str) {
    let id = cut(id, 64);
    warn!(event = "rik_request_not_done", %id, "nothing comes of a request, which its controller learns from its stream alone: {why}");
}

/// Instances that could not be made, the earliest first; of one owner and id there is one.
#[derive(Debug, Default)]
pub(super) struct RefusedCreates {
    all: VecDeque<RefusedCreate>,
    /// Bytes of all of them.
    bytes: usize,
}

#[derive(Debug)]
struct RefusedCreate {
    owner: Arc<str>,
    id: String,
    why: String,
}

impl RefusedCreates {
    /// Takes note of one.
    pub(super) fn note(&mut self, owner: Arc<str>, id: String, why: String) {
        self.remove(&owner, &id);
        let refused = RefusedCreate { owner, id, why };
        self.bytes += refused.bytes();
        self.all.push_back(refused);
        while (self.all.len() > MAX_REFUSED || self.bytes > MAX_REFUSED_BYTES)
            && let Some(oldest) = self.all.pop_front()
        {
            self.bytes -= oldest.bytes();
        }
    }

    /// Forgets one that is made after all, or that its controller wants gone. Whether there was one.
    pub(super) fn remove(&mut self, owner: &str, id: &str) -> bool {
        let mut all = self.all.iter();
        let Some(at) = all.position(|it| &*it.owner == owner && it.id == id) else {
            return false;
        };
        if let Some(removed) = self.all.remove(at) {
            self.bytes -= removed.bytes();
        }
        true
    }

    /// Whether this one is remembered.
    pub(super) fn contains(&self, owner: &str, id: &str) -> bool {
        self.of(owner).any(|(it, _)| it == id)
    }

    /// Id and reason of those of an owner.
    pub(super) fn of(&self, owner: &str) -> impl Iterator<Item = (&str, &str)> {
        let its = self.all.iter().filter(move |it| &*it.owner == owner);
        its.map(|it| (&*it.id, &*it.why))
    }
}

impl RefusedCreate {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.id.len() + self.why.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_has_a_bound_in_number_and_bytes() {
        let mut refused = RefusedCreates::default();
        let mut note = |owner: &str, id: String| refused.note(owner.into(), id, "full".to_owned());
        (0..=MAX_REFUSED).for_each(|id| note("anna", id.to_string()));
        note("berta", "1".to_owned());
        let of = |refused: &RefusedCreates, owner: &str| refused.of(owner).count();
        assert_eq!(
            of(&refused, "anna"),
            MAX_REFUSED - 1,
            "the oldest are dropped"
        );
        assert_eq!(refused.of("anna").next(), Some(("2", "full")));
        assert!(refused.remove("berta", "1") && !refused.remove("berta", "1"));
        let long = "x".repeat(MAX_REFUSED_BYTES / 2);
        for tail in ["1", "2", "2"] {
            refused.note("carl".into(), format!("{long}{tail}"), String::new());
        }
        assert_eq!((of(&refused, "anna"), of(&refused, "carl")), (0, 1));
        assert!(refused.remove("carl", &format!("{long}2")));
        assert_eq!((refused.all.len(), refused.bytes), (0, 0));
    }
}
