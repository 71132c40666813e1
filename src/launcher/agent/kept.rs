//! What is left of runs that are over, as the scheduler is told it: so that it knows of them although it was restarted
//! without a state directory, and of where their output is. All of it once on a connection, after the first report, and
//! then what changes; in parts, where it is more than one frame takes.

use std::collections::BTreeMap;

use proto_frames::payload::{KeptRun, KeptRuns};

use super::{Agent, Link, Message};

/// Most runs in one frame: half of what a scheduler takes.
pub(super) const MAX_RUNS_PER_FRAME: usize = 256;

/// Bytes of a run in a frame beside its texts: the keys, and numbers of twenty digits.
const RUN_BYTES: usize = 192;

/// Bytes of runs after which the next frame begins: well below what a payload may have (256 KiB).
const MAX_BYTES_PER_FRAME: usize = 128 * 1024;

/// The runs by instance and the number of their end.
type Runs = BTreeMap<(String, u64), KeptRun>;

/// What is left, and whether the scheduler of this connection has been told.
#[derive(Debug, Default)]
pub(super) struct KeptRunsReport {
    /// `None` = the machine has not looked yet.
    runs: Option<Runs>,
    /// Whether it was told on the present connection.
    is_told: bool,
}

impl KeptRunsReport {
    /// A connection begins, on which nothing of it was told.
    pub(super) fn begin_connection(&mut self) {
        self.is_told = false;
    }
}

impl Agent {
    /// Takes a look of the machine in: the whole list. After the complete list was told on this connection, only
    /// differences are: runs that are new or have changed, and runs whose output is gone, with an empty path.
    pub(super) fn kept_runs(&mut self, runs: Vec<KeptRun>) {
        let key = |run: &KeptRun| (run.instance_uuid.clone(), run.seq);
        let runs: Runs = runs.into_iter().map(|run| (key(&run), run)).collect();
        let before = self.kept.runs.replace(runs.clone()).unwrap_or_default();
        if !self.kept.is_told {
            return self.report_kept_runs();
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
        for runs in in_parts(changed) {
            let complete = false;
            self.send(Message::KeptRuns(KeptRuns { complete, runs }));
        }
    }

    /// Tells the complete list, once on a connection and after its first report. Only schedulers that record ends are
    /// told.
    pub(super) fn report_kept_runs(&mut self) {
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
        let mut parts = in_parts(runs.values().cloned().collect()).into_iter();
        self.kept.is_told = true;
        // The first replaces what the scheduler knew; the others add to it.
        let first = parts.next().unwrap_or_default();
        self.send(Message::KeptRuns(KeptRuns {
            complete: true,
            runs: first,
        }));
        for runs in parts {
            let complete = false;
            self.send(Message::KeptRuns(KeptRuns { complete, runs }));
        }
    }
}

/// The runs, as many together as one frame takes; nothing for none.
fn in_parts(runs: Vec<KeptRun>) -> Vec<Vec<KeptRun>> {
    let mut parts: Vec<Vec<KeptRun>> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        let takes = RUN_BYTES + run.instance_uuid.len() + run.output.len();
        match parts.last_mut() {
            Some(part)
                if part.len() < MAX_RUNS_PER_FRAME && bytes + takes <= MAX_BYTES_PER_FRAME =>
            {
                part.push(run);
                bytes += takes;
            }
            _ => {
                parts.push(vec![run]);
                bytes = takes;
            }
        }
    }
    parts
}
