//! Batches: STARTs of which all are placed or none. They wait until the last of them has come; then nodes are chosen
//! for all in one step, before any node is told of any. Each is its sender's ([`Owner`]): what others call by the same id
//! has nothing to do with it.

use std::fmt;
use std::time::{Duration, Instant};

use indexmap::{IndexMap, IndexSet};
use sched_model::{Batch as BatchAsked, Uuid};

use crate::api::declined::Refusal;
use crate::api::ids::InstanceId;
use crate::api::start::PlacedStart;
use crate::maps::Map;
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

/// Batches whose last STARTs have not come.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    waiting: IndexMap<BatchId, Batch>,
    /// The batch of each instance that waits.
    instances: Map<InstanceId, BatchId>,
    bytes: usize,
    /// How many of operators wait, and their bytes.
    of_operators: IndexMap<Uuid, (usize, usize)>,
    /// Since when a complete batch has been waiting for nodes that are still coming back, if one may be.
    complete_since: Option<Instant>,
    /// Instances that were lost with their node after a START of theirs had come that waits here: it does not say that
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
    starts: Vec<PlacedStart>,
    due: Instant,
}

impl Batch {
    /// Whether all its STARTs have come; it waits for nodes that are still coming back, then.
    fn is_complete(&self) -> bool {
        self.starts.len() as u64 >= u64::from(self.count)
    }
}

