//! The coordinator's part for clients: new tasks, migrations, lists. Each ends in an answer, which the client reads as
//! it is, or as an error.
//!
//! A new task goes through three functions here: `begin` gives it a number and has its files copied, `take_copy` makes
//! its record when they are there, and [`Coordinator::accept`] follows once that is on disk.

use std::path::PathBuf;
use std::sync::Arc;

use ciao_adapter::sent::Sent;
use ciao_scheduler::printable::Printable;
use proto_frames::payload::Migrate;
use tokio::sync::{Semaphore, oneshot};

use crate::binaries::Binaries;
use crate::command::{Extras, Priority};
use crate::coordinator::{Accepted, Answer, Coordinator, MAX_TASK_BYTES, MAX_TASKS, Order, Source};
use crate::list::{self, Above};
use crate::requests::Ask;
use crate::store::Change;
use crate::task::{Binary, Outcome, TaskRecord, arguments, bytes_of};

/// Tasks whose files are copied at a time; others wait. A disk is no faster for more.
const COPIES: usize = 4;

/// One permit for each of [`COPIES`].
static COPYING: Semaphore = Semaphore::const_new(COPIES);

/// A new task whose files are in the store, or could not be copied. It has its number already.
#[derive(Debug)]
pub(crate) struct Copied {
    id: u32,
    /// The paths as they were given, for the record of a task without files; empty for an upload.
    names: Vec<String>,
    /// What its texts were counted as when it got its number.
    bytes: usize,
    /// The copies, each counted as in use once; or why there is none of them.
    files: Result<Vec<Binary>, String>,
    priority: Priority,
    extras: Extras,
    answer: Answer,
}

