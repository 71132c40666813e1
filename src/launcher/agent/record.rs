//! What an agent remembers of an instance across restarts, and how it takes that up again.
//!
//! A record is written before the machine does what it says (`Starting` before the start, `Suspending` before the
//! freeze), so that a launcher that crashed in between repeats it. Reading has to work for the records of all earlier
//! versions: fields that were added have defaults.

use std::time::{Duration, Instant};

use proto_frames::payload::Digest;
use serde::{Deserialize, Serialize};

use super::ends::{End, Ran};
use super::instances::{Instance, InstancePhase};
use super::transitions::MAX_THAWS;
use super::{
    About, Agent, AgentAction, Cpus, Demand, Devices, Duty, LaunchFault, Link, RunTerms, images_of,
};

/// An instance as it is kept in the state directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRecord {
    /// The instance.
    pub instance: String,
    /// What it asked for.
    pub demand: Demand,
    /// The id of its group, empty for none. Records of launchers that knew no groups lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Whether the START that began it was a restart.
    pub restart: bool,
    /// Whether it may run only under the lease. Records of launchers that had none lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leased: bool,
    /// What it is to ask for, where its limits were being changed to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Demand>,
    /// Which units of custom resources it has. Records of launchers that told no program lack them.
    #[serde(default, skip_serializing_if = "Devices::is_empty")]
    pub devices: Devices,
    /// Which processors are its own. Records of launchers that gave none lack them.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    pub cpus: Cpus,
    /// Whether it is to be thawed because it could not be frozen, and may be frozen all the same. Records of earlier
    /// launchers lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thaw: bool,
    /// The image that it runs. Records of launchers that knew none lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// The further images that it has. Records of launchers that knew none lack them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_images: Vec<String>,
    /// What it is called and runs. Records of earlier launchers lack it.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// For how long it may be there, how it is ended, and whether it is started again. Records of earlier launchers lack
    /// it.
    #[serde(default, skip_serializing_if = "RunTerms::is_empty")]
    pub terms: RunTerms,
    /// How far it is.
    pub stage: Stage,
    /// Whether some of its ends may not be on record: all that launchers knew that did not number them.
    pub unheard: bool,
    /// Its ends that are not on record, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ends: Vec<End>,
}

/// How far an instance is, as remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It is to be started; maybe it runs already.
    Starting,
    /// It runs.
    Running,
    /// It is to be frozen; maybe it is.
    Suspending,
    /// It is frozen.
    Suspended,
    /// It is to go on; maybe it does.
    Resuming,
    /// It has ended and is to be started again.
    Backoff,
    /// It is being started again; maybe it runs already.
    Restarting,
    /// It is to end.
    Stopping(Removal),
    /// It ended by itself, with this code.
    Exited(Option<i32>),
    /// It was removed, and had ended with this code.
    Gone(Removal, Option<i32>),
}

impl InstanceRecord {
    /// One of an instance of which nothing is known but what it asked for.
    pub(crate) fn new(instance: &str, demand: Demand, stage: Stage) -> Self {
        Self {
            instance: instance.to_owned(),
            demand,
            group: String::new(),
            restart: false,
            leased: false,
            update: None,
            devices: Devices::default(),
            cpus: Cpus::default(),
            thaw: false,
            image: String::new(),
            more_images: Vec::new(),
            about: About::default(),
            terms: RunTerms::default(),
            stage,
            unheard: false,
            ends: Vec::new(),
        }
    }
}

impl InstanceRecord {
    /// The digests of its images, that of its program first; none where its command names the program.
    pub(crate) fn images(&self) -> Vec<Digest> {
        images_of(&self.image, &self.more_images)
    }

    /// Whether nothing of the instance runs any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Exited(_) | Stage::Gone(..))
    }
}

