//! Sets: instances of one definition, as many as it says, that are made, changed and destroyed together.
//!
//! A set is asked for with a workload and no instance id. What it is to be is kept ([`Set`]); what it is, is what its
//! instances are. [`Coordinator::settle_sets`] compares the two after each round and takes the steps from one to the
//! other, a few at a time where the definition has changed.
//!
//! An instance of the present definition has the set's `generation`, one of an earlier definition a different one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tonic::Status;
use uuid::Uuid;

use crate::coordinator::refused::Reply;
use crate::coordinator::{Action, Answer, Coordinator, Request, Step};
use crate::definition::{self, Definition};
use crate::instance::{Fate, Instance, InstanceRecord, Member, shared};
use crate::updates::Caller;

/// Most sets of all controllers together.
pub(crate) const MAX_SETS: usize = 10_000;

/// What a set is to be; kept on disk as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Set {
    /// The workload's id, in its controller's words.
    pub(crate) workload: String,
    /// The name of the token of its controller; empty without tokens.
    #[serde(with = "shared")]
    pub(crate) owner: Arc<str>,
    /// The definition's JSON, on one line.
    pub(crate) definition: String,
    /// Number of the definition. It goes up by one when the definition changes in more than `replicas`, which alone
    /// needs no instance to be replaced.
    pub(crate) generation: u64,
    /// How many instances it is to have.
    pub(crate) replicas: u32,
}

impl Coordinator {
    /// Makes, changes or destroys a set. Carried out and answered after the write to disk; instances
    /// follow later.
    ///
    /// All streams of this caller are told of instances of sets from here on.
    pub(super) fn schedule_set(&mut self, request: Request, caller: &Caller, answer: Answer) {
        let reply = Reply::of_set(answer);
        if request.workload.is_empty() {
            let text = "neither an instance_id nor a workload_id is given";
            return self.refuse(reply, Status::invalid_argument(text));
        }
        for subscriber in &mut self.subscribers {
            // Who asks for sets knows them.
            subscriber.caller.knows_sets |= subscriber.caller.address == caller.address
                && subscriber.caller.owner == caller.owner;
        }
        if self.is_staged(&request.workload, caller, None) {
            // The earlier request comes first: the number of the definition follows from it.
            self.commit();
        }
        let key = key(&caller.owner, &request.workload);
        // Those that are staged may all be new ones.
        let count = self.sets.len() + self.staged.len();
        let step = match request.action {
            Action::Create(_) if !self.sets.contains_key(&key) && count >= MAX_SETS => {
                let text = format!("there are {MAX_SETS} sets already");
                return self.refuse(reply, Status::resource_exhausted(text));
            }
            Action::Create(definition) => {
                let set = self.changed_set(&key, request.workload, *definition, caller);
                Step::Set(key, Box::new(set))
            }
            Action::Fail(why) => return self.refuse(reply, why),
            Action::Destroy => Step::ForgetSet(key),
        };
        self.staged.push((step, Some(reply)));
    }

    /// What a set is to be. A set that is made begins with a random generation: instances of an earlier set of this
    /// workload, which are still being destroyed, must not count as its own.
    fn changed_set(
        &self,
        key: &str,
        workload: String,
        definition: Definition,
        caller: &Caller,
    ) -> Set {
        let generation = match self.sets.get(key) {
            Some(before) if definition::is_same(&before.definition, &definition.json) => {
                before.generation
            }
            Some(before) => before.generation + 1,
            // What is left of one that was destroyed is of no generation of this.
            None => fastrand::u64(1 << 32..1 << 48),
        };
        Set {
            workload,
            owner: Arc::clone(&caller.owner),
            generation,
            replicas: definition.replicas,
            definition: definition.json,
        }
    }

    /// Notes that an instance's set is to be looked at in this round. Call it where the instance's fate or running
    /// changes.
    pub(super) fn touch_set(&mut self, instance: &Arc<str>) {
        if let Some(it) = self.instances.get(instance)
            && it.record.set.is_some()
        {
            let key = key(&it.record.owner, &it.record.workload);
            self.unsettled.insert(key);
        }
    }

    /// Takes the steps that can be taken now. The cost is a walk over its instances for each set that was touched.
    pub(super) fn settle_sets(&mut self) {
        for key in std::mem::take(&mut self.unsettled) {
            if let Some(set) = self.sets.get(&key).cloned() {
                self.settle_set(&key, &set);
            }
        }
    }