impl Batches {
    /// How many wait, and the bytes of their payloads.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.waiting.len(), self.bytes)
    }

    /// The node of an instance is given up: a START of it that waits came before.
    pub(crate) fn note_lost(&mut self, instance: &InstanceId) {
        if self.instances.contains_key(instance) {
            self.lost.insert(instance.clone());
        }
    }

    /// Forgets the losses of instances of which no START waits any more.
    pub(crate) fn forget_lost(&mut self) {
        let instances = &self.instances;
        self.lost
            .retain(|instance| instances.contains_key(instance));
    }

    /// When the first of those that are not complete has waited long enough.
    pub(crate) fn due(&self) -> Option<Instant> {
        // In order of their first STARTs, and so of this time.
        let mut waiting = self.waiting.values();
        waiting
            .find(|batch| !batch.is_complete())
            .map(|batch| batch.due)
    }

    /// The batch in which an instance waits.
    pub(crate) fn batch_of(&self, instance: &InstanceId) -> Option<&BatchId> {
        self.instances.get(instance)
    }

    /// Whether an instance was lost with its node after the START of it that waits had come.
    pub(crate) fn was_lost(&self, instance: &InstanceId) -> bool {
        self.lost.contains(instance)
    }

    /// The batches of which a START is so.
    pub(crate) fn with_any(&self, is_so: impl Fn(&PlacedStart) -> bool) -> Vec<BatchId> {
        let waiting = self.waiting.iter();
        let found = waiting.filter(|(_, batch)| batch.starts.iter().any(&is_so));
        found.map(|(id, _)| id.clone()).collect()
    }

    /// The batch that came first.
    pub(crate) fn first(&self) -> Option<BatchId> {
        self.waiting.first().map(|(id, _)| id.clone())
    }

    /// When complete ones are due, once no node is waited for any more: at once.
    pub(crate) fn complete_due(&self) -> Option<Instant> {
        self.complete_since
    }

    /// Whether a START of this instance waits.
    pub(crate) fn has(&self, instance: &InstanceId) -> bool {
        self.instances.contains_key(instance)
    }

    /// The START of an instance that waits, and its batch.
    pub(crate) fn waiting(&self, instance: &InstanceId) -> Option<(&BatchId, &PlacedStart)> {
        let id = self.instances.get(instance)?;
        let starts = &self.waiting.get(id)?.starts;
        let start = starts.iter().find(|it| it.request.instance == *instance)?;
        Some((id, start))
    }

    /// Whether its index and its sum are those of the STARTs that wait, one for each instance.
    pub(crate) fn is_consistent(&self) -> bool {
        let starts = || {
            let batches = self.waiting.iter();
            batches.flat_map(|(id, batch)| batch.starts.iter().map(move |start| (id, start)))
        };
        let bytes = starts().map(|(_, start)| start.parcel.payload.len());
        let is_known = |(id, start): (&BatchId, &PlacedStart)| {
            self.instances.get(&start.request.instance) == Some(id)
        };
        bytes.sum::<usize>() == self.bytes
            && starts().count() == self.instances.len()
            && starts().all(is_known)
    }

    /// Takes a START in, in place of an earlier one of the same instance; whether its batch is complete with it.
    ///
    /// # Errors
    /// Why it cannot be taken in, and the START.
    pub(crate) fn add(
        &mut self,
        id: &BatchId,
        asked: &BatchAsked,
        start: PlacedStart,
        now: Instant,
    ) -> Result<bool, (Box<PlacedStart>, Refusal)> {
        if let Err(problem) = self.may_add(id, asked, &start) {
            return Err((Box::new(start), problem));
        }
        let instance = start.request.instance.clone();
        if !self.waiting.contains_key(id) {
            self.count(id, 1, 0);
        }
        self.count(id, 0, start.parcel.payload.len().cast_signed());
        let batch = self.waiting.entry(id.clone()).or_insert_with(|| Batch {
            count: asked.count,
            starts: Vec::new(),
            due: now + BATCH_TIME,
        });
        let mut replaced = 0;
        match batch
            .starts
            .iter_mut()
            .find(|other| other.request.instance == instance)
        {
            Some(earlier) => {
                replaced = earlier.parcel.payload.len();
                *earlier = start;
            }
            None => batch.starts.push(start),
        }
        let is_complete = batch.is_complete();
        self.count(id, 0, -replaced.cast_signed());
        // A START that comes now was sent after the loss.
        self.lost.swap_remove(&instance);
        self.instances.insert(instance, id.clone());
        Ok(is_complete)
    }

    /// Whether a START may come in.
    ///
    /// # Errors
    /// Why not.
    fn may_add(
        &self,
        id: &BatchId,
        asked: &BatchAsked,
        start: &PlacedStart,
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
        self.has_room(id, start.parcel.payload.len())?;
        if earlier.is_some_and(Batch::is_complete) && !self.has(&start.request.instance) {
            return Err(Refusal::BatchComplete {
                batch: id.name().into(),
                count: asked.count,
            });
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, id: &BatchId) -> Vec<PlacedStart> {
        let Some(batch) = self.waiting.shift_remove(id) else {
            return Vec::new();
        };
        for start in &batch.starts {
            self.instances.swap_remove(&start.request.instance);
        }
        self.count(id, -1, -bytes_of(&batch.starts));
        if self.waiting.is_empty() {
            // A burst of them is not paid for for ever.
            self.waiting = IndexMap::new();
            self.instances = Map::default();
            self.of_operators = IndexMap::new();
        }
        batch.starts
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

    /// Puts a complete batch back that was taken out.
    pub(crate) fn put_back(&mut self, id: &BatchId, starts: Vec<PlacedStart>, now: Instant) {
        for start in &starts {
            self.instances
                .insert(start.request.instance.clone(), id.clone());
        }
        self.count(id, 1, bytes_of(&starts));
        let batch = Batch {
            count: u32::try_from(starts.len()).unwrap_or(u32::MAX),
            starts,
            due: now,
        };
        self.waiting.insert(id.clone(), batch);
        self.complete_since.get_or_insert(now);
    }

    /// The first so many that are complete. One that is put back is the last, so that all have their turn.
    pub(crate) fn complete(&self, most: usize) -> Vec<BatchId> {
        let complete = self.waiting.iter().filter(|(_, batch)| batch.is_complete());
        complete.take(most).map(|(id, _)| id.clone()).collect()
    }

    /// Notes whether a complete batch waits.
    pub(crate) fn note_complete(&mut self, now: Instant) {
        let is_any = self.waiting.values().any(Batch::is_complete);
        self.complete_since = is_any.then_some(now);
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(BatchId, u32, Vec<PlacedStart>)> {
        let is_due = |batch: &Batch| !batch.is_complete() && batch.due <= now;
        let (id, batch) = self.waiting.iter().find(|(_, batch)| is_due(batch))?;
        let (id, count) = (id.clone(), batch.count);
        let starts = self.take(&id);
        Some((id, count, starts))
    }
}

fn bytes_of(starts: &[PlacedStart]) -> isize {
    let bytes = starts.iter().map(|start| start.parcel.payload.len());
    bytes.sum::<usize>().cast_signed()
}
