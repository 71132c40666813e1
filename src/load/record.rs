//! The record of a load run: when each START was sent, who received it when, and what was said of it.
//!
//! Shared by the driving side and all simulated launchers without a lock: one slot of atomics per START. The number of
//! a START is its place among the slots; it is in the UUID of its instance, so that both ends find the slot without a
//! look-up.
//!
//! All accesses are relaxed: each counter is independent, and totals are read when nothing more happens.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

/// A launcher that stays received the START.
///
/// Bits of `Slot::flags`. More than one can be set.
const RECEIVED: u8 = 1;
/// A `StartFailure` (or a refusal) named the START.
///
/// Does not exclude the others: a failure can be wrong.
const FAILED: u8 = 2;
/// A launcher that is cut half way received the START.
///
/// Not the end of a START: it may be placed again.
const RECEIVED_BY_VICTIM: u8 = 4;

/// Most different failure reasons that are counted apart; the rest is counted as `other`.
///
/// Reasons come from the other side.
const MAX_REASONS: usize = 64;

/// Significant digits of the latency histogram: 0.1 % steps.
///
/// With so many digits the histogram stays small whatever the longest latency is.
const LATENCY_DIGITS: u8 = 3;

/// Which kind of launcher received a START.
///
/// A START that only a victim received may be sent again by the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// One that stays to the end.
    Survivor,
    /// One that is cut half way (`--kill`).
    Victim,
}

/// What happened to every START of a run.
///
/// All methods take `&self` and can be called by any task.
#[derive(Debug)]
pub struct Recorder {
    /// Times in slots count from here, in nanoseconds.
    base: Instant,
    /// 24 bytes each; one for each START of the run.
    slots: Vec<Slot>,
    /// STARTs that are received or failed: whose fate is known.
    settled: AtomicU64,
    /// `settled` at which `all_settled` is notified; `u64::MAX` while the number sent is not known.
    target: AtomicU64,
    /// Wakes [`Recorder::settle`].
    all_settled: Notify,
    /// One permit for each START that may be under way; `None` = any number.
    window: Option<Semaphore>,
    /// The following counters are what [`Totals`] has.
    duplicates: AtomicU64,
    foreign: AtomicU64,
    inversions: AtomicU64,
    /// The latest of all launchers.
    last_arrival_ns: AtomicU64,
    /// At most [`MAX_REASONS`] and `other`. Locked for failures only.
    reasons: Mutex<BTreeMap<String, u64>>,
}

/// One START.
///
/// Zero means that nothing has happened.
#[derive(Debug, Default)]
struct Slot {
    /// When it was handed to the socket, in ns after the base; 0 = not yet.
    sent_ns: AtomicU64,
    /// When a launcher first had it; 0 = none yet.
    arrived_ns: AtomicU64,
    /// [`RECEIVED`], [`FAILED`], [`RECEIVED_BY_VICTIM`].
    flags: AtomicU8,
}

/// Counts of a finished run.
///
/// Only STARTs that were sent count. `received` and `failed` can overlap; `lost` is everything that is not `received`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// STARTs handed to the socket.
    pub sent: u64,
    /// Received by a launcher that stayed.
    pub received: u64,
    /// Received by launchers that were cut half way, and by no other.
    pub received_by_victims: u64,
    /// Named by a `StartFailure`.
    pub failed: u64,
    /// Received by no launcher that stayed.
    pub lost: u64,
    /// Those of `lost` that no `StartFailure` named.
    pub lost_without_error: u64,
    /// Received by a launcher that stayed, and named by a `StartFailure` all the same.
    pub failed_though_received: u64,
    /// Receipts beyond the first of a START.
    pub duplicates: u64,
    /// STARTs received that are not of this run.
    pub foreign: u64,
    /// STARTs that a launcher received after a later one.
    pub inversions: u64,
    /// `StartFailure`s by reason.
    pub reasons: BTreeMap<String, u64>,
}

impl Recorder {
    /// A record for `starts` STARTs of which at most `window` are under way at a time (`None` = any number).
    ///
    /// Takes its memory at once, so that none is taken while the run is measured.
    #[must_use]
    pub fn new(starts: usize, window: Option<usize>) -> Self {
        Self {
            base: Instant::now(),
            slots: (0..starts).map(|_| Slot::default()).collect(),
            settled: AtomicU64::new(0),
            target: AtomicU64::new(u64::MAX),
            all_settled: Notify::new(),
            window: window.map(Semaphore::new),
            duplicates: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            inversions: AtomicU64::new(0),
            last_arrival_ns: AtomicU64::new(0),
            reasons: Mutex::new(BTreeMap::new()),
        }
    }

