//! The coordinator's part for what the scheduler says: how far tasks are, how they ended, which nodes there are.
//!
//! Each event and each listing goes to the tracker of the task that it concerns. If its stage changes,
//! `Coordinator::settle` does what follows. Events and listings may repeat or overtake each other; the tracker sorts
//! that out, and `settle` may run more than once for the same stage.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use ciao_adapter::tracking::{Listed, Seen, is_temporary, is_there};
use ciao_scheduler::ctl::event::Event;
use ciao_scheduler::ctl::track::Stage;
use proto_frames::payload::{CommandFailure, NodeType, PhaseName, StartFailureReason};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::coordinator::preemption::Preemption;
use crate::coordinator::{Coordinator, MAX_ENDED, MAX_PUSHES, MAX_REFUSALS};
use crate::nodes::is_compute;
use crate::requests::{Listing, SessionEvent};
use crate::shipping::{News, Push, PushOrder};
use crate::store::Change;
use crate::task::Outcome;

/// How a task ended that the scheduler neither has nor remembers, and may have had: to run it again could be to run it
/// twice.
const ENDED_UNSEEN: &str = "the scheduler does not have it, and does not remember all ends since the task was sent: \
                            whether it ran, and how it ended, is not known";

impl Coordinator {
    /// Handles one report of the session.
    ///
    /// At a new connection, all trackers of sent tasks are told that events may have been missed, and what could not be
    /// sent is. At a lost one, nodes have no status any more, for it cannot be known.
    pub(super) fn hear(&mut self, heard: SessionEvent) {
        match heard {
            SessionEvent::Up(session) => {
                info!(
                    event = "scheduler_connected",
                    "connected with the scheduler"
                );
                self.session = Some(session);
                self.preemption = Preemption::default();
                self.back_by = Instant::now() + self.settings.return_time;
                self.reattach();
                self.submit_unsent();
            }
            SessionEvent::Missed => {
                warn!(
                    event = "events_missed",
                    "more events came than are kept; how tasks are is asked again"
                );
                self.reattach();
            }
            SessionEvent::Down(why) => {
                warn!(
                    event = "scheduler_disconnected",
                    "not connected with the scheduler; tasks are accepted and sent later: {why}"
                );
                self.session = None;
                self.down = why;
                self.nodes.forget_statuses();
            }
            SessionEvent::Event(event) => self.event(&event),
            SessionEvent::Listing(listing) => self.compare(&listing),
        }
    }

    /// Tells the trackers that events may have been missed: only those of sent tasks have something to miss.
    fn reattach(&mut self) {
        let open = self
            .tasks
            .values_mut()
            .filter(|it| it.is_sent() && !it.is_over());
        open.for_each(|task| task.tracker().reattach());
    }

    /// Handles one event: first what it says of a node, then what it says of one of our tasks. Events about others'
    /// instances end here.
    fn event(&mut self, event: &Event) {
        match event {
            // Controllers and other roles have no number: no task can be on them.
            Event::NodeConnected(node) if node.node_type == NodeType::Compute => {
                self.see_node(&node.node_uuid, "", "CONNECTED");
            }
            Event::NodeDisconnected(node) => {
                if let Some(number) = self.nodes.known(&node.node_uuid) {
                    self.nodes.note(&node.node_uuid, "", "LOST");
                    self.say(format_args!("Node with id {number} went down"));
                }
            }
            _ => {}
        }
        let id = event
            .instance_uuid()
            .and_then(|it| self.by_instance.get(it));
        let Some(&id) = id else { return };
        // The failure of a migration is told to people; what it means for the task is in its state, which the tracker
        // sees.
        if let Event::CommandFailure(failure) = event {
            self.say_failed(id, failure);
        }
        if let Some(task) = self.tasks.get_mut(&id)
            && task.tracker().observe(event).is_some()
        {
            self.settle(id);
        }
    }

    /// Says that a command to one of our tasks failed at its node or at the scheduler. Migrations are the only commands
    /// that this program sends.
    fn say_failed(&self, id: u32, failure: &CommandFailure) {
        let (reason, detail) = (failure.reason.as_str(), &failure.detail);
        self.say(format_args!(
            "Migration of task {id} failed: {reason}: {detail}"
        ));
    }