    /// One set's steps, in this order:
    ///
    /// - Failed instances of earlier definitions are destroyed.
    /// - Surplus ones are destroyed, those of earlier definitions first.
    /// - Missing ones are made.
    /// - Of the instances of earlier definitions, those that do not run are replaced at once; those that run only so
    ///   far that no more than `max_down` are down at a time. The next status of a new instance brings the next step.
    fn settle_set(&mut self, key: &str, set: &Set) {
        let wanted = set.replicas as usize;
        let is_new = |it: &Instance| {
            it.record
                .set
                .as_ref()
                .is_some_and(|set_| set_.generation == set.generation)
        };
        let is_wanted = |it: &Instance| it.record.fate == Fate::Run;
        // What has failed is replaced only with the definition: one that cannot run would be tried for ever.
        let has_failed = |it: &Instance| matches!(it.record.fate, Fate::Failed(_));
        let new = self.members(key, |it| is_new(it) && (is_wanted(it) || has_failed(it)));
        let old = self.members(key, |it| !is_new(it) && is_wanted(it));
        let failed_before = self.members(key, |it| !is_new(it) && has_failed(it));
        failed_before.iter().for_each(|it| self.destroy(it));
        // Too many: first those of before, then the latest.
        let surplus = (new.len() + old.len()).saturating_sub(wanted);
        let goes: Vec<Arc<str>> = old
            .iter()
            .chain(new.iter().rev())
            .take(surplus)
            .cloned()
            .collect();
        goes.iter().for_each(|it| self.destroy(it));
        let old: Vec<_> = old.into_iter().filter(|it| !goes.contains(it)).collect();
        let new: Vec<_> = new.into_iter().filter(|it| !goes.contains(it)).collect();
        let missing = wanted - (new.len() + old.len());
        self.add(set, missing);
        if old.is_empty() {
            return;
        }
        // Of those that are to be, so many do not run now, counting what was just asked for.
        let is_down = |it: &&Arc<str>| !self.instances.get(*it).is_some_and(Instance::is_running);
        let down = new.iter().chain(&old).filter(is_down).count() + missing;
        let may_go = (self.settings.max_down as usize).saturating_sub(down);
        // Those that do not run anyway go first, whatever the bound.
        let (idle, running): (Vec<_>, Vec<_>) = old.iter().cloned().partition(|it| is_down(&it));
        let goes: Vec<_> = idle
            .into_iter()
            .chain(running.into_iter().take(may_go))
            .collect();
        let count = goes.len();
        goes.iter().for_each(|it| self.destroy(it));
        self.add(set, count);
    }

    /// Makes so many instances of a set, which are sent after the write. Their ids are the definition's name, or the
    /// workload's id, with eight random hex digits: `web-1f0c2a9b`. It stops with a warning at the limit of instances.
    fn add(&mut self, set: &Set, count: usize) {
        let Ok(definition) = Definition::read(&set.definition) else {
            return;
        };
        let caller = Caller {
            owner: Arc::clone(&set.owner),
            address: None,
            knows_sets: true,
        };
        for _ in 0..count {
            let base = match &*definition.name {
                "" => &set.workload,
                name => name,
            };
            let tail = Uuid::new_v4().simple().to_string();
            let id = format!("{base}-{}", &tail[..8]);
            let member = Member {
                generation: set.generation,
            };
            let made = self.create(set.workload.clone(), id, &definition, &caller, Some(member));
            match made {
                Ok(instance) => self.accepting.push((instance, None)),
                Err(status) => {
                    tracing::warn!(
                        event = "rik_set_short",
                        "a set has fewer instances than it is to have: {}",
                        status.message()
                    );
                    return;
                }
            }
        }
    }

    /// UUIDs of the instances of a set that match and are not over, in the order of their ids.
    pub(super) fn members(&self, key: &str, matches: impl Fn(&Instance) -> bool) -> Vec<Arc<str>> {
        let members = self.members.get(key).into_iter().flatten();
        let found = members.filter(|(_, uuid)| self.instances.get(uuid).is_some_and(&matches));
        found.map(|(_, uuid)| Arc::clone(uuid)).collect()
    }

    /// Lists an instance under its set, if it is of one.
    pub(super) fn add_member(&mut self, record: &InstanceRecord) {
        if record.set.is_some() {
            let members = self.members.entry(key(&record.owner, &record.workload));
            let member = (record.id.clone(), Arc::clone(&record.instance));
            members.or_default().insert(member);
        }
    }

    /// Takes an instance from the list of its set.
    pub(super) fn remove_member(&mut self, record: &InstanceRecord) {
        if record.set.is_none() {
            return;
        }
        let key = key(&record.owner, &record.workload);
        if let Some(members) = self.members.get_mut(&key) {
            members.remove(&(record.id.clone(), Arc::clone(&record.instance)));
            if members.is_empty() {
                self.members.remove(&key);
            }
        }
    }
}

/// What a set is found by, here and in the store: owner, line end, workload. A token's name has no line end, so that
/// two pairs never have one key.
pub(super) fn key(owner: &str, workload: &str) -> String {
    format!("{owner}\n{workload}")
}