    /// Waits until one START may be sent, and says how many up to `wanted` may be sent at once.
    pub async fn admit(&self, wanted: usize) -> usize {
        let Some(window) = &self.window else {
            return wanted;
        };
        let Ok(permit) = window.acquire().await else {
            return wanted;
        };
        permit.forget();
        let mut admitted = 1;
        while admitted < wanted {
            let Ok(permit) = window.try_acquire() else {
                break;
            };
            permit.forget();
            admitted += 1;
        }
        admitted
    }

    /// START number `seq` is about to be written to the socket.
    ///
    /// Called just before the write, so that the latency includes it.
    pub fn sent(&self, seq: usize) {
        self.slots[seq].sent_ns.store(self.now_ns(), Relaxed);
    }

    /// A launcher received START number `seq`; `last` is that launcher's own note of the last one it received.
    ///
    /// A number beyond the run's counts as foreign. The order is per launcher: `last` belongs to its task.
    pub fn received(&self, seq: usize, receiver: Receiver, last: &mut Option<usize>) {
        let Some(slot) = self.slots.get(seq) else {
            return self.foreign();
        };
        let now = self.now_ns();
        if last.is_some_and(|last| seq < last) {
            self.inversions.fetch_add(1, Relaxed);
        } else {
            *last = Some(seq);
        }
        if slot
            .arrived_ns
            .compare_exchange(0, now, Relaxed, Relaxed)
            .is_err()
        {
            self.duplicates.fetch_add(1, Relaxed);
        }
        self.last_arrival_ns.fetch_max(now, Relaxed);
        self.mark(
            slot,
            if receiver == Receiver::Survivor {
                RECEIVED
            } else {
                RECEIVED_BY_VICTIM
            },
        );
    }

    /// A launcher received a START that is not of this run.
    pub fn foreign(&self) {
        self.foreign.fetch_add(1, Relaxed);
    }

    /// START number `seq` was said to have failed for this reason.
    ///
    /// A number beyond the run's is counted by its reason only.
    pub fn failed(&self, seq: usize, reason: &str) {
        let mut reasons = self.reasons.lock();
        let known = reasons.contains_key(reason) || reasons.len() < MAX_REASONS;
        *reasons
            .entry(if known { reason } else { "other" }.to_owned())
            .or_default() += 1;
        drop(reasons);
        if let Some(slot) = self.slots.get(seq) {
            self.mark(slot, FAILED);
        }
    }

    /// Waits until the fate of the first `sent` STARTs is known, nothing has changed for `grace`, or `deadline`.
    ///
    /// `grace` begins again with every START whose fate becomes known.
    pub async fn settle(&self, sent: usize, grace: Duration, deadline: Instant) {
        self.target.store(sent as u64, Relaxed);
        loop {
            let before = self.settled.load(Relaxed);
            if before >= sent as u64 {
                return;
            }
            let patience = grace.min(deadline.saturating_duration_since(Instant::now()));
            let told = tokio::time::timeout(patience, self.all_settled.notified())
                .await
                .is_ok();
            if !told && (self.settled.load(Relaxed) == before || Instant::now() >= deadline) {
                return;
            }
        }
    }

