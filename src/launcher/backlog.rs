//! The state directory, and what could not be written to it yet: because it is full or read-only, as a rule.
//!
//! Nothing is lost while the launcher lives: the latest of each instance waits here and is tried again, until all of it
//! is written. Then the directory counts as writable again, if it has room for more than that. Until then the node
//! takes no START ([`super::agent`]), so that what waits is bounded by what the directory had.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use tracing::{error, info};

use super::agent::InstanceRecord;
use super::files::is_full;
use super::state::StateDir;

/// Time between two tries to write what waits: soon enough for a person who has just freed space, and a try costs
/// little.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A state directory, and what waits to be written to it.
#[derive(Debug)]
pub(crate) struct Backlog {
    state: StateDir,
    /// By instance.
    waiting: BTreeMap<String, Change>,
    /// Whether what is known of the node itself waits. It goes first: ends in records are numbered by it.
    node_waits: bool,
    fault: Option<Fault>,
}

/// What is to be written about an instance.
#[derive(Debug)]
enum Change {
    /// The record as it is to be.
    Save(Box<InstanceRecord>),
    /// The record and the instance's files are to go.
    Forget,
}

/// The directory cannot be written. Cleared only by a retry that has written everything.
#[derive(Debug)]
struct Fault {
    /// The system's word on it.
    reason: String,
    retry_at: Instant,
}

impl Backlog {
    /// The directory as it was opened.
    pub(crate) fn new(mut state: StateDir, now: Instant) -> Self {
        let fault = state.take_fault();
        let mut backlog = Self {
            state,
            waiting: BTreeMap::new(),
            node_waits: fault.is_some(),
            fault: None,
        };
        if let Some(error) = fault {
            backlog.failed(now, &error);
        }
        backlog
    }

    /// The directory itself.
    pub(crate) fn state(&self) -> &StateDir {
        &self.state
    }

    /// Why the directory cannot be written, for people.
    pub(crate) fn fault(&self) -> Option<String> {
        let fault = self.fault.as_ref()?;
        let reason = &fault.reason;
        Some(format!("the state directory cannot be written: {reason}"))
    }

    /// When to call [`Backlog::retry`].
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.fault.as_ref().map(|fault| fault.retry_at)
    }

    /// Whether the latest of an instance is not written.
    pub(crate) fn has(&self, instance: &str) -> bool {
        self.waiting.contains_key(instance)
    }

    /// Remembers an instance.
    pub(crate) fn save(&mut self, now: Instant, record: Box<InstanceRecord>) {
        let instance = record.instance.clone();
        self.change(now, instance, Change::Save(record));
    }

    /// Forgets an instance with all its files.
    pub(crate) fn forget(&mut self, now: Instant, instance: String) {
        self.change(now, instance, Change::Forget);
    }

    /// Remembers whether the node is evacuated.
    pub(crate) fn set_maintenance(&mut self, now: Instant, maintenance: bool) {
        self.state.set_maintenance(maintenance);
        self.node_waits = true;
        if let Err(error) = self.write_node() {
            self.failed(now, &error);
        }
    }

    /// Notes that the directory could not be written, by whomever.
    pub(crate) fn failed(&mut self, now: Instant, error: &io::Error) {
        self.note(now, error.to_string());
    }

    /// As [`Backlog::failed`], in words.
    pub(crate) fn note(&mut self, now: Instant, reason: String) {
        if self.fault.is_none() {
            error!(event = "state_not_written",
                path = %self.state.root().display(),
                reason,
                "the state directory cannot be written: no START is taken until it can; what runs goes on, and is \
                 remembered until then by this launcher alone; free space in it, or make it writable"
            );
        }
        let retry_at = now + RETRY_INTERVAL;
        self.fault = Some(Fault { reason, retry_at });
    }

    /// Tries again to write what waits.
    pub(crate) fn retry(&mut self, now: Instant) {
        match self.write_all() {
            Ok(()) => {
                self.fault = None;
                info!(
                    event = "state_written_again",
                    "the state directory can be written again; all is in it"
                );
            }
            Err(error) => {
                if is_full(&error) {
                    self.state.free();
                }
                self.failed(now, &error);
            }
        }
    }

    /// Writes a change at once, or has it wait in place of an earlier one of the same instance.
    fn change(&mut self, now: Instant, instance: String, change: Change) {
        let written = self
            .write_node()
            .and_then(|()| change.write(&self.state, &instance));
        match written {
            Ok(()) => drop(self.waiting.remove(&instance)),
            Err(error) => {
                self.waiting.insert(instance, change);
                self.failed(now, &error);
            }
        }
    }

    /// Writes what is known of the node, if that waits.
    fn write_node(&mut self) -> io::Result<()> {
        if self.node_waits {
            self.state.save_node()?;
            self.node_waits = false;
        }
        Ok(())
    }

    /// Writes all that waits, the node first; stops at the first failure, and what is written by then does not wait any
    /// more. A probe comes first: a directory without room for anything new still takes the removal of files.
    fn write_all(&mut self) -> io::Result<()> {
        self.state.probe()?;
        self.write_node()?;
        while let Some(first) = self.waiting.first_entry() {
            first.get().write(&self.state, first.key())?;
            first.remove();
        }
        Ok(())
    }
}

impl Change {
    fn write(&self, state: &StateDir, instance: &str) -> io::Result<()> {
        match self {
            Self::Save(record) => state.save(record),
            Self::Forget => state.forget(instance),
        }
    }
}
