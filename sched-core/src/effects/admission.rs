//! Admission: the one way for every START, whether alone, as one of a batch, tried again after a restart, taken back
//! from a connection that ended, or a dry run. What is known of its instance is looked up here and nowhere else, so
//! that an instance that a node has, or that the scheduler has to place itself, is not started a second time.
//!
//! What may be placed is a [`NewStart`]; nothing else makes one, and nothing else is placed. How it is placed is in
//! `start` and `batches`.

use std::sync::Arc;

use sched_model::StartFailureReason;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::content::Content;
use crate::api::declined::Refusal;
use crate::api::ids::InstanceId;
use crate::api::start::{PlacedStart, StartRequest};
use crate::placement::explain::Explanation;
use crate::query::known::Known;
use crate::sight::Sight;

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
        self.sight().known(instance) != Known::Nowhere
    }

    /// What tells the START of an instance that is known from others; `None` also where that is not known.
    #[must_use]
    pub fn content(&self, instance: &InstanceId) -> Option<Content> {
        self.sight().content(instance)
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
    /// Admits a START that may be placed. Any other is answered, or sent to the node of its instance; `None` then.
    pub(crate) fn admit_start(&mut self, start: Box<PlacedStart>) -> Option<NewStart> {
        match self.sight().known_of(&start.request) {
            Known::Nowhere => {
                self.note_name(&start.request);
                // The same START again while the first one waits: the newer takes its place.
                self.pending.take(&start.request.instance);
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
            match self.sight().known_of(&start.request) {
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
            Known::On(node) => match self.sight().unlike(Some(node), &start.request) {
                Some(why) => self.answer_known(Known::Taken(why), start),
                None => {
                    self.instances.note_asker(&start);
                    self.resend(node, start);
                }
            },
            Known::Waits => match self.sight().unlike(None, &start.request) {
                Some(why) => self.answer_known(Known::Taken(why), start),
                None => {
                    self.instances.note_asker(&start);
                    self.answer_waiting(&start);
                }
            },
            Known::Expected => {
                self.pending.take(&instance);
                self.hold(start, Some(Refusal::Crowded));
            }
            Known::NameTaken(other) => self.refuse_start(&start, name_taken(&start.request, other)),
            Known::Taken(why) => {
                let reason = StartFailureReason::InstanceExists;
                self.fail_with(&start, reason, Explanation::of(why.into()));
            }
        }
    }

    /// Has a START wait in the recovery window. If it cannot, because the window is closed or too much waits, it fails:
    /// for `otherwise`, or, with `None`, because no node fits.
    pub(crate) fn hold(&mut self, start: Box<PlacedStart>, otherwise: Option<Refusal>) {
        let instance = start.request.instance.clone();
        if let Some(batch) = self.pending.batch_of(&instance) {
            let why = Refusal::WaitsInBatch(batch.name().into());
            return self.answer_known(Known::Taken(why), start);
        }
        let held = if self.recovery.is_open() {
            self.pending.hold_for_nodes(start)
        } else {
            Err(start)
        };
        match held {
            Ok(()) => self.notice(Notice::HeldForRecovery(instance)),
            Err(start) => match otherwise {
                Some(refusal) => self.fail_for_room(&start, refusal),
                None => self.fail_without_node(&start),
            },
        }
    }
}

impl Sight<'_> {
    /// Whether a START that may be placed is to be managed. Beside those that ask for it: one that is started again
    /// although its lost node may come back with it, because the copy that comes back has to be stopped then; and one
    /// of which something is on disk, as one that waited in a batch or from before a restart, because a crash would
    /// otherwise bring that record back.
    pub(crate) fn is_to_manage(&self, start: &NewStart) -> bool {
        let request = start.request();
        self.placement.manages(request)
            || self.instances.contains(&request.instance)
            || self.journal.is_recorded(&request.instance)
    }
}

/// The refusal of a START that asks for the name of another instance.
pub(crate) fn name_taken(request: &StartRequest, other: InstanceId) -> Refusal {
    let name = request.scheduling.as_ref().map(|it| &*it.name);
    let name = name.unwrap_or_default().into();
    Refusal::NameTaken { name, other }
}
