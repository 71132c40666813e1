//! What an earlier launcher left: instances that run, have ended, or never ran, found again by their files, their
//! supervisors' command lines, and the marks of their processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::super::agent::{
    Demand, Input, InstanceRecord, ProcessFate, Ran, Recovered, Removal, Stage, is_file_name,
};
use super::super::files::{InstanceDir, Supervision, create_json, read_json, write_json};
use super::super::orphans;
use super::super::procfs::{ProcStat, ProcessId};
use super::super::supervise::WORD;
use super::{ProcessEvent, Processes, Supervisor, ended, open_pid, ran};

impl Processes {
    /// What is known from before, and what became of it. Called once, before anything is performed.
    ///
    /// Instances whose supervisor still runs are watched again. Where it is gone without a word, it is looked for
    /// processes with the instance's mark, for all such instances in one walk over `/proc`. Supervisors of instances of
    /// which no record is left are found by their command lines, and stopped: what they hold is not known.
    pub(crate) fn recover(&mut self) -> Vec<Recovered> {
        let supervisors = running_supervisors(&self.state().instances());
        let mut records = self.state().records();
        records.extend(without_record(&records, &supervisors));
        let found: Vec<Option<ProcessFate>> = records
            .iter()
            .map(|record| self.find(record, supervisors.get(&record.instance)))
            .collect();
        let silent = records.iter().zip(&found).filter(|(_, it)| it.is_none());
        let silent: Vec<InstanceDir> = silent
            .map(|(record, _)| self.state().instance(&record.instance))
            .collect();
        let mut are_gone = orphans::without_any(&silent).into_iter();
        for (record, found) in records.iter().zip(&found) {
            let may_run = !record.has_ended() && *found != Some(ProcessFate::NeverRan);
            let images = record.images();
            if may_run && !images.is_empty() {
                self.images.hold(&record.instance, &images);
            }
        }
        let mut known = |(record, found): (InstanceRecord, Option<ProcessFate>)| {
            let found = found.unwrap_or_else(|| {
                let is_gone = are_gone.next().unwrap_or(false);
                self.end(&record.instance, is_gone)
            });
            let age = self.age_of(&record);
            let ended_ago = self.ended_ago(&record);
            let ran = ran(&self.state().instance(&record.instance));
            Recovered {
                record,
                found,
                age,
                ended_ago,
                ran,
            }
        };
        records.into_iter().zip(found).map(&mut known).collect()
    }

    /// Ends an instance whose supervisor is gone and has not said how it ended. If processes are left (`is_gone` is
    /// false), it counts as running until a task has killed them all.
    fn end(&self, id: &str, is_gone: bool) -> ProcessFate {
        let (events, instance, dir) = (
            self.events.clone(),
            id.to_owned(),
            self.state().instance(id),
        );
        if is_gone {
            tokio::spawn(orphans::remove_group(dir));
            return ProcessFate::Ended(None);
        }
        tokio::spawn(async move {
            orphans::end(dir).await;
            let exited = Input::Exited {
                instance,
                code: None,
                by_itself: false,
                ran: Ran::default(),
            };
            let _ = events.send(ProcessEvent::Other(exited)).await;
        });
        ProcessFate::Running
    }

    /// For how long an instance has been there, by the time of its launch file; no time where that cannot be read.
    fn age_of(&self, record: &InstanceRecord) -> Duration {
        let launch = self.state().instance(&record.instance).launch();
        let written = fs::symlink_metadata(launch).and_then(|it| it.modified());
        let age = written.ok().and_then(|at| at.elapsed().ok());
        age.unwrap_or_default()
    }

    /// How long ago an instance ended, by its exit file; `None` = its supervisor has written none.
    fn ended_ago(&self, record: &InstanceRecord) -> Option<Duration> {
        let ended = self.state().instance(&record.instance).ended();
        let written = fs::symlink_metadata(ended).and_then(|it| it.modified());
        written.ok()?.elapsed().ok()
    }

