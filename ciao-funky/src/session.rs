//! The connection with the scheduler: one task that connects, listens, asks, and connects again after a loss.
//!
//! It knows no tasks. It reports to [`coordinator`](crate::coordinator) what happened ([`Heard`]) and sends what the
//! coordinator wants ([`Ask`]). Two sources say how instances are: events, which come at once, and a listing every few
//! seconds (a [`Look`]), which shows what events did not: those of the time without a connection, and those that the
//! scheduler dropped.
//!
//! ```text
//! connect ─▶ Up(asks) ─▶ Event, Event, Look, Event, … ─▶ connection lost ─▶ Down(why) ─▶ pause ─▶ connect …
//! ```

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::client::{
    Client, ClientConfig, ClientError, ImageError, LifecycleOrder, PushFile,
};
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::{
    Digest, ImageFailure, InstanceView, Migrate, NodeView, QueryKind, Topic,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

/// Pause after a lost connection or the first failed try to connect; each further pause is half as long again as the
/// one before, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Upper bound of the pause: a scheduler that is back is found within this time.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two listings of a small cluster.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Added to [`LOOK_EVERY`] for each entry of the previous listing: with 1 000 entries the pause is 15 s. A listing
/// costs the scheduler some µs an entry, which this keeps to a very small share of its time.
const LOOK_LESS: Duration = Duration::from_millis(10);

/// A START in the forms in which it may be sent. The session chooses, for it alone knows whether the scheduler ships
/// programs.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The START whose command names the files under this program's state directory. Launchers need that directory at
    /// the same path, which they have on the same machine or on a shared file system.
    pub(crate) start: Bytes,
    /// The START in which the program is an image, so that any node can run it. `None` for a task with several files: a
    /// START has one image.
    pub(crate) shipped: Option<Shipped>,
}

/// A program that is pushed to the scheduler before its START is sent.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// The START whose `image` is the digest and whose command has the launcher's placeholder in place of a path.
    pub(crate) start: Bytes,
    /// The file in the store of [`binaries`](crate::binaries).
    pub(crate) path: PathBuf,
    /// SHA-256 of its contents in hex, as it was computed when the task was accepted. It is not computed a second time.
    pub(crate) sha256: String,
    /// The tenant whose quota of images the file counts towards.
    pub(crate) tenant: String,
}

/// What the coordinator wants sent. The channel for these exists as long as one connection: what is in it when the
/// connection is lost is dropped.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Push the program if need be, and send the START. There is no answer here: what comes of it comes as events.
    Start(Box<Submission>),
    /// Have an instance moved, and answer whether the scheduler accepted the command. That it has moved comes as
    /// events.
    Migrate {
        /// Instance and target node.
        migrate: Migrate,
        /// Dropped without an answer if the connection is lost first.
        answer: oneshot::Sender<Result<(), String>>,
    },
}

/// One listing. It is passed on after all events that arrived before it was complete.
#[derive(Debug)]
pub(crate) struct Look {
    /// Instances that have not ended: those whose UUID begins with our family, or all with [`Settings::everybody`].
    pub(crate) instances: Vec<InstanceView>,
    /// Instances of our family that have ended and that the scheduler still remembers, the oldest first.
    pub(crate) ended: Vec<InstanceView>,
    /// All nodes that the scheduler lists.
    pub(crate) nodes: Vec<NodeView>,
}

/// What the session reports to the coordinator.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A connection exists and its events are subscribed to; commands go into this channel. Instances that ended while
    /// there was no connection show only in the next [`Heard::Look`].
    Up(mpsc::UnboundedSender<Ask>),
    /// There is no connection, and why. Sent once for each different reason, not for each try.
    Down(String),
    /// One event of the scheduler, in the order of arrival.
    Event(Box<Event>),
    /// One listing.
    Look(Box<Look>),
}

/// What the session needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Server, certificates, deadlines.
    pub(crate) client: ClientConfig,
    /// The first eight hex digits of the UUIDs of our instances; the scheduler is asked for these alone.
    pub(crate) family: String,
    /// Whether others' instances are listed as well. Only `-one-task-per-node` needs them: it computes how many vcpus
    /// nodes have in all.
    pub(crate) everybody: bool,
}

/// Keeps a connection until the coordinator's end of the channel is closed. Errors are reported as [`Heard::Down`];
/// none ends it.
pub(crate) async fn run(settings: Settings, coordinator: mpsc::Sender<Heard>) {
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    while !coordinator.is_closed() {
        let why = match Client::connect(&settings.client).await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let lost = attend(client, &settings, &coordinator).await;
                told.clear();
                lost
            }
            Err(error) => error.to_string(),
        };
        if why != told {
            told.clone_from(&why);
            if coordinator.send(Heard::Down(why)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = coordinator.closed() => return,
        }
        pause = (pause * 3 / 2).min(LAST_PAUSE);
    }
}