    /// The counts as they are now.
    ///
    /// One walk over all slots.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            duplicates: self.duplicates.load(Relaxed),
            foreign: self.foreign.load(Relaxed),
            inversions: self.inversions.load(Relaxed),
            reasons: self.reasons.lock().clone(),
            ..Totals::default()
        };
        for slot in self
            .slots
            .iter()
            .filter(|slot| slot.sent_ns.load(Relaxed) > 0)
        {
            let flags = slot.flags.load(Relaxed);
            let (received, failed) = (flags & RECEIVED != 0, flags & FAILED != 0);
            totals.sent += 1;
            totals.received += u64::from(received);
            totals.received_by_victims += u64::from(!received && flags & RECEIVED_BY_VICTIM != 0);
            totals.failed += u64::from(failed);
            totals.lost += u64::from(!received);
            totals.lost_without_error += u64::from(!received && !failed);
            totals.failed_though_received += u64::from(received && failed);
        }
        totals
    }

    /// From handing each START to the socket until a launcher had it, in ns.
    ///
    /// STARTs without an arrival are not in it. Clocks are the same, so that the smallest value is 1.
    #[must_use]
    pub fn latencies(&self) -> Histogram<u64> {
        let mut histogram =
            Histogram::new(LATENCY_DIGITS).expect("three digits are within hdrhistogram's 0..=5");
        for slot in &self.slots {
            let (sent, arrived) = (slot.sent_ns.load(Relaxed), slot.arrived_ns.load(Relaxed));
            if sent > 0 && arrived > 0 {
                histogram += arrived.saturating_sub(sent).max(1); // grows as far as it needs to
            }
        }
        histogram
    }

    /// From the first START sent to the last one received; zero if none was.
    ///
    /// The first START sent is the first slot.
    #[must_use]
    pub fn span(&self) -> Duration {
        let first = self
            .slots
            .first()
            .map_or(0, |slot| slot.sent_ns.load(Relaxed));
        Duration::from_nanos(self.last_arrival_ns.load(Relaxed).saturating_sub(first))
    }

    /// The first flag of a START gives its place in the window back; the first that is final counts it as settled.
    fn mark(&self, slot: &Slot, flag: u8) {
        let before = slot.flags.fetch_or(flag, Relaxed);
        if before == 0
            && let Some(window) = &self.window
        {
            window.add_permits(1);
        }
        if before & (RECEIVED | FAILED) == 0 && flag != RECEIVED_BY_VICTIM {
            let settled = self.settled.fetch_add(1, Relaxed) + 1;
            if settled >= self.target.load(Relaxed) {
                self.all_settled.notify_one();
            }
        }
    }

    /// At least 1, because 0 means that it has not happened.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos())
            .unwrap_or(u64::MAX)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_is_received_failed_or_lost() {
        let book = Recorder::new(5, None);
        (0..4).for_each(|seq| book.sent(seq));
        let (mut a, mut b) = (None, None);
        book.received(0, Receiver::Survivor, &mut a);
        book.received(1, Receiver::Victim, &mut b);
        book.failed(1, "launch_failure");
        book.failed(2, "full_cloud");
        let totals = book.totals();
        assert_eq!(
            (totals.sent, totals.received, totals.received_by_victims),
            (4, 1, 1)
        );
        assert_eq!(
            (totals.failed, totals.lost, totals.lost_without_error),
            (2, 3, 1)
        );
        assert_eq!(totals.reasons["full_cloud"], 1);
        assert_eq!(book.latencies().len(), 2);
    }

    #[test]
    fn latencies_are_from_sending_to_the_first_receipt() {
        let book = Recorder::new(2, None);
        for (slot, sent, arrived) in [(0, 1_000, 101_000), (1, 5_000, 30_000_005_000)] {
            book.slots[slot].sent_ns.store(sent, Relaxed);
            book.slots[slot].arrived_ns.store(arrived, Relaxed);
        }
        let latencies = book.latencies();
        assert!(
            latencies.equivalent(latencies.min(), 100_000),
            "{}",
            latencies.min()
        );
        assert!(
            latencies.equivalent(latencies.max(), 30_000_000_000),
            "{}",
            latencies.max()
        );
    }

    #[test]
    fn duplicates_inversions_and_foreign_starts_are_counted() {
        let book = Recorder::new(3, None);
        (0..3).for_each(|seq| book.sent(seq));
        let (mut a, mut b) = (None, None);
        for seq in [0, 2, 1] {
            book.received(seq, Receiver::Survivor, &mut a);
        }
        book.received(1, Receiver::Survivor, &mut b);
        book.received(3, Receiver::Survivor, &mut b);
        let totals = book.totals();
        assert_eq!(
            (
                totals.inversions,
                totals.duplicates,
                totals.foreign,
                totals.received
            ),
            (1, 1, 1, 3)
        );
    }

    #[test]
    fn a_start_that_failed_though_it_runs_is_told_apart() {
        let book = Recorder::new(1, None);
        book.sent(0);
        book.received(0, Receiver::Survivor, &mut None);
        book.failed(0, "launch_failure");
        assert_eq!(book.totals().failed_though_received, 1);
        assert_eq!(book.totals().lost, 0);
    }

    #[tokio::test]
    async fn the_window_admits_as_many_as_have_been_settled() {
        let book = Recorder::new(10, Some(2));
        assert_eq!(book.admit(5).await, 2);
        assert!(
            tokio::time::timeout(Duration::ZERO, book.admit(1))
                .await
                .is_err(),
            "the window is full"
        );
        book.received(0, Receiver::Survivor, &mut None);
        book.failed(0, "launch_failure");
        assert_eq!(book.admit(5).await, 1, "one START gives one place back");
    }

    #[tokio::test]
    async fn settling_ends_when_every_fate_is_known() {
        let book = Recorder::new(2, None);
        (0..2).for_each(|seq| book.sent(seq));
        book.failed(0, "full_cloud");
        let far = Instant::now() + Duration::from_secs(60);
        let receive = async { book.received(1, Receiver::Survivor, &mut None) };
        tokio::join!(book.settle(2, Duration::from_secs(60), far), receive);
        assert_eq!(book.totals().lost_without_error, 0);
    }

    #[tokio::test]
    async fn settling_gives_up_after_the_grace_time_without_news() {
        let book = Recorder::new(1, None);
        book.sent(0);
        book.settle(
            1,
            Duration::from_millis(1),
            Instant::now() + Duration::from_secs(60),
        )
        .await;
        assert_eq!(book.totals().lost_without_error, 1);
    }
}
