//! The coordinator's part for requests that change what is here already: what each has written, and what is done after
//! that.
//!
//! The order matters. A controller whose request cannot be written is told that it is refused, and then nothing may
//! come of it: no DELETE is sent, and no set is another than the one on disk. Only RIK's own controller, which takes no
//! refusal, is told that what it wants gone goes later (`refused`).

use std::sync::Arc;

use crate::coordinator::{Coordinator, Step, sets};
use crate::instance::{Fate, InstanceRecord};
use crate::store::Change;
use crate::updates::Caller;

impl Coordinator {
    /// Whether a request that is staged concerns this instance, or the set of this workload.
    pub(super) fn is_staged(
        &self,
        workload: &str,
        caller: &Caller,
        instance: Option<&Arc<str>>,
    ) -> bool {
        let set = || sets::key(&caller.owner, workload);
        self.staged.iter().any(|(step, _)| match step {
            Step::Destroy(destroyed) => Some(destroyed) == instance,
            Step::Set(key, _) | Step::ForgetSet(key) => *key == set(),
        })
    }

    /// What is written for a request before it is carried out.
    pub(super) fn changes_of(&self, step: &Step) -> Vec<Change> {
        let destroyed = |it: &Arc<str>| self.destroyed(it).map(Change::Instance);
        match step {
            Step::Destroy(instance) => destroyed(instance).into_iter().collect(),
            Step::Set(key, set) => vec![Change::Set(key.clone(), set.clone())],
            Step::ForgetSet(key) => {
                let known = self.sets.contains_key(key);
                let set = known.then(|| Change::ForgetSet(key.clone()));
                let members = self.members(key, |_| true);
                let members = members.iter().filter_map(destroyed);
                set.into_iter().chain(members).collect()
            }
        }
    }

    /// Does what was asked for, which has been written.
    pub(super) fn carry_out(&mut self, step: Step) {
        match step {
            Step::Destroy(instance) => self.destroy_written(&instance),
            Step::Set(key, set) => {
                self.unsettled.insert(key.clone());
                self.sets.insert(key, *set);
            }
            Step::ForgetSet(key) => {
                self.sets.remove(&key);
                let all = self.members(&key, |_| true);
                all.iter().for_each(|it| self.destroy_written(it));
            }
        }
    }

    /// The record of an instance as destroying it makes it; `None` if that changes nothing.
    fn destroyed(&self, instance: &Arc<str>) -> Option<Box<InstanceRecord>> {
        let it = self.instances.get(instance)?;
        let mut record = Box::new(it.record.clone());
        record.fate = it.fate_when_destroyed()?;
        if record.fate == Fate::Over {
            record.definition = "".into();
        }
        Some(record)
    }

    /// Destroys an instance, whose record is on disk as that makes it: it is not written a second time.
    fn destroy_written(&mut self, instance: &Arc<str>) {
        let written = self.destroyed(instance);
        let at = self.changes.len();
        self.destroy(instance);
        if let Some(Change::Instance(record)) = self.changes.get(at)
            && Some(record) == written.as_ref()
        {
            self.changes.remove(at);
        }
    }
}
