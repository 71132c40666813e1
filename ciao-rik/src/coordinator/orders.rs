//! The coordinator's part for controllers: instances made and destroyed, and streams of updates.
//!
//! Both requests may be repeated without harm: to make what is there, or to destroy what is not, is answered as a
//! success.

use std::sync::Arc;

use ciao_adapter::sent::{Sent, unix_ms};
use ciao_scheduler::ctl::track::Stage;
use proto_frames::payload::{Delete, PhaseName};
use tonic::Status;
use uuid::Uuid;

use crate::coordinator::refused::Reply;
use crate::coordinator::{
    Action, Answer, Coordinator, MAX_DEFINITIONS, MAX_ID, MAX_INSTANCES, MAX_SUBSCRIBERS, Order,
    Request, Step,
};
use crate::definition::{self, Definition};
use crate::instance::{Fate, InstanceRecord, Member};
use crate::requests::Ask;
use crate::updates::{self, Caller, Updates};

impl Coordinator {
    /// Carries out one order.
    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::Schedule {
                request,
                caller,
                answer,
            } => self.schedule(request, &caller, answer),
            Order::Subscribe { caller, answer } => {
                // A controller that is gone drops the stream, which is noticed like any other end of one.
                let updates = self.subscribe(caller);
                let _ = answer.send(updates.map(|it| (it, self.cut_off())));
            }
            Order::Banned(owners) => {
                self.banned = owners;
                for subscriber in &self.subscribers {
                    if self.is_banned(&subscriber.caller) {
                        subscriber.end(banned());
                    }
                }
            }
        }
    }

    /// Makes or destroys one instance, or hands the request to the sets if it names none.
    fn schedule(&mut self, request: Request, caller: &Caller, answer: Answer) {
        if request.id.is_empty() {
            return self.schedule_set(request, caller, answer);
        }
        let mut reply = Reply::new(answer, &request, caller);
        if request.id.len() > MAX_ID {
            return self.schedule_unkept(request, caller, reply);
        }
        // One controller's ids are apart from those of another token.
        let key = (Arc::clone(&caller.owner), request.id.clone());
        let known = self.by_id.get(&key).cloned();
        if self.is_staged(&request.workload, caller, known.as_ref()) {
            // The earlier request comes first, and may change what is known.
            self.commit();
        }
        let known = self.by_id.get(&key).cloned();
        match (request.action, known) {
            // It is there, or will be: nothing is made twice. Who asks again may not know how it is.
            (Action::Create(definition), Some(instance))
                if self.is_wanted(&instance) && self.is_made_of(&instance, &definition) =>
            {
                self.to_go.remove(&instance);
                reply.again = Some(instance);
                self.answers.push(reply);
            }
            (Action::Create(_) | Action::Fail(_), Some(instance)) => {
                let refusal = self.is_there(&request.id, &instance);
                self.refuse(reply, refusal);
            }
            // Not answered before the record is on disk.
            (Action::Create(definition), None) => {
                match self.create(request.workload, request.id, &definition, caller, None) {
                    Ok(instance) => self.accepting.push((instance, Some(reply))),
                    Err(status) => self.refuse(reply, status),
                }
            }
            (Action::Fail(why), None) => {
                let record = self.record_of_failed(request.workload, request.id, &why, caller);
                match self.keep_new(record) {
                    Ok(instance) => {
                        reply.note(&why);
                        self.accepting.push((instance, Some(reply)));
                    }
                    Err(status) => self.refuse(reply, status),
                }
            }
            (Action::Destroy, Some(instance)) => {
                self.staged.push((Step::Destroy(instance), Some(reply)));
            }
            // Nothing of it is left: its controller may still list it.
            (Action::Destroy, None) => {
                self.answers.push(reply);
                self.notify_gone(&request.id, caller);
            }
        }
    }

    /// Why an instance cannot be made whose id another has.
    fn is_there(&self, id: &str, instance: &Arc<str>) -> Status {
        Status::failed_precondition(match self.is_wanted(instance) {
            true => format!("instance {id:?} is there with another definition; destroy it first"),
            false => format!(
                "instance {id:?} is being destroyed, or has failed and is to be destroyed first"
            ),
        })
    }

    /// A request of a controller that takes no errors, with an id that is too long to be kept. What is not remembered as
    /// refused is not known to be listed anywhere.
    fn schedule_unkept(&mut self, request: Request, caller: &Caller, reply: Reply) {
        let is_destroy = matches!(request.action, Action::Destroy);
        if is_destroy && self.refused.contains(&caller.owner, &request.id) {
            self.notify_gone(&request.id, caller);
            return reply.done(&None);
        }
        let text = format!("instance_id: longer than {MAX_ID} bytes");
        self.refuse(reply, Status::invalid_argument(text));
    }

    /// Whether an instance is there and is to run.
    fn is_wanted(&self, instance: &Arc<str>) -> bool {
        let fate = self.instances.get(instance).map(|it| &it.record.fate);
        fate == Some(&Fate::Run)
    }

    /// Whether an instance was made of this definition.
    fn is_made_of(&self, instance: &Arc<str>, definition: &Definition) -> bool {
        let kept = self
            .instances
            .get(instance)
            .map(|it| &*it.record.definition);
        kept.is_some_and(|kept| definition::makes_the_same(kept, &definition.json))
    }

    /// Whether the caller's token is banned. A call that was let in before may be carried out after the ban.
    fn is_banned(&self, caller: &Caller) -> bool {
        !caller.owner.is_empty() && self.banned.iter().any(|it| **it == *caller.owner)
    }

    /// Makes an instance in memory and has it written. It is not sent: the caller puts it into `accepting`.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there are too many instances or bytes of definitions.
    pub(super) fn create(
        &mut self,
        workload: String,
        id: String,
        definition: &Definition,
        caller: &Caller,
        set: Option<Member>,
    ) -> Result<Arc<str>, Status> {
        if self.definitions + definition.json.len() > MAX_DEFINITIONS {
            let text = format!(
                "the definitions of all instances have {} bytes; at most {MAX_DEFINITIONS} are kept",
                self.definitions
            );
            return Err(Status::resource_exhausted(text));
        }
        let record = InstanceRecord {
            id,
            instance: self.family.new_instance().to_string().into(),
            workload,
            definition: definition.json.as_str().into(),
            owner: Arc::clone(&caller.owner),
            set,
            fate: Fate::Run,
            // It is sent as soon as it is written, if it can be: that is written with it.
            sent_ms: self.session.as_ref().map(|_| unix_ms()),
        };
        self.keep_new(record)
    }

    /// Takes a new instance in and has it written.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` where there are too many.
    pub(super) fn keep_new(&mut self, record: InstanceRecord) -> Result<Arc<str>, Status> {
        if self.by_id.len() >= MAX_INSTANCES {
            let text = format!("there are {MAX_INSTANCES} instances already");
            return Err(Status::resource_exhausted(text));
        }
        let instance = Arc::clone(&record.instance);
        self.refused.remove(&record.owner, &record.id);
        self.insert(record, Sent::No);
        self.keep(&instance);
        Ok(instance)
    }

    /// Has an instance go. One that the scheduler has not, or that has ended or failed, is over at once; for any other
    /// a DELETE is sent, and its end comes as an event.
    pub(super) fn destroy(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        self.settings.unwanted.add(instance);
        match it.fate_when_destroyed() {
            Some(Fate::Destroy) => {
                it.record.fate = Fate::Destroy;
                self.touch_set(instance);
                self.keep(instance);
                self.notify(instance);
                self.delete(instance);
            }
            Some(_) => self.finish(instance),
            // A repeated request: it may be that the first was not heard.
            None if it.record.fate == Fate::Destroy => self.delete(instance),
            None => {}
        }
    }

    /// Sends a DELETE for an instance. Without a connection nothing is sent; the next connection repeats it for all
    /// that are to go.
    ///
    /// A lost node cannot be asked; `forget` has the scheduler forget the instance without it.
    pub(super) fn delete(&mut self, instance: &Arc<str>) {
        let (Some(it), Some(session)) = (self.instances.get(instance), &self.session) else {
            return;
        };
        let is_lost = matches!(
            it.stage(),
            Stage::Held {
                state: PhaseName::Lost,
                ..
            }
        );
        let node = it.node().filter(|node| !node.is_empty());
        let delete = Delete {
            instance_uuid: instance.to_string(),
            // One that waits is on none, and a DELETE must name one all the same. The scheduler finds it.
            workload_agent_uuid: node.map_or_else(|| Uuid::nil().to_string(), str::to_owned),
            stop: false,
            forget: is_lost,
        };
        // Without a session it is asked again once there is one.
        let _ = session.send(Ask::Delete(delete));
    }

    /// Makes a stream of updates, with the state of everything as its first messages.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` for a banned token, `RESOURCE_EXHAUSTED` where there are [`MAX_SUBSCRIBERS`] streams with a
    /// reader.
    fn subscribe(&mut self, caller: Caller) -> Result<Updates, Status> {
        if self.is_banned(&caller) {
            return Err(banned());
        }
        self.tidy();
        if self.subscribers.len() >= MAX_SUBSCRIBERS {
            let text = format!("there are {MAX_SUBSCRIBERS} streams of updates already");
            return Err(Status::resource_exhausted(text));
        }
        let (subscriber, updates) = updates::channel(caller);
        self.push_snapshot(&subscriber);
        self.subscribers.push(subscriber);
        Ok(updates)
    }
}

/// The refusal of a banned token.
fn banned() -> Status {
    Status::permission_denied("the token is banned")
}
