//! Funky's socket: accepts connections, reads one command from each, hands it to the coordinator and writes the reply.
//!
//! A command ends at a line end, or where the client closes its end or its half of the connection. The reply is one
//! text and a line end, `task 7 queued` or `error: …`. A client that closes without reading it is served as well.
//!
//! One task reads all connections, so that commands get their numbers in the order in which they were written: what one
//! program wrote before the next one connected comes before that one's.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::command::{Command, MAX_COMMAND};
use crate::coordinator::{Accepted, Order, Source};
use crate::socket::Socket;

/// Connections at a time, until each has its reply; further ones wait in the kernel's queue. It is below 1024, the
/// usual limit of files that a program may have open.
const MAX_CONNECTIONS: usize = 512;

/// Longest time from the connection until its command is there. A command is a few hundred bytes from the same machine;
/// who sends nothing is told so and closed.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// Longest time until the client has taken the reply; then the connection is closed.
const REPLY_TIME: Duration = Duration::from_secs(10);

/// Lists of tasks in memory at a time: a long one has hundreds of MiB, until its reader has taken it.
const MAX_LISTS: usize = 2;

/// Longest time that a `Ps:` waits for those before it: a reader that does not read is gone by then.
const LIST_TIME: Duration = Duration::from_secs(20);

/// The reply where the coordinator is gone.
const ENDING: &str = "error: this program is about to end";

/// Pause after a failed accept, as when the process has too many open files. Without it the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The users who may give commands. A command runs programs, so that the list is short by default.
#[derive(Debug, Clone)]
pub(crate) struct Allowed {
    /// User ids; the order has no meaning.
    uids: Vec<u32>,
}

impl Allowed {
    /// The effective user of this process, root, and those of `-allow-uid`.
    pub(crate) fn these(others: &[u32]) -> Self {
        let own = [rustix::process::geteuid().as_raw(), 0];
        Self {
            uids: own.iter().chain(others).copied().collect(),
        }
    }

    /// Whether it has this user.
    pub(crate) fn has(&self, uid: u32) -> bool {
        self.uids.contains(&uid)
    }
}