/// What an instance's removal is reported as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Removal {
    /// InstanceDeleted.
    Deleted,
    /// InstanceStopped: it was only removed from this node.
    Stopped,
    /// InstanceStopped: it was killed because the node was cut off for longer than its lease.
    CutOff,
}

/// What became of a remembered instance's process while no launcher ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessFate {
    /// It runs; its end will be told.
    Running,
    /// It ended, with this code if anybody knows.
    Ended(Option<i32>),
    /// It ended with this code, and no stop had been requested.
    EndedByItself(i32),
    /// It never ran, and never will.
    NeverRan,
}

/// A remembered instance and what was found of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// What was remembered.
    pub record: InstanceRecord,
    /// What was found; for an instance that had ended already it does not matter.
    pub found: ProcessFate,
    /// For how long it has been there.
    pub age: Duration,
    /// How long ago it ended, where it has; `None` = not known.
    pub ended_ago: Option<Duration>,
    /// What is known of the run, where it ended meanwhile.
    pub ran: Ran,
}

impl Agent {
    /// Takes up what an earlier launcher with the same state left: before anything else is handled.
    pub fn recover(&mut self, now: Instant, maintenance: bool, instances: Vec<Recovered>) {
        if maintenance {
            self.duty = Duty::Maintenance;
        }
        for recovered in instances {
            let Recovered {
                record,
                found,
                age,
                ended_ago,
                ran,
            } = recovered;
            let since = now.checked_sub(age).unwrap_or(now);
            let id = record.instance.clone();
            self.recover_instance(now, record, (&found, ran), since);
            let latest = self.instances.get(&id).and_then(|it| it.ends.last());
            if let Some(&seq) = latest {
                let at = ended_ago.and_then(|ago| now.checked_sub(ago));
                self.ends.set_time(seq, at);
            }
        }
        self.assign_recovered_devices();
        // What runs is watched before there is a connection.
        self.link = Link::Down { look_at: Some(now) };
        if maintenance {
            // The launcher before may have ended amidst an EVACUATE, with some told to end and others not.
            self.stop_all(now);
        }
    }

    /// Makes an instance of its record, and does what follows from what was found of its processes.
    ///
    /// An end that happened while no launcher ran becomes an end here, numbered and told like any other. Where
    /// processes run, a removal or a change that was under way is ordered again.
    fn recover_instance(
        &mut self,
        now: Instant,
        record: InstanceRecord,
        (found, ran): (&ProcessFate, Ran),
        since: Instant,
    ) {
        let images = record.images();
        let id = record.instance;
        let state = self.phase_of(now, record.stage, found);
        let waits = matches!(state, InstancePhase::Backoff { .. });
        let mut terms = record.terms;
        if waits && record.stage == Stage::Restarting {
            terms.restarts.not_begun();
        }
        let had_ended = matches!(
            state,
            InstancePhase::Exited { .. } | InstancePhase::Gone { .. }
        );
        let is_unnumbered = record.unheard && record.ends.is_empty();
        let ends = record.ends.iter().map(|end| end.seq).collect();
        for end in record.ends {
            self.ends.recover(&id, end, None);
        }
        let instance = Instance {
            demand: record.demand,
            group: record.group,
            restart: record.restart,
            usage: None,
            is_measured: false,
            leased: record.leased,
            update: record.update,
            devices: record.devices,
            cpus: record.cpus,
            thaws_left: record.thaw.then_some(MAX_THAWS - 1),
            state,
            ends,
            images,
            about: record.about,
            since,
            is_introduced: false,
            ran: Ran::default(),
            terms,
            limit_at: None,
        };
        self.instances.insert(id.clone(), instance);
        self.note_ran(now, &id, ran);
        match found {
            _ if had_ended && is_unnumbered => self.end(now, &id, state),
            _ if had_ended => {}
            _ if waits => self.recover_backoff(now, &id),
            // Its START may be tried elsewhere: nothing of it has run.
            ProcessFate::NeverRan if record.stage == Stage::Starting => {
                let detail = "it had not begun when its launcher ended".to_owned();
                self.start_failed(now, &id, LaunchFault::Launch, detail);
            }
            // A STATS may have listed it as pending, and who was told of it must hear of its end.
            ProcessFate::NeverRan => self.exited(now, &id, None, false),
            ProcessFate::Ended(code) => self.exited(now, &id, *code, false),
            ProcessFate::EndedByItself(code) => self.exited(now, &id, Some(*code), true),
            ProcessFate::Running => match record.stage {
                // Again: it is not known whether its processes were asked before.
                Stage::Stopping(outcome) => self.terminate(now, &id, outcome),
                stage => {
                    if stage == Stage::Starting {
                        // It has begun since: that was not noted.
                        self.count_run(now, &id);
                    }
                    self.persist(&id);
                    self.take_up_change(&id);
                }
            },
        }
    }

