//! Programs on their way to the scheduler, which ships them to nodes. They go over connections of their own: a program
//! may have a GiB, and STARTs, migrations and listings do not wait behind it.
//!
//! ```text
//! session ──Lacks──▶ coordinator ──Push──▶ here ──WRITE_IMAGE──▶ scheduler
//!                    coordinator ◀─Shipped─ here
//! session ◀──START── coordinator
//! ```

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use ciao_scheduler::ctl::client::{Client, ClientConfig, ImageError, PushFile};
use proto_frames::payload::Digest;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Length of the channel to the coordinator. A sender that finds it full waits.
const BACKLOG: usize = 256;

/// Most programs that are pushed at a time, each over a connection of its own: a small one does not wait behind a large
/// one, and the scheduler's disk is no faster for more.
const PUSHES_AT_A_TIME: usize = 4;

/// A program to be pushed, for a task.
#[derive(Debug)]
pub(crate) struct Push {
    /// Number of the task.
    pub(crate) id: u32,
    /// The file in the store of [`binaries`](crate::binaries).
    pub(crate) path: PathBuf,
    /// SHA-256 of its contents in hex, as it was computed when the task was accepted. It is not computed a second time.
    pub(crate) sha256: String,
}

/// What became of a task's program. Each has the number of the task.
#[derive(Debug)]
pub(crate) enum News {
    /// The scheduler does not have it, and the START was not sent: it is to be pushed.
    Lacks(u32),
    /// The scheduler has it: the START can be sent.
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
    tasks: HashMap<String, Vec<u32>>,
    /// The programs whose turn has not come, in the order in which they were asked for.
    programs: VecDeque<Push>,
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
    mut pushes: mpsc::UnboundedReceiver<Push>,
    news: mpsc::Sender<News>,
) {
    let (config, tenant) = (Arc::new(config), Arc::<str>::from(tenant));
    let mut waiting = Waiting::default();
    let mut under_way = JoinSet::new();
    let mut idle: Vec<Client> = Vec::new();
    loop {
        while under_way.len() < PUSHES_AT_A_TIME
            && let Some(push) = waiting.programs.pop_front()
        {
            let (config, tenant) = (Arc::clone(&config), Arc::clone(&tenant));
            under_way.spawn(ship(idle.pop(), config, tenant, push));
        }
        // What is left over has nothing to push.
        idle.clear();
        tokio::select! {
            push = pushes.recv() => match push {
                Some(push) => waiting.add(push),
                None => return,
            },
            Some(done) = under_way.join_next() => {
                // Only a panic ends one without an outcome, and with it what is told of it.
                let Ok((client, sha256, pushed)) = done else {
                    return;
                };
                idle.extend(client);
                for id in waiting.tasks.remove(&sha256).unwrap_or_default() {
                    if news.send(pushed.told(id)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

impl Waiting {
    /// Takes a push in. A program that waits or is under way already is not pushed a second time.
    fn add(&mut self, push: Push) {
        let tasks = self.tasks.entry(push.sha256.clone()).or_default();
        tasks.push(push.id);
        if tasks.len() == 1 {
            self.programs.push_back(push);
        }
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

/// Pushes a program over this connection, or over one that is made. The connection comes back if it can be used again,
/// with the program's digest.
async fn ship(
    connection: Option<Client>,
    config: Arc<ClientConfig>,
    tenant: Arc<str>,
    push: Push,
) -> (Option<Client>, String, Pushed) {
    let connected = match connection {
        Some(client) => Ok(client),
        None => Client::connect(&config).await,
    };
    let (client, pushed) = match connected {
        Ok(mut client) => match send(&mut client, &tenant, &push).await {
            lost @ Pushed::Unreachable(_) => (None, lost),
            pushed => (Some(client), pushed),
        },
        Err(why) => (None, Pushed::Unreachable(why.to_string())),
    };
    (client, push.sha256, pushed)
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
