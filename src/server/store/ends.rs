//! The ends of instances on record: a table of the store's database to which each end is added once and which nothing
//! but age and size takes anything from.
//!
//! ```text
//! "ends"    number of the run, u64 → the end, as `row` has it
//! "about"   "ends_records", "ends_bytes" → how many there are, and the bytes of all with their keys
//! ```
//!
//! The core keeps the latest runs in memory and asks for a record of each ([`RecordKey::Run`]). What it forgets leaves its
//! own table and stays here. An end is written in the transaction that its record is in, so that it is on disk before
//! the launcher that told it hears that it is.
//!
//! Reading takes a snapshot of the database and holds up no writing; `of` makes ends of runs, for this table and for
//! who reads runs from the core because there is no disk.

mod filter;
mod of;
mod row;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use proto_frames::payload::EndedRun;
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError,
    WriteTransaction,
};
use tracing::{info, warn};

pub(in crate::server) use self::filter::Wanted;
pub(in crate::server) use self::of::row_of;
use super::Batch;
use super::file::{ABOUT, RECORDS};
use super::format;
use crate::printable::counted;
use crate::server::restore::unix_ms;
use sched_core::{Record, RecordKey, RunRecord};

const ENDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("ends");

const RECORDS_KEY: &str = "ends_records";
const BYTES_KEY: &str = "ends_bytes";

/// Bytes of a key.
const KEY_LEN: u64 = size_of::<u64>() as u64;

/// Most ends that one transaction deletes, so that it stays short, unless it adds more than half as many: then it deletes
/// twice as many as it adds, so that they become fewer.
const MAX_TRIMMED: usize = 1000;

/// Most ends that are looked at for one page: some 45 ms of work. A page whose filter few of them meet ends there, with
/// what was found and where to go on.
const MAX_LOOKED_AT: u32 = 64_000;

/// By how much a clock may have been set back for ends to be found by when they were noted.
const CLOCK_SLACK_MS: u64 = 3_600_000;

/// Pause between two lines in the log that say that ends were deleted.
const SAY_EVERY: Duration = Duration::from_secs(600);

/// For how long ends are kept, and how many bytes they may take; the oldest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Longest time since an end was put on record.
    pub time: Duration,
    /// Most bytes of all, with their keys. Their file takes about a third more.
    pub bytes: u64,
}

/// By default a month: what a monthly account needs.
pub const HISTORY_TIME: Duration = Duration::from_secs(30 * 86_400);

/// By default: more than a million and a half of usual ends, which is 50 000 jobs a day for a month. The database is read
/// whole when it is opened, to verify it, which takes about a second for as much.
pub const HISTORY_BYTES: u64 = 256 * 1024 * 1024;

impl Default for HistoryLimits {
    fn default() -> Self {
        Self {
            time: HISTORY_TIME,
            bytes: HISTORY_BYTES,
        }
    }
}

impl HistoryLimits {
    /// The moment, in unix milliseconds by the clock of the system, before which ends are too old. The time of an end is
    /// by the clock of the core, which may have been wrong when it began, so that it says nothing of its age.
    pub(in crate::server) fn oldest_ms(&self, now_ms: u64) -> u64 {
        let time = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        now_ms.saturating_sub(time)
    }
}

/// What is kept, and what was deleted since the start.
#[derive(Debug, Default)]
pub(in crate::server) struct HistoryTotals {
    pub(in crate::server) records: AtomicU64,
    pub(in crate::server) bytes: AtomicU64,
    pub(in crate::server) too_old: AtomicU64,
    pub(in crate::server) too_many: AtomicU64,
}

/// The table as its readers share it with the thread that writes.
#[derive(Debug, Default)]
pub(in crate::server) struct History {
    /// The database while it is open. A reader holds this lock until it has read; the writer, exclusively, while it
    /// opens or closes the database.
    database: RwLock<Option<Arc<Database>>>,
    pub(in crate::server) totals: HistoryTotals,
    limits: RwLock<HistoryLimits>,
    said: parking_lot::Mutex<Said>,
}

/// What was deleted and not said yet.
#[derive(Debug, Default)]
struct Said {
    at: Option<Instant>,
    trimmed: Trimmed,
}

#[derive(Debug, Default, Clone, Copy)]
struct Trimmed {
    too_old: u64,
    too_many: u64,
}

/// A page of ends.
#[derive(Debug, Default)]
pub(in crate::server) struct EndsPage {
    /// The latest first.
    pub(in crate::server) rows: Vec<EndedRun>,
    /// The number before which to go on.
    pub(in crate::server) next: Option<u64>,
}

