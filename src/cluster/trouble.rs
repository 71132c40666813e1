//! What etcd refuses or does not answer, for the log: once for each kind of call, and once when it is over.

use std::collections::BTreeMap;

use ciao_etcd::Error;
use ciao_etcd::election::Call;
use tracing::{info, warn};

/// Calls of one kind in a row without an answer before it is logged: one or two are a member that is gone, after which
/// calls go to the next one, or a change of etcd's leader.
const SILENT_CALLS: u32 = 6;

/// How calls of the election went.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// How many failed in a row, by what they do.
    failed: BTreeMap<&'static str, u32>,
    /// Those that were logged, with why they failed.
    logged: BTreeMap<&'static str, String>,
}

impl Trouble {
    /// A call was answered, or failed; `Some` where that is to be logged.
    pub(super) fn note(&mut self, call: Call, error: Option<&Error>) {
        let what = what(call);
        let Some(error) = error else {
            self.failed.remove(what);
            if self.logged.remove(what).is_some() && self.logged.is_empty() {
                info!(
                    event = "cluster_etcd_well",
                    "etcd does what it is asked again"
                );
            }
            return;
        };
        let failed = self.failed.entry(what).or_default();
        *failed += 1;
        let is_silent = matches!(error, Error::Unanswered(_));
        if is_silent && *failed < SILENT_CALLS {
            return;
        }
        let text = error.to_string();
        // Words of unanswered calls change from one to the next: the first ones will do.
        let is_known = self
            .logged
            .get(what)
            .is_some_and(|known| is_silent || *known == text);
        if !is_known {
            warn!(event = "cluster_etcd_trouble", "{what}: {text}");
            self.logged.insert(what, text);
        }
    }
}

/// What a call does, as it is logged.
fn what(call: Call) -> &'static str {
    match call {
        Call::Grant => "cannot get a lease, which a scheduler needs before it can lead",
        Call::KeepAlive(_) => "cannot keep the lease alive",
        Call::Read => "cannot read who leads",
        Call::Campaign(_) => "cannot begin to lead",
        Call::Revoke(_) => "cannot end the lease",
    }
}

#[cfg(test)]
mod tests {
    use ciao_etcd::Error;
    use ciao_etcd::election::Call;

    use super::{SILENT_CALLS, Trouble};

    #[test]
    fn a_refusal_is_logged_at_once_and_silence_when_it_lasts() {
        let mut trouble = Trouble::default();
        let silent = Error::Unanswered("no answer".to_owned());
        for _ in 1..SILENT_CALLS {
            trouble.note(Call::Read, Some(&silent));
            assert!(trouble.logged.is_empty());
        }
        trouble.note(Call::Read, None);
        trouble.note(Call::Read, Some(&silent));
        assert!(trouble.logged.is_empty(), "one was answered between");
        for _ in 1..SILENT_CALLS {
            trouble.note(Call::Read, Some(&silent));
        }
        assert_eq!(trouble.logged.len(), 1);
        trouble.note(Call::Grant, Some(&Error::NoSpace));
        assert_eq!(trouble.logged.len(), 2);
        trouble.note(Call::Read, None);
        trouble.note(Call::Grant, None);
        assert!(trouble.logged.is_empty());
    }
}
