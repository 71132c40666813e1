//! Batches: STARTs of which all are placed or none. They wait until the last of them has come; then nodes are chosen
//! for all in one step, before any node is told of any. Each is its sender's ([`Owner`]): what others call by the same id
//! has nothing to do with it.

use std::fmt;
use std::time::{Duration, Instant};

use indexmap::{IndexMap, IndexSet};
use sched_model::{Batch as BatchAsked, Uuid};

use super::{Pending, Waits};
use crate::api::declined::Refusal;
use crate::api::ids::InstanceId;
use crate::api::start::PlacedStart;
use crate::peers::owner::Owner;

/// How long a batch waits for the rest of its STARTs. They are sent in one go; what has not come by then does not come.
pub const BATCH_TIME: Duration = Duration::from_secs(30);

/// Batches that may wait at once.
pub const MAX_BATCHES: usize = 4096;

/// Batches of one operator that may wait at once.
pub const MAX_OPERATOR_BATCHES: usize = MAX_BATCHES / 16;

/// Bytes of payload that may wait in batches at once.
pub const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of payload of one operator that may wait in batches at once.
pub const MAX_OPERATOR_BATCH_BYTES: usize = MAX_BATCH_BYTES / 8;

/// Complete batches tried again when one node becomes ready: all of them would make the return of a large cluster
/// quadratic, and one may be of a thousand STARTs.
pub(crate) const BATCHES_PER_READY: usize = 1;

/// Complete batches tried in one tick before it ends; a tick that has more to do is due again at once.
pub(crate) const BATCHES_PER_TICK: usize = 16;

/// Batches whose last STARTs have not come, or that wait for nodes. The STARTs are in [`Pending`].
#[derive(Debug, Default)]
pub(super) struct Batches {
    waiting: IndexMap<BatchId, Batch>,
    bytes: usize,
    /// How many of operators wait, and their bytes.
    of_operators: IndexMap<Uuid, (usize, usize)>,
    /// Since when a complete batch has been waiting for nodes that are still coming back, if one may be.
    complete_since: Option<Instant>,
    /// Instances that were lost with their node after a START of theirs had come that waits in a batch: it does not say that
    /// they are to run once more.
    lost: IndexSet<InstanceId>,
}

/// The name of a batch: whose it is, and what that one calls it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BatchId {
    owner: Owner,
    name: Box<str>,
}

impl BatchId {
    /// The batch that one calls so.
    pub(crate) fn new(owner: Owner, name: &str) -> Self {
        Self {
            owner,
            name: name.into(),
        }
    }

    /// The operator whose it is; `None` where it is the controllers'.
    pub(crate) fn operator(&self) -> Option<Uuid> {
        self.owner.operator()
    }

    /// What its owner calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[derive(Debug)]
struct Batch {
    count: u32,
    /// In the order in which their STARTs came first.
    instances: Vec<InstanceId>,
    due: Instant,
}

impl Batch {
    /// Whether all its STARTs have come; it waits for nodes that are still coming back, then.
    fn is_complete(&self) -> bool {
        self.instances.len() as u64 >= u64::from(self.count)
    }
}

/// The STARTs of batches.
impl Pending {
    /// How many batches wait, and the bytes of their payloads.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn batches(&self) -> (usize, usize) {
        (self.batches.waiting.len(), self.batches.bytes)
    }

    /// The node of an instance is given up: a START of it that waits in a batch came before.
    pub(crate) fn note_lost(&mut self, instance: &InstanceId) {
        if self.batch_of(instance).is_some() {
            self.batches.lost.insert(instance.clone());
        }
    }

    /// Forgets the losses of instances of which no START waits any more.
    pub(crate) fn forget_lost(&mut self) {
        let mut lost = std::mem::take(&mut self.batches.lost);
        lost.retain(|instance| self.batch_of(instance).is_some());
        self.batches.lost = lost;
    }

    /// Whether an instance was lost with its node after the START of it that waits had come.
    pub(crate) fn was_lost(&self, instance: &InstanceId) -> bool {
        self.batches.lost.contains(instance)
    }

    /// The batch in which an instance waits.
    pub(crate) fn batch_of(&self, instance: &InstanceId) -> Option<&BatchId> {
        match self.waits(instance)? {
            Waits::Batch(id) => Some(id),
            Waits::Disk(_) | Waits::Nodes => None,
        }
    }

