//! Programs on their way to the scheduler, which ships them to nodes. They go over connections of their own: a program
//! may have a GiB, and STARTs, migrations and listings do not wait behind it.
//!
//! ```text
//! session ──Lacks──▶ coordinator ─PushOrder─▶ here ──WRITE_IMAGE──▶ scheduler
//!                    coordinator ◀─Shipped── here
//! session ◀──START── coordinator
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use ciao_scheduler::ctl::client::{Client, ClientConfig, ImageError, PushFile};
use proto_frames::payload::Digest;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tracing::error;

/// Length of the channel to the coordinator. A sender that finds it full waits.
const BACKLOG: usize = 256;

/// Most programs that are pushed at a time, each over a connection of its own: a small one does not wait behind a large
/// one, and the scheduler's disk is no faster for more.
const PUSHES_AT_A_TIME: usize = 4;

/// What the coordinator wants of a program.
#[derive(Debug)]
pub(crate) enum PushOrder {
    /// Push it.
    Push(Push),
    /// This task has ended: its program is not pushed, unless other tasks wait for it.
    GiveUp {
        /// Number of the task.
        id: u32,
        /// As [`Push::sha256`].
        sha256: String,
    },
}

/// A program, or a further file, to be pushed for a task.
#[derive(Debug)]
pub(crate) struct Push {
    /// Number of the task.
    pub(crate) id: u32,
    /// The file in the store of [`binaries`](crate::binaries).
    pub(crate) path: PathBuf,
    /// SHA-256 of its contents in hex, as it was computed when the task was accepted. It is not computed a second time.
    pub(crate) sha256: String,
}

/// What became of a task's files. Each has the number of the task.
#[derive(Debug)]
pub(crate) enum News {
    /// The scheduler does not have one of its files, and the START was not sent: that is to be pushed.
    Lacks {
        /// The task.
        id: u32,
        /// The file's place in the task's record; 0 is the program.
        file: usize,
    },
    /// The scheduler has the file that was being pushed: the START can be sent, unless it lacks another one.
    Shipped {
        /// The task.
        id: u32,
        /// Whether any of it was sent for that; else it was there.
        is_sent: bool,
    },
    /// The scheduler's store did not take it, for this reason, which may pass. The START was not sent.
    Refused(u32, String),
    /// The connection for programs was lost, or could not be made, and why.
    Unreachable(u32, String),
}

/// What has to be pushed and is not yet.
#[derive(Debug, Default)]
struct Waiting {
    /// Tasks that wait for a program, by its digest: also for one that is being pushed. It is pushed once for all of
    /// them.
    tasks: HashMap<String, BTreeSet<u32>>,
    /// The programs whose turn has not come, in the order in which they were asked for.
    programs: VecDeque<Push>,
    /// Pushes that are under way, by the tokio tasks that they are, with the digests of the programs. One that is given
    /// up is not here any more.
    under_way: HashMap<Id, (String, AbortHandle)>,
}

/// What became of a push.
#[derive(Debug)]
enum Pushed {
    /// The scheduler has the program.
    Shipped {
        /// As [`News::Shipped`] has it.
        is_sent: bool,
    },
    /// As [`News::Refused`].
    Refused(String),
    /// As [`News::Unreachable`].
    Unreachable(String),
}

/// A channel to the coordinator.
pub(crate) fn channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(BACKLOG)
}

/// Pushes programs, [`PUSHES_AT_A_TIME`], until the coordinator is gone. A connection is made when there is something
/// to push, and closed when there is no more: an idle one would be a peer that the scheduler keeps for nothing.
pub(crate) async fn run(
    config: ClientConfig,
    tenant: String,
    orders: mpsc::UnboundedReceiver<PushOrder>,
    news: mpsc::Sender<News>,
) {
    let (config, tenant) = (Arc::new(config), Arc::<str>::from(tenant));
    let ship = |connection, push| {
        let (config, tenant) = (Arc::clone(&config), Arc::clone(&tenant));
        ship(connection, config, tenant, push)
    };
    push_with(ship, orders, news).await;
}