    /// In which phase a recovered instance goes on, before its end is dealt with, if it has ended.
    fn phase_of(&mut self, now: Instant, stage: Stage, found: &ProcessFate) -> InstancePhase {
        let never_ran = *found == ProcessFate::NeverRan;
        match stage {
            Stage::Backoff => InstancePhase::Backoff { due: now },
            // Its earlier run has ended, and the next was noted and not begun.
            Stage::Restarting if never_ran => InstancePhase::Backoff { due: now },
            Stage::Starting if never_ran => InstancePhase::Starting,
            Stage::Starting | Stage::Running | Stage::Restarting => InstancePhase::Running,
            Stage::Suspending => InstancePhase::Suspending,
            Stage::Suspended => InstancePhase::Suspended,
            Stage::Resuming => InstancePhase::Resuming,
            Stage::Stopping(outcome) => InstancePhase::Stopping {
                outcome,
                kill_at: None,
                running: true,
            },
            Stage::Exited(code) => InstancePhase::Exited {
                code,
                order: self.next_end(),
            },
            Stage::Gone(outcome, code) => InstancePhase::Gone { outcome, code },
        }
    }

    /// Remembers the instance as it is now.
    pub(super) fn persist(&mut self, id: &str) {
        let Some(instance) = self.instances.get(id) else {
            return;
        };
        let stage = match &instance.state {
            InstancePhase::Starting if instance.is_restarted() => Stage::Restarting,
            InstancePhase::Starting => Stage::Starting,
            InstancePhase::Backoff { .. } => Stage::Backoff,
            InstancePhase::Running => Stage::Running,
            InstancePhase::Suspending => Stage::Suspending,
            InstancePhase::Suspended => Stage::Suspended,
            InstancePhase::Resuming => Stage::Resuming,
            InstancePhase::Stopping { outcome, .. } => Stage::Stopping(*outcome),
            InstancePhase::Exited { code, .. } => Stage::Exited(*code),
            InstancePhase::Gone { outcome, code } => Stage::Gone(*outcome, *code),
        };
        let mut images = instance.images.iter().map(ToString::to_string);
        let record = InstanceRecord {
            instance: id.to_owned(),
            demand: instance.demand.clone(),
            group: instance.group.clone(),
            restart: instance.restart,
            leased: instance.leased,
            update: instance.update.clone(),
            devices: instance.devices.clone(),
            cpus: instance.cpus.clone(),
            thaw: instance.thaws_left.is_some(),
            image: images.next().unwrap_or_default(),
            more_images: images.collect(),
            about: instance.about.clone(),
            terms: instance.terms.clone(),
            stage,
            unheard: !instance.ends.is_empty(),
            ends: self.ends.of(&instance.ends).cloned().collect(),
        };
        self.order(AgentAction::Persist(Box::new(record)));
    }

    /// Drops the instance here and in the state directory.
    pub(super) fn forget(&mut self, id: &str) {
        if self.instances.remove(id).is_some() {
            self.order(AgentAction::Forget(id.to_owned()));
        }
    }
}