impl EndsPage {
    /// Takes an end in, if it is wanted; whether another may be looked at.
    pub(in crate::server) fn offer(
        &mut self,
        row: &row::EndRow<'_>,
        (number, wanted, limit): (u64, &Wanted<'_>, usize),
    ) -> bool {
        if wanted.admits(row) {
            self.rows.push(row.view(number));
        }
        let is_full = self.rows.len() >= limit;
        self.next = is_full.then_some(number);
        !is_full
    }
}

impl History {
    pub(super) fn limit(&self, limits: HistoryLimits) {
        *self.limits.write() = limits;
    }

    /// See [`HistoryLimits`].
    pub(in crate::server) fn limits(&self) -> HistoryLimits {
        *self.limits.read()
    }

    /// Has readers use this database; `None`, once none reads the one before any more, while there is none.
    pub(super) fn set(&self, database: Option<Arc<Database>>) {
        *self.database.write() = database;
    }

    /// Ends that are wanted, before the one with this number, the latest first. At most `limit`; fewer, and perhaps
    /// none, where too many others were looked at for them. `None` while the database is not open, because its disk takes no
    /// writes.
    ///
    /// Blocks the calling thread for as long as the disk takes.
    ///
    /// # Errors
    /// Why the database cannot be read.
    pub(in crate::server) fn page(
        &self,
        wanted: &Wanted<'_>,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Option<EndsPage>, redb::Error> {
        let database = self.database.read();
        let Some(database) = database.as_deref() else {
            return Ok(None);
        };
        let transaction = database.begin_read()?;
        let table = transaction.open_table(ENDS)?;
        let mut page = EndsPage::default();
        let mut looked_at = 0;
        for entry in table.range(..before.unwrap_or(u64::MAX))?.rev() {
            let (number, bytes) = entry?;
            let number = number.value();
            looked_at += 1;
            // Damage is the database's to find; an end of a later version is whole.
            if let Some(row) = row::EndRow::decode(bytes.value()) {
                if row.noted_ms.saturating_add(CLOCK_SLACK_MS) < wanted.noted_since_ms() {
                    page.next = None;
                    return Ok(Some(page));
                }
                if !page.offer(&row, (number, wanted, limit)) {
                    return Ok(Some(page));
                }
            }
            if looked_at >= MAX_LOOKED_AT {
                page.next = Some(number);
                return Ok(Some(page));
            }
        }
        page.next = None;
        Ok(Some(page))
    }