    /// What became of an instance while no launcher ran; `None` = its supervisor is gone and has not said.
    ///
    /// A missing process file means that the supervisor has not begun, unless one runs, or the instance is known to
    /// have run: then somebody has removed the file. Creating it here as `Abandoned` decides the race: the supervisor
    /// creates the same file before it starts anything, and ends if it exists.
    fn find(
        &mut self,
        record: &InstanceRecord,
        running: Option<&ProcessId>,
    ) -> Option<ProcessFate> {
        let id = record.instance.as_str();
        if matches!(
            record.stage,
            Stage::Exited(_) | Stage::Gone(..) | Stage::Backoff
        ) {
            return Some(ProcessFate::Ended(None));
        }
        let dir = self.state().instance(id);
        let supervision = || {
            read_json(&dir.supervision()).unwrap_or_else(|error| {
                warn!(event = "process_file_unreadable", instance = id, %error, "process file cannot be read");
                None
            })
        };
        let mut known = supervision();
        if known.is_none()
            && let Some(process) = running
        {
            let by = Supervision::By(process.clone());
            if let Err(error) = write_json(&dir.supervision(), &by) {
                debug!(instance = id, %error, "process file cannot be put back");
            }
            known = Some(by);
        }
        if known.is_none() {
            // From here on a supervisor that has not begun will not.
            match create_json(&dir.supervision(), &Supervision::Abandoned) {
                Ok(true) => {
                    let may_be_new = matches!(
                        record.stage,
                        Stage::Starting | Stage::Restarting | Stage::Stopping(_)
                    );
                    return ended(&dir).or_else(|| may_be_new.then_some(ProcessFate::NeverRan));
                }
                Ok(false) => known = supervision(),
                Err(error) => {
                    warn!(event = "instance_not_given_up", instance = id, %error, "cannot give up an instance")
                }
            }
        }
        match known {
            Some(Supervision::Abandoned) => Some(ProcessFate::NeverRan),
            Some(Supervision::By(process)) => match open(&process) {
                Some(supervisor) => {
                    self.watch(id, supervisor, None);
                    Some(ProcessFate::Running)
                }
                None => ended(&dir),
            },
            None => ended(&dir),
        }
    }
}

/// The running supervisor that this was, if it still runs; compared by pid and start time.
fn open(process: &ProcessId) -> Option<Supervisor> {
    let pidfd = open_pid(process.pid).ok()?;
    // Only after opening: the process that has this pid and that start time now had it then.
    process.is_running().then(|| Supervisor {
        pid: process.pid,
        pidfd: Arc::new(pidfd),
    })
}

/// The supervisors that run of instances in this directory, by instance: whatever became of the files there, each has
/// its instance's directory on its command line.
fn running_supervisors(instances: &Path) -> BTreeMap<String, ProcessId> {
    let processes = ProcStat::all().into_values();
    let running = processes.filter(|process| !process.has_ended());
    let supervisors = running.filter_map(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.pid)).ok()?;
        let id = supervised(&line, instances)?;
        let known = ProcessId::of(process.pid)?;
        // The process that was looked at, and not one that has its number by now.
        (known.start_ticks == process.start_ticks).then_some((id, known))
    });
    supervisors.collect()
}

/// The instance in this directory that a process supervises, by its command line; `None` for others, among them the last
/// step before a workload.
fn supervised(line: &[u8], instances: &Path) -> Option<String> {
    let mut words = line.strip_suffix(b"\0")?.split(|byte| *byte == 0).skip(1);
    let (word, dir) = (words.next()?, words.next()?);
    if word != WORD.as_bytes() || words.next().is_some() {
        return None;
    }
    let id = dir.strip_prefix(instances.as_os_str().as_bytes())?;
    let id = std::str::from_utf8(id.strip_prefix(b"/")?).ok()?;
    is_file_name(id).then(|| id.to_owned())
}

/// A record for each of these supervisors of which there is none: of an instance that is to stop, because what it asked
/// for is not known, and capacity that it uses would be given away.
fn without_record(
    records: &[InstanceRecord],
    supervisors: &BTreeMap<String, ProcessId>,
) -> Vec<InstanceRecord> {
    let known: BTreeSet<&str> = records.iter().map(|it| &*it.instance).collect();
    let unknown = supervisors.keys().filter(|id| !known.contains(&***id));
    let stopped = unknown.map(|id| {
        warn!(event = "instance_without_record", instance = id,
            "an instance runs of which no record is left, because files of the state directory were removed; it is stopped");
        InstanceRecord::new(id, Demand::default(), Stage::Stopping(Removal::Stopped))
    });
    stopped.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::supervised;

    #[test]
    fn a_supervisor_is_known_by_its_command_line_and_no_other_process_is() {
        let of = |line: &str| supervised(line.as_bytes(), Path::new("/state/instances"));
        let line = "ciao-supervisor\0__supervise-instance\0/state/instances/a.1\0";
        assert_eq!(of(line), Some("a.1".to_owned()));
        for other in [
            "ciao-supervisor\0__supervise-instance\0/state/instances/a\0exec\0",
            "ciao-supervisor\0__supervise-instance\0/other/instances/a\0",
            "ciao-supervisor\0__supervise-instance\0/state/instances/a/b\0",
            "ciao-supervisor\0__supervise-instance\0/state/instances/..\0",
            "ciao-supervisor\0__supervise-instance\0/state/instances2\0",
            "ciao-supervisor\0__supervise-instance\0",
            "sh\0-c\0/state/instances/a\0",
            "",
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
