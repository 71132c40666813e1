//! The term of the latest leader that this launcher has known, across restarts: `leader-term.json` of the state directory.
//!
//! Of several schedulers behind one name one leads at a time. One that stood still, or was cut off, may not know yet that
//! its turn is over; a launcher that has heard of a later term takes nothing from it.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::Term;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::MachineConfig;
use super::files::{read_json, write_json};

/// Name of the file.
const FILE: &str = "leader-term.json";

/// What is in it.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    generation: u64,
    revision: u64,
}

/// The latest term, shared by all tries to connect.
#[derive(Debug, Clone)]
pub struct LeaderTerm(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// `None` for simulated nodes, which remember nothing.
    path: Option<PathBuf>,
    latest: Mutex<Option<Term>>,
}

impl LeaderTerm {
    /// One that is in memory alone.
    #[cfg(feature = "test-support")]
    #[must_use]
    pub fn in_memory() -> Self {
        let latest = Mutex::new(None);
        Self(Arc::new(Shared { path: None, latest }))
    }

    /// What the state directory of this machine has. A file that cannot be read counts as none.
    pub(super) fn of(machine: &MachineConfig) -> Self {
        let path = match machine {
            MachineConfig::Real { state_dir, .. } => Some(state_dir.join(FILE)),
            MachineConfig::Simulated { .. } => None,
        };
        let kept = path.as_deref().map(read_json::<Kept>).transpose();
        let kept = kept.unwrap_or_else(|error| {
            warn!(event = "leader_term_unreadable", %error, "cannot read {FILE} in the state directory: schedulers of earlier terms are not known");
            None
        });
        let latest = kept.flatten().map(|it| Term {
            generation: it.generation,
            revision: it.revision,
        });
        let latest = Mutex::new(latest);
        Self(Arc::new(Shared { path, latest }))
    }

    /// Takes in the term of a scheduler that has answered CONNECT; on return it is on disk, if the disk takes it. One
    /// without a term is none of several. Blocks the calling thread.
    ///
    /// # Errors
    /// The latest, which is later than this one.
    pub fn admit(&self, term: Option<Term>) -> Result<(), (Term, Term)> {
        let Some(term) = term else {
            return Ok(());
        };
        let mut latest = self.0.latest.lock();
        match *latest {
            Some(known) if term < known => return Err((term, known)),
            Some(known) if term == known => return Ok(()),
            _ => *latest = Some(term),
        }
        let kept = Kept {
            generation: term.generation,
            revision: term.revision,
        };
        let written = self.0.path.as_deref().map(|path| write_json(path, &kept));
        if let Some(Err(error)) = written {
            warn!(event = "leader_term_not_kept", %error, "cannot keep the leader's term {term}: after a restart this launcher may take commands of an earlier leader");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{FILE, Kept, LeaderTerm, MachineConfig, Term, read_json};
    use crate::launcher::Share;
    use crate::launcher::supervise::Program;

    fn term(generation: u64, revision: u64) -> Option<Term> {
        Some(Term {
            generation,
            revision,
        })
    }

    #[test]
    fn an_earlier_term_is_refused_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let machine = MachineConfig::Real {
            state_dir: directory.path().to_owned(),
            uuid: None,
            share: Share::default(),
            cgroup: None,
            images: None,
            supervisor: Program::this(),
        };
        let terms = LeaderTerm::of(&machine);
        assert_eq!(terms.admit(None), Ok(()));
        assert_eq!(terms.admit(term(0, 7)), Ok(()));
        assert_eq!(terms.admit(term(0, 7)), Ok(()));
        assert!(terms.admit(term(0, 6)).is_err());
        let terms = LeaderTerm::of(&machine);
        let refused = (term(0, 6).unwrap(), term(0, 7).unwrap());
        assert_eq!(terms.admit(term(0, 6)), Err(refused));
        // One that is alone is none of several.
        assert_eq!(terms.admit(None), Ok(()));
        // etcd was wiped, and an operator has said so.
        assert_eq!(terms.admit(term(1, 2)), Ok(()));
        assert!(terms.admit(term(0, 900)).is_err());
        let kept = read_json::<Kept>(&directory.path().join(FILE))
            .unwrap()
            .unwrap();
        assert_eq!((kept.generation, kept.revision), (1, 2));
        // Damage is no reason to take no work.
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(LeaderTerm::of(&machine).admit(term(0, 1)), Ok(()));
    }
}