    /// Makes the table where there is none, of the runs that a store of an earlier version kept, and counts what is
    /// there.
    ///
    /// # Errors
    /// The database's.
    pub(super) fn prepare(&self, database: &Database) -> Result<(), redb::Error> {
        let transaction = database.begin_read()?;
        match transaction.open_table(ENDS) {
            Ok(_) => {
                let about = transaction.open_table(ABOUT)?;
                let of = |key| Ok::<_, redb::Error>(about.get(key)?.map_or(0, |it| it.value()));
                self.count(of(RECORDS_KEY)?, of(BYTES_KEY)?);
                return Ok(());
            }
            Err(TableError::TableDoesNotExist(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let records = transaction.open_table(RECORDS)?;
        let mut kept = Vec::new();
        for entry in records.iter()? {
            let (key, value) = entry?;
            if let Ok((RecordKey::Run(number), Record::Run(run))) =
                format::decode(key.value(), value.value())
            {
                kept.push((number, run));
            }
        }
        let transaction = database.begin_write()?;
        let mut sums = (0, 0);
        {
            let mut ends = transaction.open_table(ENDS)?;
            for (number, run) in &kept {
                put(&mut ends, *number, (run, unix_ms()), &mut sums)?;
            }
        }
        note(&transaction, sums)?;
        transaction.commit()?;
        self.count(sums.0, sums.1);
        Ok(())
    }

    /// Adds the ends in a transaction's records, and deletes what is too old or too much. What becomes of the sums and of
    /// the log is the caller's once it is on disk ([`History::written`]).
    ///
    /// # Errors
    /// The database's.
    pub(super) fn write(
        &self,
        transaction: &WriteTransaction,
        batch: &Batch,
    ) -> Result<Written, redb::Error> {
        let mut sums = (
            self.totals.records.load(Ordering::Relaxed),
            self.totals.bytes.load(Ordering::Relaxed),
        );
        let (before, limits) = (sums, self.limits());
        let now_ms = unix_ms();
        let oldest_ms = limits.oldest_ms(now_ms);
        let mut trimmed = Trimmed::default();
        let mut added = 0_usize;
        {
            let mut ends = transaction.open_table(ENDS)?;
            for (key, record) in batch {
                if let (RecordKey::Run(number), Some(Record::Run(run))) = (key, record) {
                    put(&mut ends, *number, (run, now_ms), &mut sums)?;
                    added += 1;
                }
            }
            for _ in 0..MAX_TRIMMED.max(added.saturating_mul(2)) {
                let Some((number, len, noted_ms)) = first(&ends)? else {
                    break;
                };
                match () {
                    () if noted_ms < oldest_ms => trimmed.too_old += 1,
                    () if sums.1 > limits.bytes => trimmed.too_many += 1,
                    () => break,
                }
                ends.remove(number)?;
                sums = (sums.0.saturating_sub(1), sums.1.saturating_sub(len));
            }
        }
        if sums != before {
            note(transaction, sums)?;
        }
        Ok(Written { sums, trimmed })
    }

    /// That is on disk.
    pub(super) fn written(&self, written: &Written) {
        let Written { sums, trimmed } = written;
        self.count(sums.0, sums.1);
        let add = |to: &AtomicU64, more| to.fetch_add(more, Ordering::Relaxed);
        add(&self.totals.too_old, trimmed.too_old);
        add(&self.totals.too_many, trimmed.too_many);
        let mut said = self.said.lock();
        said.trimmed.too_old += trimmed.too_old;
        said.trimmed.too_many += trimmed.too_many;
        if said.at.is_some_and(|at| at.elapsed() < SAY_EVERY) {
            return;
        }
        let Trimmed { too_old, too_many } = std::mem::take(&mut said.trimmed);
        let limits = self.limits();
        if too_old > 0 {
            info!(
                event = "history_trimmed",
                "{} deleted from the history after more than {} (--history-time)",
                counted(too_old, "end"),
                humantime::format_duration(limits.time)
            );
        }
        if too_many > 0 {
            warn!(
                event = "history_trimmed",
                "the oldest {} deleted from the history, because all of them took more than {} bytes (--history-bytes)",
                counted(too_many, "end"),
                limits.bytes
            );
        }
        if too_old + too_many > 0 {
            said.at = Some(Instant::now());
        }
    }

    fn count(&self, records: u64, bytes: u64) {
        self.totals.records.store(records, Ordering::Relaxed);
        self.totals.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// What a transaction comes to once it is on disk.
#[derive(Debug)]
pub(super) struct Written {
    /// How many ends there are, and their bytes.
    sums: (u64, u64),
    trimmed: Trimmed,
}

/// The number and bytes of the first end, and when it was put on record.
fn first(ends: &redb::Table<'_, u64, &[u8]>) -> Result<Option<(u64, u64, u64)>, redb::Error> {
    let Some((number, bytes)) = ends.first()? else {
        return Ok(None);
    };
    let bytes = bytes.value();
    // What cannot be read goes first of all.
    let noted_ms = row::EndRow::decode(bytes).map_or(0, |row| row.noted_ms);
    Ok(Some((number.value(), len_of(bytes), noted_ms)))
}

fn len_of(bytes: &[u8]) -> u64 {
    KEY_LEN + bytes.len() as u64
}

/// Adds an end, or what became known of one that is there, and keeps the sums.
fn put(
    ends: &mut redb::Table<'_, u64, &[u8]>,
    number: u64,
    (run, now_ms): (&RunRecord, u64),
    (records, bytes): &mut (u64, u64),
) -> Result<(), redb::Error> {
    let before = ends.get(number)?.map(|it| it.value().to_vec());
    let earlier = before.as_deref().and_then(row::EndRow::decode);
    let mut row = row_of(run);
    // What the disk says of its order in time: a node may tell of an end long after it.
    row.noted_ms = earlier.as_ref().map_or(now_ms, |earlier| earlier.noted_ms);
    // A run that was restored from disk has its cause in words alone, from which nothing is concluded.
    if let Some(earlier) = &earlier
        && of::is_without_cause(run)
        && earlier.outcome != row::UNKNOWN
    {
        row.outcome = earlier.outcome;
        row.detail = earlier.detail;
    }
    let encoded = row.encode();
    match &before {
        Some(before) => *bytes = bytes.saturating_sub(len_of(before)),
        None => *records += 1,
    }
    *bytes += len_of(&encoded);
    ends.insert(number, &encoded[..])?;
    Ok(())
}

fn note(transaction: &WriteTransaction, sums: (u64, u64)) -> Result<(), redb::Error> {
    let mut about = transaction.open_table(ABOUT)?;
    about.insert(RECORDS_KEY, sums.0)?;
    about.insert(BYTES_KEY, sums.1)?;
    Ok(())
}