/// The same, each program by `ship`, which is given a connection `C` if an idle one is left, and gives it back if it can
/// be used again.
async fn push_with<C, F>(
    ship: impl Fn(Option<C>, Push) -> F,
    mut orders: mpsc::UnboundedReceiver<PushOrder>,
    news: mpsc::Sender<News>,
) where
    C: Send + 'static,
    F: Future<Output = (Option<C>, Pushed)> + Send + 'static,
{
    let mut waiting = Waiting::default();
    let mut pushes = JoinSet::new();
    let mut idle: Vec<C> = Vec::new();
    loop {
        while pushes.len() < PUSHES_AT_A_TIME
            && let Some(push) = waiting.programs.pop_front()
        {
            let sha256 = push.sha256.clone();
            let handle = pushes.spawn(ship(idle.pop(), push));
            waiting.under_way.insert(handle.id(), (sha256, handle));
        }
        // What is left over has nothing to push.
        idle.clear();
        tokio::select! {
            order = orders.recv() => match order {
                Some(PushOrder::Push(push)) => waiting.add(push),
                Some(PushOrder::GiveUp { id, sha256 }) => waiting.give_up(id, &sha256),
                None => return,
            },
            Some(done) = pushes.join_next_with_id() => {
                let (push, pushed) = match done {
                    Ok((push, (connection, pushed))) => {
                        idle.extend(connection);
                        (push, pushed)
                    }
                    Err(why) => (why.id(), broken_off(&why)),
                };
                for id in waiting.ended(push) {
                    if news.send(pushed.told(id)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// What became of a push that has ended without an outcome. Only a panic does that, and the program is pushed again for
/// some time, as one that the store did not take; one that was given up has nobody to tell.
fn broken_off(why: &JoinError) -> Pushed {
    if why.is_panic() {
        error!(
            event = "push_failed",
            "a defect of this program has ended a push: {why}"
        );
    }
    Pushed::Refused("a defect of ciao-funky has ended the push".to_owned())
}

impl Waiting {
    /// Takes a push in. A program that waits or is under way already is not pushed a second time.
    fn add(&mut self, push: Push) {
        let tasks = self.tasks.entry(push.sha256.clone()).or_default();
        let is_new = tasks.is_empty();
        tasks.insert(push.id);
        if is_new {
            self.programs.push_back(push);
        }
    }

    /// A task needs its program no more. With the last one the program is not pushed, or its push broken off.
    fn give_up(&mut self, id: u32, sha256: &str) {
        let Some(tasks) = self.tasks.get_mut(sha256) else {
            return;
        };
        tasks.remove(&id);
        if !tasks.is_empty() {
            return;
        }
        self.tasks.remove(sha256);
        self.programs.retain(|it| it.sha256 != sha256);
        // What comes of it is not waited for: the program may be asked for again before it has ended.
        self.under_way.retain(|_, (pushed, handle)| {
            let goes_on = pushed != sha256;
            if !goes_on {
                handle.abort();
            }
            goes_on
        });
    }

    /// A push has ended: the tasks that waited for it.
    fn ended(&mut self, push: Id) -> BTreeSet<u32> {
        let pushed = self.under_way.remove(&push);
        let tasks = pushed.and_then(|(sha256, _)| self.tasks.remove(&sha256));
        tasks.unwrap_or_default()
    }
}

impl Pushed {
    /// What the coordinator is told of it for this task.
    fn told(&self, id: u32) -> News {
        match self {
            &Self::Shipped { is_sent } => News::Shipped { id, is_sent },
            Self::Refused(why) => News::Refused(id, why.clone()),
            Self::Unreachable(why) => News::Unreachable(id, why.clone()),
        }
    }
}

/// Pushes a program over this connection, or over one that is made. The connection comes back if it can be used again.
async fn ship(
    connection: Option<Client>,
    config: Arc<ClientConfig>,
    tenant: Arc<str>,
    push: Push,
) -> (Option<Client>, Pushed) {
    let connected = match connection {
        Some(client) => Ok(client),
        None => Client::connect(&config).await,
    };
    match connected {
        Ok(mut client) => match send(&mut client, &tenant, &push).await {
            lost @ Pushed::Unreachable(_) => (None, lost),
            pushed => (Some(client), pushed),
        },
        Err(why) => (None, Pushed::Unreachable(why.to_string())),
    }
}

/// Pushes a program. The transfer is skipped if the store has a file with its digest, as where it came there meanwhile.
async fn send(client: &mut Client, tenant: &str, push: &Push) -> Pushed {
    let pushed = async {
        let file = PushFile::known(&push.path, Digest::from_hex(&push.sha256))?;
        let done = client.push_image(&file, tenant, |_| ()).await?;
        Ok(done.there < file.bytes)
    };
    match pushed.await {
        Ok(is_sent) => Pushed::Shipped { is_sent },
        Err(why @ ImageError::Client(_)) => Pushed::Unreachable(why.to_string()),
        Err(why) => Pushed::Refused(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

    use super::*;

    /// A push of a program whose digest is this.
    fn push(id: u32, sha256: &str) -> PushOrder {
        PushOrder::Push(Push {
            id,
            path: PathBuf::new(),
            sha256: sha256.to_owned(),
        })
    }

    #[tokio::test]
    async fn a_push_that_panics_fails_its_own_tasks_and_pushing_goes_on() {
        let (asks, orders) = mpsc::unbounded_channel();
        let (told, mut news) = channel();
        let ship = |_: Option<()>, push: Push| async move {
            assert_ne!(push.sha256, "broken", "as a defect would end it");
            (None, Pushed::Shipped { is_sent: true })
        };
        tokio::spawn(push_with(ship, orders, told));
        for id in [1, 2] {
            asks.send(push(id, "broken")).unwrap();
        }
        for id in [1, 2] {
            let heard = news.recv().await;
            assert!(
                matches!(heard, Some(News::Refused(it, _)) if it == id),
                "{heard:?}"
            );
        }
        // More often than there are pushes at a time.
        for id in 3..10 {
            asks.send(push(id, "broken")).unwrap();
            assert!(matches!(news.recv().await, Some(News::Refused(..))));
        }
        asks.send(push(10, "whole")).unwrap();
        let heard = news.recv().await;
        assert!(
            matches!(heard, Some(News::Shipped { id: 10, .. })),
            "{heard:?}"
        );
    }

    #[tokio::test]
    async fn a_push_is_given_up_with_the_last_task_that_waits_for_it() {
        let (asks, orders) = mpsc::unbounded_channel();
        let (told, mut news) = channel();
        let (begun, mut begins) = mpsc::unbounded_channel();
        // Of these, what begins with "long" never ends by itself.
        let ship = move |_: Option<()>, push: Push| {
            let begun = begun.clone();
            async move {
                begun.send(push.sha256.clone()).unwrap();
                if push.sha256.starts_with("long") {
                    std::future::pending::<()>().await;
                }
                (None, Pushed::Shipped { is_sent: true })
            }
        };
        tokio::spawn(push_with(ship, orders, told));
        let give_up = |id, sha256: &str| PushOrder::GiveUp {
            id,
            sha256: sha256.to_owned(),
        };
        for id in 1..=4 {
            asks.send(push(id, &format!("long {id}"))).unwrap();
            assert!(begins.recv().await.is_some());
        }
        asks.send(push(5, "long 4")).unwrap();
        asks.send(push(6, "unwanted")).unwrap();
        asks.send(push(7, "wanted")).unwrap();
        // One that waits for its turn, one that somebody else waits for, and one that is under way.
        asks.send(give_up(6, "unwanted")).unwrap();
        asks.send(give_up(4, "long 4")).unwrap();
        asks.send(give_up(1, "long 1")).unwrap();
        // Its place is free.
        assert_eq!(begins.recv().await.unwrap(), "wanted");
        let heard = news.recv().await;
        assert!(
            matches!(heard, Some(News::Shipped { id: 7, .. })),
            "{heard:?}"
        );
        // It can be asked for again.
        asks.send(push(8, "long 1")).unwrap();
        assert_eq!(begins.recv().await.unwrap(), "long 1");
        asks.send(give_up(5, "long 4")).unwrap();
        asks.send(push(9, "short")).unwrap();
        assert_eq!(begins.recv().await.unwrap(), "short");
    }
}
