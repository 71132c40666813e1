//! EVACUATE: a node is to go out of service, with what it runs stopped or moved. Restore: it may come back.

use crate::{record, words};

use crate::cut::shorten;
use crate::deadline::check_deadline;
use crate::error::{Fault, PayloadError, require};
use crate::span::Span;

/// Most instances that a drain moves at a time: each takes room on two nodes and a start on one.
pub const MAX_PARALLEL: u32 = 64;

/// How many instances a drain moves at a time if it does not say it: one comes up while the next one leaves.
pub const DEFAULT_PARALLEL: u32 = 2;

record! {
    /// `evacuate: {workload_agent_uuid}`, and to the scheduler `{…, mode, deadline, parallel}`.
    pub struct Evacuate {
        /// The node.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// What is to become of its instances (added by this project); empty for the original's way: its launcher stops
        /// them all.
        mode: EvacuateMode as "mode" unless empty,
        /// How long moving them may take, at most [`crate::MAX_DEADLINE`] (added by this project); with 0 or none as long
        /// as it takes.
        deadline: Option<Span> as "deadline" unless empty,
        /// How many are moved at a time, 1 to [`MAX_PARALLEL`] (added by this project).
        parallel: Option<u32> as "parallel" unless empty,
    }
}

words! {
    /// What is to become of a node's instances.
    pub enum EvacuateMode {
        /// They are moved to other nodes.
        Relocate = "relocate",
        /// They stay; the node takes no new ones.
        Cordon = "cordon",
        /// A drain under way is ended where it is; the node stays cordoned.
        Abort = "abort",
        /// Nothing: only what moving them would come to is said.
        Check = "check",
        /// The node is not connected and will not return: it is not listed or waited for any more.
        Forget = "forget",
    }
}

record! {
    /// `restore: {workload_agent_uuid}`, and to the scheduler `{…, mode}`.
    pub struct Restore {
        /// The node.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// What is to be undone (added by this project); empty for the original's way: its launcher leaves maintenance.
        mode: RestoreMode as "mode" unless empty,
    }
}

words! {
    /// What is to be undone on a node.
    pub enum RestoreMode {
        /// It takes new instances again, as far as the scheduler is concerned.
        Uncordon = "uncordon",
    }
}

impl Evacuate {
    /// Whether it says which node, and the rest makes sense.
    ///
    /// # Errors
    /// Names the key that is missing, empty, unknown or out of range.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("evacuate.workload_agent_uuid", &self.workload_agent_uuid)])?;
        if let EvacuateMode::Other(word) = &self.mode {
            check_word("evacuate.mode", word, EvacuateMode::KNOWN)?;
        }
        check_deadline("evacuate.deadline", self.deadline)?;
        match self.parallel {
            Some(parallel) if !(1..=MAX_PARALLEL).contains(&parallel) => {
                let fault = Fault::OutOfRange {
                    value: parallel.into(),
                    min: 1,
                    max: MAX_PARALLEL.into(),
                };
                Err(PayloadError::new("evacuate.parallel", fault))
            }
            _ => Ok(()),
        }
    }

    /// How many instances are moved at a time.
    #[must_use]
    pub fn parallel(&self) -> u32 {
        self.parallel.unwrap_or(DEFAULT_PARALLEL)
    }
}

impl Restore {
    /// Whether it says which node, and a mode that is known.
    ///
    /// # Errors
    /// Names the key that is missing, empty or unknown.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("restore.workload_agent_uuid", &self.workload_agent_uuid)])?;
        match &self.mode {
            RestoreMode::Other(word) => check_word("restore.mode", word, RestoreMode::KNOWN),
            RestoreMode::Uncordon => Ok(()),
        }
    }
}

/// Refuses a word that is not known; an empty one is the original's way.
fn check_word(key: &str, word: &str, known: &'static [&'static str]) -> Result<(), PayloadError> {
    if word.is_empty() {
        return Ok(());
    }
    let word = shorten(word);
    Err(PayloadError::new(key, Fault::UnknownWord { word, known }))
}
