//! Definitions of what workers were given.
//!
//! RIK's worker, `riklet`, reads the definition of each job before it looks at what is to be done, so that the job
//! which destroys an instance carries it again. Until then it is kept here, within a bound for all workers together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes of definitions that are kept for all workers together: as many as controllers may have instances of.
pub(crate) const MAX_KEPT: usize = crate::coordinator::MAX_DEFINITIONS;

/// Bytes that are kept at present, of all workers. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

/// A definition that is counted. Dropping it gives its bytes back.
#[derive(Debug)]
pub(crate) struct KeptDefinition {
    json: String,
    budget: Budget,
}

impl Budget {
    /// Counts and keeps a definition.
    ///
    /// # Errors
    /// The bytes that are kept already, where this one would be too much.
    pub(crate) fn keep(&self, json: String) -> Result<KeptDefinition, usize> {
        let before = self.0.fetch_add(json.len(), Ordering::Relaxed);
        let is_too_much = before.saturating_add(json.len()) > MAX_KEPT;
        // Gives its part back where it is dropped.
        let kept = KeptDefinition {
            json,
            budget: self.clone(),
        };
        match is_too_much {
            true => Err(before),
            false => Ok(kept),
        }
    }
}

impl KeptDefinition {
    /// The definition.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

impl Drop for KeptDefinition {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.json.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_kept_up_to_a_bound_and_given_back() {
        let budget = Budget::default();
        let most = budget.keep("x".repeat(MAX_KEPT - 1)).unwrap();
        let last = budget.keep("y".to_owned()).unwrap();
        assert_eq!(last.json(), "y");
        assert_eq!(budget.keep("z".to_owned()).unwrap_err(), MAX_KEPT);
        drop(most);
        assert!(budget.keep("z".to_owned()).is_ok());
        drop(last);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }
}