    /// Compares all that was sent with a listing.
    ///
    /// Nodes first, so that they have numbers; then each open task. Tasks that are not listed, and not among the ended
    /// ones either, may still return with their nodes until `back_by`; later they are sent again if they certainly never
    /// ran, and have ended unseen else. Last, what waited for a connection is sent.
    fn compare(&mut self, listing: &Listing) {
        for node in listing.nodes.iter().filter(|node| is_compute(node)) {
            self.see_node(&node.node_uuid, &node.hostname, &node.status);
        }
        let (instances, ended) = (&listing.instances, &listing.ended);
        let listed = Listed::new(instances, ended, Instant::now(), self.back_by);
        let open = self
            .tasks
            .iter_mut()
            .filter(|(_, it)| it.is_sent() && !it.is_over());
        let (mut changed, mut unseen) = (Vec::new(), Vec::new());
        for (id, task) in open {
            let (instance, sent_for) = (task.record.instance.clone(), task.sent_for());
            match listed.observe(&instance, sent_for, task.tracker()) {
                Seen::Same => {}
                Seen::Changed => changed.push(*id),
                Seen::EndedUnseen => unseen.push(*id),
            }
        }
        changed.into_iter().for_each(|id| self.settle(id));
        for id in unseen {
            self.fail(id, ENDED_UNSEEN.to_owned());
        }
        if let Some(notice) = self.preemption.look(self.tasks.values()) {
            warn!(event = "no_task_makes_way", "{notice}");
        }
        self.submit_unsent();
    }

    /// Gives a node a number if it has none, which is then written to disk, and notes its host name and status. Past
    /// the most nodes that can have numbers, a node is left out of lists.
    fn see_node(&mut self, uuid: &str, hostname: &str, status: &str) {
        let Some((_, change)) = self.nodes.number(uuid) else {
            return;
        };
        self.changes.extend(change);
        self.nodes.note(uuid, hostname, status);
    }

    /// Does what follows from a task's stage: tells people where it runs, notes how it ended, or puts it back among the
    /// unsent.
    fn settle(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        match task.stage().clone() {
            // Given to a node, which the original's readers count as running there.
            Stage::Placed | Stage::Running => self.say_placed(id),
            // The task has left its node for a while; its return is told like its first start.
            Stage::Held {
                state: PhaseName::Suspended,
                ..
            }
            | Stage::Waiting(_) => task.is_announced = false,
            // Nothing to do. `Decided` answers dry runs, which are not sent here.
            Stage::Sent | Stage::Held { .. } | Stage::Decided(_) => {}
            // The process has ended by itself, or by a signal.
            Stage::Ended { exit_code } => {
                let outcome = Outcome {
                    succeeded: exit_code == Some(0),
                    detail: match exit_code {
                        Some(code) if code < 0 => {
                            format!("ended by signal {}", code.unsigned_abs())
                        }
                        Some(code) => format!("exit status {code}"),
                        None => "how it ended is not known".to_owned(),
                    },
                };
                self.finish(id, outcome);
            }
            // It was never started, or could not be kept.
            Stage::Failed { reason, detail, .. } => {
                self.not_started(id, &reason, &detail.unwrap_or_default());
            }
            // Its START was lost with a connection: the scheduler remembers all ends since, and has none of it.
            Stage::Vanished => {
                warn!(
                    event = "task_sent_again",
                    "task {id} never came to the scheduler: it is sent again"
                );
                task.begin_again();
                self.unsent.insert(id);
                self.submit(id);
            }
        }
    }

