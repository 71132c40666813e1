//! What is left of runs that are over, as the scheduler is told it: so that it knows of them although it was restarted
//! without a state directory, and of where their output is. All of it once on a connection, after the first report, and then
//! what changes.

use std::collections::BTreeMap;

use proto_frames::payload::{KeptRun, KeptRuns};

use super::{Agent, Link, Message};

/// The runs by instance and the number of their end.
type Runs = BTreeMap<(String, u64), KeptRun>;

/// What is left, and whether it was told.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// `None` = the machine has not looked yet.
    runs: Option<Runs>,
    /// Whether it was told on the present connection.
    is_told: bool,
}

impl Kept {
    pub(super) fn begin_connection(&mut self) {
        self.is_told = false;
    }
}

impl Agent {
    /// The machine has looked.
    pub(super) fn kept_runs(&mut self, runs: Vec<KeptRun>) {
        let key = |run: &KeptRun| (run.instance_uuid.clone(), run.seq);
        let runs: Runs = runs.into_iter().map(|run| (key(&run), run)).collect();
        let before = self.kept.runs.replace(runs.clone()).unwrap_or_default();
        if !self.kept.is_told {
            return self.tell_kept_runs();
        }
        let is_new = |run: &&KeptRun| before.get(&key(run)) != Some(run);
        let mut changed: Vec<KeptRun> = runs.values().filter(is_new).cloned().collect();
        let gone = before
            .into_iter()
            .filter(|(key, run)| !run.output.is_empty() && !runs.contains_key(key));
        changed.extend(gone.map(|(_, run)| KeptRun {
            output: String::new(),
            ..run
        }));
        if !changed.is_empty() {
            self.send(Message::KeptRuns(KeptRuns {
                complete: false,
                runs: changed,
            }));
        }
    }

    /// Tells all that is left, unless that was told on this connection, or nothing else was yet.
    pub(super) fn tell_kept_runs(&mut self) {
        let Link::Up {
            records_ends: true,
            reported: Some(_),
            ..
        } = self.link
        else {
            return;
        };
        let Some(runs) = self.kept.runs.as_ref().filter(|_| !self.kept.is_told) else {
            return;
        };
        let runs = runs.values().cloned().collect();
        self.kept.is_told = true;
        self.send(Message::KeptRuns(KeptRuns {
            complete: true,
            runs,
        }));
    }
}
