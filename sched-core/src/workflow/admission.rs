//! Admission: the one way for every START, whether alone, as one of a batch, tried again after a restart, taken back
//! from a connection that ended, or a dry run. What is known of its instance is looked up here and nowhere else, so
//! that an instance that a node has, or that the scheduler has to place itself, is not started a second time.
//!
//! What may be placed is a [`NewStart`]; nothing else makes one, and nothing else is placed. How it is placed is in
//! `start` and `batches`.

use std::sync::Arc;

use sched_model::{OnNodeLoss, StartFailureReason, Uuid};

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::content::Content;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::{PlacedStart, StartRequest};
use crate::cluster::ledger::Entry;
use crate::cluster::query::Query;
use crate::instance::{AfterLoss, Awaits, Placing, State};
use crate::placement::explain::Explanation;

/// What is known of a START's instance, and so what becomes of the START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// No node has it and the scheduler does not have to place it: the START may be placed.
    Nowhere,
    /// A node has it, or was given it: the START goes there.
    On(NodeKey),
    /// It waits for room: the sender is sent that, once the waiting is on disk.
    Waits,
    /// It was on a node that is expected back after a restart: the START waits for that node.
    Expected,
    /// The scheduler has it, and no node could answer: the START is refused, for this reason.
    Taken(Refusal),
    /// It is not known, but another living instance of its tenant has the name that its START asks for.
    NameTaken(InstanceId),
}

/// A START whose instance no node has and that the scheduler does not have to place. Only admission makes one, and
/// every function that places something takes one, so nothing is placed that was not checked here. It must be placed,
/// or go through admission once more, before the next input: after that its instance may be known.
#[derive(Debug)]
pub(crate) struct NewStart {
    start: Box<PlacedStart>,
}

impl Scheduler {
    /// Whether a START of this instance would not be placed as a new one: it is on a node, managed, or expected back.
    #[must_use]
    pub fn is_known(&self, instance: &InstanceId) -> bool {
        self.known(instance) != Known::Nowhere
    }

    /// What tells the START of an instance that is known from others; `None` also where that is not known.
    #[must_use]
    pub fn content(&self, instance: &InstanceId) -> Option<Content> {
        if let Some(managed) = self.instances.get(instance) {
            return managed.request()?.content;
        }
        let node = self.cluster.placement(instance)?;
        let entry = self.cluster.entry(node, instance);
        entry.and_then(Entry::content)
    }
}

impl NewStart {
    /// The START, to be read.
    pub(crate) fn as_start(&self) -> &PlacedStart {
        &self.start
    }

    /// What it asks for.
    pub(crate) fn request(&self) -> &Arc<StartRequest> {
        &self.start.request
    }

    /// The START, to be kept where it waits. When it is taken from there it has to be admitted again: a node may have
    /// come back with its instance.
    pub(crate) fn into_start(self) -> Box<PlacedStart> {
        self.start
    }
}

impl Scheduler {
    /// What is known of the instance of a START, apart from its name.
    pub(crate) fn known(&self, instance: &InstanceId) -> Known {
        let Some(managed) = self.instances.get(instance) else {
            return match self.cluster.placement(instance) {
                Some(key) => Known::On(key),
                None if self.recovery.expected_on(instance).is_some() => Known::Expected,
                None => Known::Nowhere,
            };
        };
        match managed.state() {
            State::Seeking { .. } | State::Waiting { .. } => Known::Waits,
            State::Running { node, .. }
            | State::Placing(Placing {
                node,
                pending_on: Awaits::Node { .. },
                ..
            }) => Known::On(*node),
            // It was deleted, and its launcher stops it once its lease is over: not before that is certain.
            State::Lost {
                then: AfterLoss::Delete,
                ..
            } if managed.stops_with_lease() => Known::Taken(Refusal::DeletedUnderLease),
            // The scheduler does not place it again.
            State::Lost {
                node,
                then: AfterLoss::Forget | AfterLoss::Delete,
                ..
            } => self.known_of_lost(*node),
            state => Known::Taken(Refusal::Is(state.life_state())),
        }
    }

    /// What is known of an instance that was on a lost node and is not placed again by itself. A client that starts it
    /// again knows that the node is lost, but not that it may be back any moment: because the scheduler has only just
    /// been started, or because the node is connected and its STATS is still to come.
    fn known_of_lost(&self, node: Uuid) -> Known {
        if self.recovery.is_awaited(node) {
            return Known::Expected;
        }
        let is_about_to_say = self.cluster.by_uuid(node).is_some_and(|key| {
            let node = self.cluster.node(key);
            node.session().is_some() && !node.has_listed()
        });
        if is_about_to_say {
            return Known::Taken(Refusal::NotListedYet(node));
        }
        Known::Nowhere
    }

    /// The same for a whole START, which may also ask for a name that another instance has.
    pub(crate) fn known_of(&self, request: &StartRequest) -> Known {
        match (self.known(&request.instance), self.has_its_name(request)) {
            (Known::Nowhere, Some(other)) => Known::NameTaken(other.clone()),
            (known, _) => known,
        }
    }

    /// Whether a START's instance is to be managed, because the START or the policy asks for something that may place
    /// it again.
    pub(crate) fn is_to_be_managed(&self, request: &StartRequest) -> bool {
        self.asks_to_be_managed(request) || self.placement.policy().manages_all()
    }

    /// Whether the START itself asks for it: a priority, a place in the queue, several attempts, relocation, or a
    /// restart elsewhere. STARTs of original controllers never do.
    pub(crate) fn asks_to_be_managed(&self, request: &StartRequest) -> bool {
        request.scheduling.as_deref().is_some_and(|asked| {
            asked.priority.is_some()
                || asked.queue.is_some()
                || asked.attempts.is_some()
                || asked.relocate
                || asked.on_node_loss == OnNodeLoss::Restart
        })
    }

