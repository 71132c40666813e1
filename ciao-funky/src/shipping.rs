//! Programs on their way to the scheduler, which ships them to nodes. They go over a connection of their own: a program
//! may have a GiB, and STARTs, migrations and listings do not wait behind it.
//!
//! ```text
//! session ──Lacks──▶ coordinator ──Push──▶ here ──WRITE_IMAGE──▶ scheduler
//!                    coordinator ◀─Shipped─ here
//! session ◀──START── coordinator
//! ```

use std::path::PathBuf;

use ciao_scheduler::ctl::client::{Client, ClientConfig, ConnectError, ImageError, PushFile};
use proto_frames::payload::Digest;
use tokio::sync::mpsc;

/// Length of the channel to the coordinator. A sender that finds it full waits.
const BACKLOG: usize = 256;

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
    /// It was pushed: the START can be sent.
    Shipped(u32),
    /// The scheduler's store did not take it, for this reason, which may pass. The START was not sent.
    Refused(u32, String),
    /// The connection for programs was lost, or could not be made, and why.
    Unreachable(u32, String),
}

/// A channel to the coordinator.
pub(crate) fn channel() -> (mpsc::Sender<News>, mpsc::Receiver<News>) {
    mpsc::channel(BACKLOG)
}

/// Pushes one program after the other, until the coordinator is gone. The connection is made when there is something to
/// push, and closed when there is no more: an idle one would be a peer that the scheduler keeps for nothing.
pub(crate) async fn run(
    config: ClientConfig,
    tenant: String,
    mut pushes: mpsc::UnboundedReceiver<Push>,
    news: mpsc::Sender<News>,
) {
    let mut connection = None;
    while let Some(push) = pushes.recv().await {
        let what = match connected(&mut connection, &config).await {
            Ok(client) => send(client, &tenant, &push).await,
            Err(why) => News::Unreachable(push.id, why.to_string()),
        };
        if matches!(what, News::Unreachable(..)) || pushes.is_empty() {
            connection = None;
        }
        if news.send(what).await.is_err() {
            return;
        }
    }
}

/// The connection, which is made if there is none.
async fn connected<'a>(
    connection: &'a mut Option<Client>,
    config: &ClientConfig,
) -> Result<&'a mut Client, ConnectError> {
    match connection {
        Some(client) => Ok(client),
        none => Ok(none.insert(Client::connect(config).await?)),
    }
}

/// Pushes a program. The transfer is skipped if the store has a file with its digest, as where two tasks have the same.
async fn send(client: &mut Client, tenant: &str, push: &Push) -> News {
    let pushed = async {
        let file = PushFile::known(&push.path, Digest::from_hex(&push.sha256))?;
        client.push_image(&file, tenant, |_| ()).await
    };
    match pushed.await {
        Ok(_) => News::Shipped(push.id),
        Err(why @ ImageError::Client(_)) => News::Unreachable(push.id, why.to_string()),
        Err(why) => News::Refused(push.id, why.to_string()),
    }
}