impl Coordinator {
    /// Carries out one order. Lists are answered here; a migration is answered by a small task of its own, once the
    /// scheduler has answered; a new task after [`Coordinator::commit`].
    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::New {
                source,
                priority,
                extras,
                answer,
            } => self.begin(source, priority, extras, answer),
            // What can be refused is refused here. The rest is the scheduler's to decide, and may take as long as a
            // connection lasts: the answer is left to a task of its own.
            Order::Migrate { task, node, answer } => match self.migration(task, node) {
                Ok((migrate, session)) => {
                    let (reply, replied) = oneshot::channel();
                    let asked = session.send(Ask::Migrate {
                        migrate,
                        answer: reply,
                    });
                    let asked = asked.map_err(drop);
                    tokio::spawn(async move {
                        let done = match (asked, replied.await) {
                            (Ok(()), Ok(done)) => done,
                            _ => Err("the scheduler is not reachable".to_owned()),
                        };
                        let text = format!("task {task} moves to node {node}");
                        let _ = answer.send(done.map(|()| Accepted::Text(text)));
                    });
                }
                Err(why) => drop(answer.send(Err(why))),
            },
            Order::List { json, answer } => {
                let above = Above {
                    cut_off: self.session.is_none().then_some(&*self.down),
                    notice: self.preemption.notice(),
                };
                let text = if json {
                    list::json(self.tasks.values(), &self.nodes, &above)
                } else {
                    list::text(self.tasks.values(), &self.nodes, &above)
                };
                let _ = answer.send(Ok(Accepted::Text(text)));
            }
        }
    }

    /// Gives a task its number, and has its files copied unless they are in the store.
    ///
    /// The number is given at once and not when the copy is done: clients expect numbers in the order of their
    /// commands. A refusal costs no number.
    fn begin(&mut self, source: Source, priority: Priority, extras: Extras, answer: Answer) {
        let bytes = source.bytes() + bytes_of(&extras.args, &extras.frequencies);
        // A line of arguments that cannot be split, too many or too long tasks, or no number left (after 4 294 967 294
        // tasks).
        let refused = match arguments(&extras.args, &self.settings.shape) {
            Err(error) => Some(error.to_string()),
            Ok(_) if self.living() + self.copying + self.accepting.len() >= MAX_TASKS => {
                Some(format!("there are {MAX_TASKS} tasks already"))
            }
            Ok(_) if self.bytes + bytes > MAX_TASK_BYTES => Some(format!(
                "the tasks that have not ended have {} bytes of arguments and file names, and may have {MAX_TASK_BYTES}: \
                 try again when some have ended",
                self.bytes
            )),
            Ok(_) if self.next_task == u32::MAX => Some("there are no numbers left".to_owned()),
            Ok(_) => None,
        };
        if let Some(why) = refused {
            // An upload's files were counted as in use for this task.
            if let Source::Stored(files) = source {
                files.iter().for_each(|it| self.binaries.release(it));
            }
            let _ = answer.send(Err(why));
            return;
        }
        let id = self.next_task;
        self.next_task += 1;
        self.bytes += bytes;
        match source {
            // An upload's files are there already.
            Source::Stored(files) => self.take_copy(Copied {
                id,
                names: Vec::new(),
                bytes,
                files: Ok(files),
                priority,
                extras,
                answer,
            }),
            Source::Paths(paths) => {
                self.copying += 1;
                let (binaries, copies) = (self.binaries.clone(), self.copies.clone());
                tokio::spawn(async move {
                    let names = paths.iter().map(|it| it.display().to_string()).collect();
                    let copied = Copied {
                        id,
                        names,
                        bytes,
                        files: copy(binaries, paths).await,
                        priority,
                        extras,
                        answer,
                    };
                    // Without a coordinator there is no task.
                    let _ = copies.send(copied).await;
                });
            }
        }
    }

    /// Takes the result of a copy that [`Coordinator::begin`] has asked for; each comes back once.
    pub(super) fn take_copied(&mut self, copied: Copied) {
        self.copying = self.copying.saturating_sub(1);
        self.take_copy(copied);
    }

    /// Makes the record of a task whose files are there, or are not.
    ///
    /// With files it waits in `accepting` for the next write. Without, it is a task that has failed, which is kept and
    /// listed as any other: its number has been given. Its client is told at once, for there is nothing to lose.
    fn take_copy(&mut self, copied: Copied) {
        let id = copied.id;
        // Its record is counted in their place.
        self.bytes -= copied.bytes;
        let (files, outcome) = match copied.files {
            Ok(files) => (files, None),
            Err(detail) => {
                // The record names the paths that were asked for, with no digest: no copy belongs to it.
                let nothing = |name| Binary {
                    name,
                    sha256: String::new(),
                    bytes: 0,
                };
                let files = copied.names.into_iter().map(nothing).collect();
                let outcome = Outcome {
                    succeeded: false,
                    detail,
                };
                (files, Some(outcome))
            }
        };
        let record = TaskRecord {
            id,
            instance: self.family.new_instance().to_string(),
            priority: copied.priority,
            files,
            frequencies: copied.extras.frequencies,
            args: copied.extras.args,
            outcome,
            sent_ms: None,
        };
        match &record.outcome {
            None => {
                self.bytes += record.bytes();
                self.accepting.push((record, copied.answer));
            }
            Some(outcome) => {
                // As the original, which finds out when it is the task's turn: the task had a number, and failed.
                let why = format!("task {id} failed: {}", Printable::new(&outcome.detail));
                self.say(format_args!("Task with id {id} failed"));
                if !self.is_unwritten {
                    self.changes.push(Change::Task(Arc::new(record.clone())));
                }
                self.insert(record, Sent::No);
                self.forget_old();
                let _ = copied.answer.send(Err(why));
            }
        }
    }

    /// Checks whether a task can be asked to move; gives what to send, and the channel to send it by.
    ///
    /// # Errors
    /// A text for the client: no such task or node, it has ended, it is not with the scheduler, or it is on that node
    /// already. All else is the scheduler's to refuse.
    fn migration(
        &self,
        id: u32,
        node: u32,
    ) -> Result<(Migrate, &tokio::sync::mpsc::UnboundedSender<Ask>), String> {
        let task = self
            .tasks
            .get(&id)
            .ok_or(format!("there is no task {id}"))?;
        let target = self
            .nodes
            .get(node)
            .ok_or(format!("there is no node {node}"))?;
        // From here on: what the coordinator knows better than the scheduler.
        if task.is_over() {
            return Err(format!("task {id} has ended: {}", task.word()));
        }
        let Some(session) = &self.session else {
            return Err(format!("the scheduler is not reachable: {}", self.down));
        };
        if !task.is_sent() {
            return Err(format!(
                "task {id} is not with the scheduler: {}",
                task.held_back
            ));
        }
        if task.node().is_some_and(|(uuid, _)| *uuid == target.uuid) {
            return Err(format!("task {id} is on node {node} already"));
        }
        let migrate = Migrate {
            instance_uuid: task.record.instance.clone(),
            target_node_uuid: target.uuid.clone(),
            ..Migrate::default()
        };
        Ok((migrate, session))
    }
}

impl Source {
    /// Bytes of the names of its files.
    fn bytes(&self) -> usize {
        match self {
            Self::Paths(paths) => paths.iter().map(|it| it.as_os_str().len()).sum(),
            Self::Stored(files) => files.iter().map(|it| it.name.len()).sum(),
        }
    }
}

/// Copies all of these into the store, or none: after an error the copies that were made are released. The error names
/// the file.
async fn copy(binaries: Binaries, paths: Vec<PathBuf>) -> Result<Vec<Binary>, String> {
    let _permit = COPYING.acquire().await;
    let copying = tokio::task::spawn_blocking(move || {
        let mut files = Vec::new();
        for path in paths {
            match binaries.copy(&path) {
                Ok(file) => files.push(file),
                Err(error) => {
                    files.iter().for_each(|it| binaries.release(it));
                    return Err(error.to_string());
                }
            }
        }
        Ok(files)
    });
    copying.await.unwrap_or_else(|error| Err(error.to_string()))
}