    /// The START of an instance that waits in a batch, and that batch.
    pub(crate) fn in_batch(&self, instance: &InstanceId) -> Option<(&BatchId, &PlacedStart)> {
        let entry = self.starts.get(instance)?;
        match &entry.waits {
            Waits::Batch(id) => Some((id, &entry.start)),
            Waits::Disk(_) | Waits::Nodes => None,
        }
    }

    /// The batches of which an instance is so.
    pub(crate) fn batches_with_any(&self, is_so: impl Fn(&InstanceId) -> bool) -> Vec<BatchId> {
        let waiting = self.batches.waiting.iter();
        let found = waiting.filter(|(_, batch)| batch.instances.iter().any(&is_so));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// When the first of those that are not complete has waited long enough.
    pub(crate) fn batches_due(&self) -> Option<Instant> {
        // In order of their first STARTs, and so of this time.
        let mut waiting = self.batches.waiting.values();
        waiting
            .find(|batch| !batch.is_complete())
            .map(|batch| batch.due)
    }

    /// When complete ones are due, once no node is waited for any more: at once.
    pub(crate) fn complete_due(&self) -> Option<Instant> {
        self.batches.complete_since
    }

    /// The batch that came first.
    pub(crate) fn first_batch(&self) -> Option<BatchId> {
        self.batches.waiting.first().map(|(id, _)| id.clone())
    }

    /// Takes a START in, in place of an earlier one of the same instance; whether its batch is complete with it.
    ///
    /// # Errors
    /// Why it cannot be taken in, and the START.
    pub(crate) fn add_to_batch(
        &mut self,
        id: &BatchId,
        asked: &BatchAsked,
        start: Box<PlacedStart>,
        now: Instant,
    ) -> Result<bool, (Box<PlacedStart>, Refusal)> {
        let instance = start.request.instance.clone();
        let earlier = self.in_batch(&instance);
        let replaced = earlier.map(|(_, start)| start.parcel.payload.len());
        let bytes = start.parcel.payload.len();
        if let Err(problem) = self.batches.may_add(id, asked, bytes, replaced.is_some()) {
            return Err((start, problem));
        }
        let is_complete = self
            .batches
            .add(id, asked, &instance, (bytes, replaced), now);
        self.put(start, Waits::Batch(id.clone()));
        Ok(is_complete)
    }

    /// Takes out a batch.
    pub(crate) fn take_batch(&mut self, id: &BatchId) -> Vec<PlacedStart> {
        let Some(batch) = self.batches.waiting.shift_remove(id) else {
            return Vec::new();
        };
        let starts = batch.instances.iter().filter_map(|it| self.remove(it));
        let starts: Vec<PlacedStart> = starts.map(|start| *start).collect();
        self.batches.count(id, -1, -bytes_of(&starts));
        if self.batches.waiting.is_empty() {
            // A burst of them does not hold its memory for good.
            self.batches.waiting = IndexMap::new();
            self.batches.of_operators = IndexMap::new();
        }
        starts
    }

    /// Puts a complete batch back that was taken out.
    pub(crate) fn put_back_batch(&mut self, id: &BatchId, starts: Vec<PlacedStart>, now: Instant) {
        self.batches.count(id, 1, bytes_of(&starts));
        let instances = starts.iter().map(|start| start.request.instance.clone());
        let batch = Batch {
            count: u32::try_from(starts.len()).unwrap_or(u32::MAX),
            instances: instances.collect(),
            due: now,
        };
        self.batches.waiting.insert(id.clone(), batch);
        self.batches.complete_since.get_or_insert(now);
        for start in starts {
            self.put(Box::new(start), Waits::Batch(id.clone()));
        }
    }

    /// The first so many that are complete. One that is put back is the last, so that all have their turn.
    pub(crate) fn complete_batches(&self, most: usize) -> Vec<BatchId> {
        let waiting = self.batches.waiting.iter();
        let complete = waiting.filter(|(_, batch)| batch.is_complete());
        complete.take(most).map(|(id, _)| id.clone()).collect()
    }

    /// Notes whether a complete batch waits.
    pub(crate) fn note_complete(&mut self, now: Instant) {
        let is_any = self.batches.waiting.values().any(Batch::is_complete);
        self.batches.complete_since = is_any.then_some(now);
    }

    /// Takes out a batch that has not become complete in time, and how many STARTs it was to have.
    pub(crate) fn take_late_batch(
        &mut self,
        now: Instant,
    ) -> Option<(BatchId, u32, Vec<PlacedStart>)> {
        let is_late = |batch: &Batch| !batch.is_complete() && batch.due <= now;
        let mut waiting = self.batches.waiting.iter();
        let (id, batch) = waiting.find(|(_, batch)| is_late(batch))?;
        let (id, count) = (id.clone(), batch.count);
        let starts = self.take_batch(&id);
        Some((id, count, starts))
    }

    /// Whether each batch has just the STARTs that wait for it, and their bytes are counted.
    pub(crate) fn are_batches_consistent(&self) -> bool {
        let here = self.starts.values();
        let here = here.filter(|entry| matches!(entry.waits, Waits::Batch(_)));
        let bytes = here.clone().map(|entry| entry.start.parcel.payload.len());
        let batches = self.batches.waiting.iter();
        let all = batches.flat_map(|(id, batch)| batch.instances.iter().map(move |it| (id, it)));
        bytes.sum::<usize>() == self.batches.bytes
            && here.count() == all.clone().count()
            && all
                .into_iter()
                .all(|(id, it)| self.batch_of(it) == Some(id))
    }
}

impl Batches {
    /// Counts a START of so many bytes in, which may replace one of so many; whether its batch is complete with it.
    fn add(
        &mut self,
        id: &BatchId,
        asked: &BatchAsked,
        instance: &InstanceId,
        (bytes, replaced): (usize, Option<usize>),
        now: Instant,
    ) -> bool {
        let is_new = !self.waiting.contains_key(id);
        let more = bytes.cast_signed() - replaced.unwrap_or(0).cast_signed();
        self.count(id, isize::from(is_new), more);
        // A START that comes now was sent after the loss.
        self.lost.swap_remove(instance);
        let batch = self.waiting.entry(id.clone()).or_insert_with(|| Batch {
            count: asked.count,
            instances: Vec::new(),
            due: now + BATCH_TIME,
        });
        if replaced.is_none() {
            batch.instances.push(instance.clone());
        }
        batch.is_complete()
    }