/// A connection that holds one of the [`MAX_CONNECTIONS`] places; dropping it frees the place.
struct Client {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

/// A connection and its command, or what is wrong with it, as text for the client.
type Received = (Client, Result<Command, String>);

/// Accepts and reads connections until the coordinator's channel is closed. A peer that may not give commands gets an
/// `error:` line and is not read from. When this returns, the socket's file is removed with `socket`.
pub(crate) async fn serve(socket: Socket, allowed: Allowed, coordinator: mpsc::Sender<Order>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let lists = Arc::new(Semaphore::new(MAX_LISTS));
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            // Commands that have come, before connections that have.
            biased;
            Some((client, command)) = open.next(), if !open.is_empty() => {
                if hand_over(client, command, &coordinator, &lists).await.is_err() {
                    return;
                }
            }
            accepted = accept(&socket, &places) => match accepted {
                Ok(client) => match check_peer(&client.stream, &allowed) {
                    Ok(()) => open.push(receive(client)),
                    Err(why) => {
                        warn!(event = "socket_client_refused", "a connection at the socket is refused: {why}");
                        tokio::spawn(reply(client, format!("error: {why}")));
                    }
                },
                Err(error) => {
                    warn!(event = "accept_failed", "cannot accept a connection at the socket: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            () = coordinator.closed() => return,
        }
    }
}

/// The next connection, once one of the places is free. Dropping this future loses no connection.
async fn accept(socket: &Socket, places: &Arc<Semaphore>) -> io::Result<Client> {
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(io::Error::other)?;
    let (stream, _) = socket.listener.accept().await?;
    Ok(Client {
        stream,
        _place: place,
    })
}

/// Whether the user at the other end may give commands.
///
/// # Errors
/// A text for the client and the log, with the number of its user.
fn check_peer(stream: &UnixStream, allowed: &Allowed) -> Result<(), String> {
    // SO_PEERCRED: what the kernel noted when the connection was made.
    let peer = stream.peer_cred().map_err(|error| error.to_string())?.uid();
    if allowed.has(peer) {
        return Ok(());
    }
    Err(format!(
        "user {peer} may not give commands here (-allow-uid)"
    ))
}

/// Reads and parses a connection's command, within [`COMMAND_TIME`] and [`MAX_COMMAND`]. The connection comes back in
/// every case, for its client is told what is wrong.
async fn receive(mut client: Client) -> Received {
    let mut bytes = Vec::new();
    let read = timeout(COMMAND_TIME, read_command(&mut client.stream, &mut bytes)).await;
    let command = match read {
        Err(_) => Err(format!(
            "no whole command within {} s",
            COMMAND_TIME.as_secs()
        )),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(())) if bytes.len() > MAX_COMMAND => {
            Err(format!("the command is longer than {MAX_COMMAND} bytes"))
        }
        Ok(Ok(())) => Command::parse(&bytes).map_err(|error| error.to_string()),
    };
    (client, command)
}

/// Reads to the first line end, the end of the connection, or one byte more than a command may have, which is how the
/// caller sees that it is too long. What follows the line end stays unread or unused.
async fn read_command(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let room = MAX_COMMAND + 1 - bytes.len();
        let before = bytes.len();
        match (&mut *stream).take(room as u64).read_buf(bytes).await {
            Ok(0) => return Ok(()),
            Ok(_) if bytes.len() > MAX_COMMAND || bytes[before..].contains(&b'\n') => return Ok(()),
            Ok(_) => {}
            // A client that closes with something unread resets the connection: what was written counts.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Gives a command to the coordinator and spawns the task that writes the answer. A command that cannot be read is
/// answered here.
///
/// Waits while the coordinator's channel is full, and then no connection is read either.
///
/// # Errors
/// The coordinator is gone; the caller ends.
async fn hand_over(
    client: Client,
    command: Result<Command, String>,
    coordinator: &mpsc::Sender<Order>,
    lists: &Arc<Semaphore>,
) -> Result<(), mpsc::error::SendError<Order>> {
    let (answer, answered) = oneshot::channel();
    let order = match command {
        Err(why) => {
            debug!("a command at the socket is refused: {why}");
            tokio::spawn(reply(client, format!("error: {why}")));
            return Ok(());
        }
        Ok(Command::New(new)) => Order::New {
            source: Source::Paths(new.files),
            priority: new.priority,
            extras: new.extras,
            answer,
        },
        Ok(Command::Migrate { task, node }) => Order::Migrate { task, node, answer },
        Ok(Command::List { json }) => {
            let (lists, coordinator) = (Arc::clone(lists), coordinator.clone());
            tokio::spawn(reply_list(client, json, lists, coordinator));
            return Ok(());
        }
    };
    coordinator.send(order).await?;
    tokio::spawn(async move {
        let text = match answered.await {
            Ok(Ok(accepted)) => accepted.into_text(),
            Ok(Err(why)) => format!("error: {why}"),
            Err(_) => ENDING.to_owned(),
        };
        reply(client, text).await;
    });
    Ok(())
}

/// Answers a `Ps:` once fewer than [`MAX_LISTS`] lists are in memory. Commands that come later do not wait for that.
async fn reply_list(
    client: Client,
    json: bool,
    lists: Arc<Semaphore>,
    coordinator: mpsc::Sender<Order>,
) {
    let Ok(Ok(_place)) = timeout(LIST_TIME, lists.acquire()).await else {
        let why = format!("error: {MAX_LISTS} lists are being read already: try again");
        return reply(client, why).await;
    };
    let (answer, answered) = oneshot::channel();
    let text = match coordinator.send(Order::List { json, answer }).await {
        Ok(()) => answered.await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    let text = text.map_or_else(|| ENDING.to_owned(), Accepted::into_text);
    reply(client, text).await;
}

/// Writes the reply and closes the connection. A client that has gone without it, or does not read it in time, is no
/// error: the command counts.
async fn reply(mut client: Client, mut line: String) {
    let stream = &mut client.stream;
    line.push('\n');
    let written = timeout(REPLY_TIME, async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    });
    if let Ok(Err(error)) = written.await {
        debug!("a reply was not read: {error}");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

    use super::*;

    /// Longer than what the kernel keeps for a reader.
    const LONG: usize = 16 * 1024 * 1024;

    #[tokio::test]
    async fn lists_that_are_not_read_are_few_and_keep_no_command_waiting() {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let lists = Arc::new(Semaphore::new(MAX_LISTS));
        let (coordinator, mut orders) = mpsc::channel(16);
        let give = async |command: Command| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let client = Client {
                stream: theirs,
                _place: Arc::clone(&places).acquire_owned().await.unwrap(),
            };
            hand_over(client, Ok(command), &coordinator, &lists)
                .await
                .unwrap();
            ours
        };
        let mut readers = Vec::new();
        for _ in 0..=MAX_LISTS {
            readers.push(give(Command::List { json: true }).await);
        }
        for _ in 0..MAX_LISTS {
            let Some(Order::List { answer, .. }) = orders.recv().await else {
                panic!("no list is asked for");
            };
            answer.send(Ok(Accepted::Text("x".repeat(LONG)))).unwrap();
        }
        let _other = give(Command::Migrate { task: 1, node: 1 }).await;
        assert!(matches!(orders.recv().await, Some(Order::Migrate { .. })));
        assert!(orders.try_recv().is_err());
        // Once one is read, it is the next one's turn.
        let mut text = Vec::new();
        readers[0].read_to_end(&mut text).await.unwrap();
        assert_eq!(text.len(), LONG + 1);
        assert!(matches!(orders.recv().await, Some(Order::List { .. })));
    }
}