/// Serves one connection to its end, and returns why it ended, for people.
async fn attend(client: Client, settings: &Settings, coordinator: &mpsc::Sender<Heard>) -> String {
    let mut session = Session {
        client,
        ships: true,
        settings,
        coordinator,
    };
    match session.attend().await {
        Ok(()) => "this program is about to end".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Stores a program at the scheduler, which skips the transfer if it has a file with this digest.
async fn push(client: &mut Client, shipped: &Shipped) -> Result<(), ImageError> {
    let digest = Digest::from_hex(&shipped.sha256);
    let file = PushFile::known(&shipped.path, digest)?;
    client.push_image(&file, &shipped.tenant, |_| ()).await?;
    Ok(())
}

/// One connection.
struct Session<'a> {
    client: Client,
    /// Whether to push programs. It begins as true. The answer that the scheduler takes no images, or another error
    /// of the client's that leaves the connection open, makes it false until the next connection, so that not each
    /// START costs a futile question.
    ships: bool,
    settings: &'a Settings,
    coordinator: &'a mpsc::Sender<Heard>,
}

impl Session<'_> {
    /// Subscribes, announces the connection to the coordinator, and then handles events, listings and commands as they
    /// come. All three share one connection and one task: while a listing or a push is awaited, events are kept by the
    /// client and commands wait in their channel.
    ///
    /// Returns without an error once the coordinator is gone.
    ///
    /// # Errors
    /// The connection is lost, or the scheduler did not answer a listing in time; the caller connects again.
    async fn attend(&mut self) -> Result<(), ClientError> {
        let topics = [
            Topic::Nodes,
            Topic::Instances,
            Topic::Failures,
            Topic::Placements,
        ];
        self.client.watch(&topics).await?;
        // Unbounded, for the coordinator must not wait; what is in it is bounded by the tasks there are and by the
        // commands that are read at a time.
        let (asks, mut asked) = mpsc::unbounded_channel();
        if self.coordinator.send(Heard::Up(asks)).await.is_err() {
            return Ok(());
        }
        let mut next_look = Instant::now();
        loop {
            let heard = tokio::select! {
                event = self.client.next_event() => Heard::Event(Box::new(event?)),
                () = sleep_until(next_look) => {
                    let look = self.look().await?;
                    let entries = look.instances.len() + look.ended.len() + look.nodes.len();
                    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
                    next_look = Instant::now() + LOOK_EVERY + LOOK_LESS.saturating_mul(entries);
                    Heard::Look(Box::new(look))
                }
                ask = asked.recv() => match ask {
                    None => return Ok(()),
                    Some(Ask::Start(submission)) => {
                        let start = self.start_of(*submission).await?;
                        self.client.submitter().submit(start).await?;
                        continue;
                    }
                    Some(Ask::Migrate { migrate, answer }) => {
                        self.migrate(migrate, answer).await?;
                        continue;
                    }
                },
            };
            if self.coordinator.send(heard).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Chooses the form of the START. Its program is pushed first; if that fails for another reason than the
    /// connection, the form with a local path is used, with a warning, for it works where launchers share this
    /// machine's files.
    ///
    /// # Errors
    /// The connection is lost or does not answer. The START is not sent then; the coordinator finds out from the
    /// listing of the next connection that the instance is not there, and sends it again.
    async fn start_of(&mut self, submission: Submission) -> Result<Bytes, ClientError> {
        let Some(shipped) = submission.shipped.filter(|_| self.ships) else {
            return Ok(submission.start);
        };
        match push(&mut self.client, &shipped).await {
            Ok(()) => Ok(shipped.start),
            Err(ImageError::Client(
                error @ (ClientError::Closed(_) | ClientError::NoAnswer { .. }),
            )) => Err(error),
            Err(why) => {
                let has_none = |failure: &ImageFailure| *failure == ImageFailure::NotOffered;
                if matches!(&why, ImageError::Client(_))
                    || matches!(&why, ImageError::Refused { failure, .. } if has_none(failure))
                {
                    self.ships = false;
                }
                warn!(
                    event = "program_not_shipped",
                    "the scheduler does not ship {}: nodes have to have it at that path: {why}",
                    shipped.path.display()
                );
                Ok(submission.start)
            }
        }
    }

    /// Sends the command, waits for its answer and passes that on. Only a closed connection is an error here; a refusal
    /// is the client's to read.
    async fn migrate(
        &mut self,
        migrate: Migrate,
        answer: oneshot::Sender<Result<(), String>>,
    ) -> Result<(), ClientError> {
        let done = self.client.order(&LifecycleOrder::Migrate(migrate)).await;
        let closed = matches!(done, Err(ClientError::Closed(_)));
        let answered = done.as_ref().map(drop).map_err(ToString::to_string);
        // The client may have gone.
        let _ = answer.send(answered);
        if closed { done } else { Ok(()) }
    }

    /// Lists instances, ended instances and nodes, in three queries.
    ///
    /// The events that came meanwhile are handed over first. Otherwise the coordinator would see a state in the listing
    /// and then, in the older events, how it came about.
    async fn look(&mut self) -> Result<Look, ClientError> {
        let family = Some(&*self.settings.family);
        let whose = family.filter(|_| !self.settings.everybody);
        let instances = self.client.list(QueryKind::Instances, whose).await?;
        let ended = self.client.ended(family).await?;
        let nodes = self.client.list(QueryKind::Nodes, None).await?;
        while let Some(event) = self.client.kept_event() {
            // The coordinator is found to be gone where the look is handed over.
            let _ = self.coordinator.send(Heard::Event(Box::new(event))).await;
        }
        Ok(Look {
            instances: instances.instances,
            ended,
            nodes: nodes.nodes,
        })
    }
}