    /// Whether a START that may be placed is to be managed. Beside those that ask for it: one that is started again
    /// although its lost node may come back with it, because the copy that comes back has to be stopped then; and one
    /// of which something is on disk, as one that waited in a batch or from before a restart, because a crash would
    /// otherwise bring that record back.
    pub(crate) fn is_to_manage(&self, start: &NewStart) -> bool {
        let request = start.request();
        self.is_to_be_managed(request)
            || self.instances.contains(&request.instance)
            || self.journal.is_recorded(&request.instance)
    }

    /// Admits a START that may be placed. Any other is answered, or sent to the node of its instance; `None` then.
    pub(crate) fn admit_start(&mut self, start: Box<PlacedStart>) -> Option<NewStart> {
        match self.known_of(&start.request) {
            Known::Nowhere => {
                self.note_name(&start.request);
                // The same START again while the first one waits for nodes: the newer takes its place.
                self.recovery.take_instance(&start.request.instance);
                Some(NewStart { start })
            }
            known => {
                self.answer_known(known, start);
                None
            }
        }
    }

    /// The same for STARTs that are placed together. Nothing is answered yet, because the batch may have to wait:
    /// returns those that may be placed, and the others with what is known of them, for [`Scheduler::answer_known`].
    pub(crate) fn admit_starts(
        &mut self,
        starts: Vec<PlacedStart>,
    ) -> (Vec<NewStart>, Vec<(Known, PlacedStart)>) {
        let (mut new, mut others) = (Vec::new(), Vec::new());
        for start in starts {
            match self.known_of(&start.request) {
                Known::Nowhere => {
                    self.note_name(&start.request);
                    new.push(NewStart {
                        start: Box::new(start),
                    });
                }
                known => others.push((known, start)),
            }
        }
        (new, others)
    }

    /// Deals with a START of a known instance: resends it to the instance's node, answers that it waits, lets it wait
    /// for the node that is expected back, or refuses it.
    pub(crate) fn answer_known(&mut self, known: Known, start: Box<PlacedStart>) {
        let instance = start.request.instance.clone();
        match known {
            Known::Nowhere => debug_assert!(false, "{instance} is not known"),
            Known::On(node) => match self.unlike(Some(node), &start.request) {
                Some(why) => self.answer_known(Known::Taken(why), start),
                None => {
                    self.note_asker(&start);
                    self.resend(node, start);
                }
            },
            Known::Waits => match self.unlike(None, &start.request) {
                Some(why) => self.answer_known(Known::Taken(why), start),
                None => {
                    self.note_asker(&start);
                    self.answer_waiting(&start);
                }
            },
            Known::Expected => {
                self.recovery.take_instance(&instance);
                self.hold(start, Some(Refusal::Crowded));
            }
            Known::NameTaken(other) => self.refuse_start(&start, name_taken(&start.request, other)),
            Known::Taken(why) => {
                let reason = StartFailureReason::InstanceExists;
                self.fail_with(&start, reason, Explanation::of(why.into()));
            }
        }
    }

    /// Why a START of an instance that waits, or that a node has, is not the one that made it: its content is another, or
    /// it asks for more than is claimed, which its launcher would take without a claim.
    ///
    /// Of instances that came with their nodes the content is not known. One that is to be started again has another
    /// than the first START: its launcher answers whether it may be.
    fn unlike(&self, node: Option<NodeKey>, request: &Arc<StartRequest>) -> Option<Refusal> {
        let instance = &request.instance;
        let ledger = node.map(|key| self.cluster.ledger(key));
        let entry = ledger.and_then(|ledger| ledger.get(instance));
        let is_other = match (self.content(instance), request.content) {
            (Some(first), Some(content)) => first != content && !request.restart,
            _ => false,
        };
        if is_other {
            return Some(Refusal::OtherStart);
        }
        let entry = entry.filter(|entry| entry.is_known())?;
        let query = Query::of(request);
        let claimed = |name: &str| {
            let column = self.cluster.columns().find(name)?;
            let claimed = entry.custom().iter().find(|(known, _)| *known == column);
            claimed.map(|(_, amount)| *amount)
        };
        let has = |(name, amount)| amount <= claimed(name).unwrap_or_default();
        let is_covered = entry.asked().covers(&query.asked()) && query.amounts().all(has);
        (!is_covered).then_some(Refusal::AsksForMore)
    }

    /// Has a START wait in the recovery window. If it cannot, because the window is closed or too much waits, it fails:
    /// for `otherwise`, or, with `None`, because no node fits.
    pub(crate) fn hold(&mut self, start: Box<PlacedStart>, otherwise: Option<Refusal>) {
        if let Some((batch, _)) = self.batches.waiting(&start.request.instance) {
            let why = Refusal::WaitsInBatch(batch.name().into());
            return self.answer_known(Known::Taken(why), start);
        }
        match self.recovery.hold(start) {
            Ok(instance) => self.notice(Notice::HeldForRecovery(instance)),
            Err(start) => match otherwise {
                Some(refusal) => self.fail_for_room(&start, refusal),
                None => self.fail_without_node(&start),
            },
        }
    }

    /// From now on the sender of this START, the latest one, is notified of what becomes of the instance.
    fn note_asker(&mut self, start: &PlacedStart) {
        if let Some(managed) = self.instances.get_mut(&start.request.instance) {
            managed.set_sender(start.sender);
        }
    }
}

/// The refusal of a START that asks for the name of another instance.
pub(crate) fn name_taken(request: &StartRequest, other: InstanceId) -> Refusal {
    let name = request.scheduling.as_ref().map(|it| &*it.name);
    let name = name.unwrap_or_default().into();
    Refusal::NameTaken { name, other }
}