    /// A START was refused, or no node could start it: by the reason the scheduler has the task already, the task waits
    /// here, or it has failed. Funky's clients expect a task to wait for as long as it takes.
    fn not_started(&mut self, id: u32, reason: &str, detail: &str) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        // Its files were there for this START.
        task.pushes.clear();
        let why = format!("{reason}: {detail}");
        match StartFailureReason::from(reason) {
            reason if is_there(&reason) => task.look_again(),
            reason if is_temporary(&reason) => self.hold_back(id, why),
            _ => self.fail(id, why),
        }
    }

    /// What became of a task's files on their way to the scheduler.
    pub(super) fn program(&mut self, news: News) {
        match news {
            News::Lacks { id, file } => self.push(id, file),
            News::Shipped { id, is_sent } => {
                let pushed = self.pushing.remove(&id);
                // A store that is too busy to say what it has is not one that lost the program.
                if let Some(task) = self.tasks.get_mut(&id).filter(|_| is_sent) {
                    *task.pushes.entry(pushed.unwrap_or_default()).or_default() += 1;
                    task.refusals = 0;
                }
                self.submit(id);
            }
            News::Refused(id, why) => self.program_refused(id, &why),
            News::Unreachable(id, why) => {
                let why = format!("its files cannot be sent to the scheduler: {why}");
                self.hold_back(id, why);
            }
        }
    }

    /// Has a file of a task pushed. Meanwhile it is not with the scheduler. One that is gone again each time is not
    /// pushed for ever.
    fn push(&mut self, id: u32, file: usize) {
        let Some(task) = self.tasks.get_mut(&id).filter(|it| !it.is_over()) else {
            return;
        };
        let called = task.record.called(file);
        if task.pushes.get(&file).is_some_and(|it| *it >= MAX_PUSHES) {
            let why = format!("{called} was pushed to the scheduler");
            let why = format!("{why} {MAX_PUSHES} times, and was not there any more each time");
            return self.fail(id, why);
        }
        task.begin_again();
        task.held_back = format!("{called} is being sent to the scheduler");
        self.unsent.insert(id);
        if let Some(binary) = task.record.files.get(file)
            && let Entry::Vacant(pushing) = self.pushing.entry(id)
        {
            pushing.insert(file);
            // It is there for as long as this program runs.
            let _ = self.pushes.send(PushOrder::Push(Push {
                id,
                path: self.binaries.path(binary),
                sha256: binary.sha256.clone(),
            }));
        }
    }

    /// The scheduler's store did not take a file of a task: the task waits here and is tried again, but not for ever, for
    /// a file that does not fit never will.
    fn program_refused(&mut self, id: u32, why: &str) {
        let Some(task) = self.tasks.get_mut(&id).filter(|it| !it.is_over()) else {
            return;
        };
        task.refusals += 1;
        let called = task.record.any_file();
        if task.refusals >= MAX_REFUSALS {
            let tries = task.refusals;
            return self.fail(
                id,
                format!("the scheduler did not take {called}, {tries} times: {why}"),
            );
        }
        self.hold_back(id, format!("the scheduler does not take {called}: {why}"));
    }

    /// Puts a task back among those to be sent, at the next tick and for this reason.
    fn hold_back(&mut self, id: u32, why: String) {
        let Some(task) = self.tasks.get_mut(&id).filter(|it| !it.is_over()) else {
            return;
        };
        warn!(event = "task_not_accepted", "task {id} waits here: {why}");
        task.begin_again();
        task.held_back = why;
        self.pushing.remove(&id);
        self.unsent.insert(id);
        self.retry.insert(id);
    }

    /// A task has failed for this reason.
    pub(super) fn fail(&mut self, id: u32, detail: String) {
        let outcome = Outcome {
            succeeded: false,
            detail,
        };
        self.finish(id, outcome);
    }

    /// Writes `task N node M`, once for each time the task begins or goes on at a node.
    fn say_placed(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let Some((uuid, hostname)) = task.node().cloned() else {
            return;
        };
        // The same node again, and no pause since: it was told.
        if task.is_announced && task.announced_node.as_ref() == Some(&uuid) {
            return;
        }
        task.is_announced = true;
        task.announced_node = Some(uuid.clone());
        let Some((node, change)) = self.nodes.number(&uuid) else {
            return;
        };
        self.changes.extend(change);
        // A placement names the host before a listing does; the status stays as it was.
        if !hostname.is_empty() {
            let status = self.nodes.get(node).map_or("", |it| &*it.status).to_owned();
            self.nodes.note(&uuid, &hostname, &status);
        }
        self.say(format_args!("task {id} node {node}"));
    }

    /// Notes how a task ended, in memory and for the disk, and writes the line of the original's primary. Its files are
    /// released after the write. It waits for nothing any more.
    fn finish(&mut self, id: u32, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(&id).filter(|it| !it.is_over()) else {
            return;
        };
        let how = match outcome.succeeded {
            true => "terminated successfully",
            false => "failed",
        };
        info!(event = "task_ended", "task {id}: {}", outcome.detail);
        Arc::make_mut(&mut task.record).outcome = Some(outcome);
        self.bytes -= task.record.bytes();
        self.by_instance.remove(&task.record.instance);
        self.unsent.remove(&id);
        self.retry.remove(&id);
        self.noted.remove(&id);
        if let Some(pushing) = self.pushing.remove(&id)
            && let Some(file) = task.record.files.get(pushing)
        {
            let sha256 = file.sha256.clone();
            let _ = self.pushes.send(PushOrder::GiveUp { id, sha256 });
        }
        self.changes.push(Change::Task(Arc::clone(&task.record)));
        self.releases.extend(task.record.files.iter().cloned());
        self.ended.push_back(id);
        self.say(format_args!("Task with id {id} {how}"));
        self.forget_old();
    }

    /// Forgets the oldest ended tasks beyond [`MAX_ENDED`], here and on disk. While the disk takes no writes, the
    /// forgotten ones are left on it; a restart lists them again and forgets them then.
    pub(super) fn forget_old(&mut self) {
        while self.ended.len() > MAX_ENDED {
            let Some(id) = self.ended.pop_front() else {
                return;
            };
            self.tasks.remove(&id);
            if !self.is_unwritten {
                self.changes.push(Change::Forget(id));
            }
        }
    }
}