    /// Whether a START of so many bytes may come in.
    ///
    /// # Errors
    /// Why not.
    fn may_add(
        &self,
        id: &BatchId,
        asked: &BatchAsked,
        bytes: usize,
        is_there: bool,
    ) -> Result<(), Refusal> {
        let earlier = self.waiting.get(id);
        if let Some(batch) = earlier
            && batch.count != asked.count
        {
            return Err(Refusal::BatchCount {
                batch: id.name().into(),
                earlier: batch.count,
                count: asked.count,
            });
        }
        self.has_room(id, bytes)?;
        if earlier.is_some_and(Batch::is_complete) && !is_there {
            return Err(Refusal::BatchComplete {
                batch: id.name().into(),
                count: asked.count,
            });
        }
        Ok(())
    }

    /// Whether so many bytes more of this batch may wait.
    ///
    /// # Errors
    /// Why not.
    fn has_room(&self, id: &BatchId, bytes: usize) -> Result<(), Refusal> {
        let is_new = usize::from(!self.waiting.contains_key(id));
        let mut held = vec![(
            false,
            (self.waiting.len(), self.bytes),
            (MAX_BATCHES, MAX_BATCH_BYTES),
        )];
        if let Owner::Operator(uuid) = id.owner {
            let own = self.of_operators.get(&uuid).copied().unwrap_or_default();
            let most = (MAX_OPERATOR_BATCHES, MAX_OPERATOR_BATCH_BYTES);
            held.push((true, own, most));
        }
        for (of_operator, held, most) in held {
            if held.0 + is_new > most.0 || held.1 + bytes > most.1 {
                return Err(Refusal::TooManyBatches {
                    of_operator,
                    batches: most.0,
                    bytes: most.1,
                });
            }
        }
        Ok(())
    }

    /// Counts so many batches and bytes more, or fewer.
    fn count(&mut self, id: &BatchId, batches: isize, bytes: isize) {
        self.bytes = self.bytes.saturating_add_signed(bytes);
        if let Owner::Operator(uuid) = id.owner {
            let own = self.of_operators.entry(uuid).or_default();
            own.0 = own.0.saturating_add_signed(batches);
            own.1 = own.1.saturating_add_signed(bytes);
            if *own == (0, 0) {
                self.of_operators.swap_remove(&uuid);
            }
        }
    }
}

fn bytes_of(starts: &[PlacedStart]) -> isize {
    let bytes = starts.iter().map(|start| start.parcel.payload.len());
    bytes.sum::<usize>().cast_signed()
}
