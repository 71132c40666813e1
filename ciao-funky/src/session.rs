//! The connection with the scheduler: made again whenever it is lost, looked at from time to time for what events did not
//! tell.

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

/// First pause between two tries to connect; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Time between two looks at what the scheduler lists, where that is little.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Added to it for each entry that was listed: a look costs the scheduler some µs an entry, of which it shall not notice
/// anything.
const LOOK_LESS: Duration = Duration::from_millis(10);

/// A START, and how its program gets to the nodes.
#[derive(Debug)]
pub(crate) struct Submission {
    /// The START for nodes that have its files at the paths they have here.
    pub(crate) start: Bytes,
    /// The same for any node, where the scheduler ships programs; `None` where it has several files.
    pub(crate) shipped: Option<Shipped>,
}

/// A program that the scheduler is to ship.
#[derive(Debug)]
pub(crate) struct Shipped {
    /// The START that names it by its digest.
    pub(crate) start: Bytes,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// SHA-256 of its contents, in hex.
    pub(crate) sha256: String,
    /// The tenant it counts for.
    pub(crate) tenant: String,
}

/// What is asked of the session.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Send a START.
    Start(Box<Submission>),
    /// Have an instance moved, and say whether that was taken in.
    Migrate {
        /// What is to be done.
        migrate: Migrate,
        /// Who is told.
        answer: oneshot::Sender<Result<(), String>>,
    },
}

/// What the scheduler lists.
#[derive(Debug)]
pub(crate) struct Look {
    /// Instances: our own, or everybody's where that is wanted.
    pub(crate) instances: Vec<InstanceView>,
    /// Our own that have ended, the oldest first.
    pub(crate) ended: Vec<InstanceView>,
    /// All nodes.
    pub(crate) nodes: Vec<NodeView>,
}

/// What the desk hears.
#[derive(Debug)]
pub(crate) enum Heard {
    /// There is a session; this is where to ask.
    Up(mpsc::UnboundedSender<Ask>),
    /// There is none, and why.
    Down(String),
    /// Something happened.
    Event(Box<Event>),
    /// What is listed.
    Look(Box<Look>),
}

/// What the session needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// How to connect.
    pub(crate) client: ClientConfig,
    /// What the UUIDs of our instances begin with.
    pub(crate) family: String,
    /// Whether the instances of others matter.
    pub(crate) everybody: bool,
}

/// Keeps a session until the desk is gone.
pub(crate) async fn run(settings: Settings, desk: mpsc::Sender<Heard>) {
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    while !desk.is_closed() {
        let why = match Client::connect(&settings.client).await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let lost = attend(client, &settings, &desk).await;
                told.clear();
                lost
            }
            Err(error) => error.to_string(),
        };
        if why != told {
            told.clone_from(&why);
            if desk.send(Heard::Down(why)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = desk.closed() => return,
        }
        pause = (pause * 3 / 2).min(LAST_PAUSE);
    }
}

/// One session to its end; why it ended.
async fn attend(client: Client, settings: &Settings, desk: &mpsc::Sender<Heard>) -> String {
    let mut session = Session {
        client,
        ships: true,
        settings,
        desk,
    };
    match session.attend().await {
        Ok(()) => "this program is about to end".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Gives the scheduler a program, unless it has it.
async fn push(client: &mut Client, shipped: &Shipped) -> Result<(), ImageError> {
    let digest = Digest::from_hex(&shipped.sha256);
    let file = PushFile::known(&shipped.path, digest)?;
    client.push_image(&file, &shipped.tenant, |_| ()).await?;
    Ok(())
}

struct Session<'a> {
    client: Client,
    /// Whether the scheduler ships programs, as far as is known.
    ships: bool,
    settings: &'a Settings,
    desk: &'a mpsc::Sender<Heard>,
}

impl Session<'_> {
    /// Ends without an error once the desk is gone.
    async fn attend(&mut self) -> Result<(), ClientError> {
        let topics = [
            Topic::Nodes,
            Topic::Instances,
            Topic::Failures,
            Topic::Placements,
        ];
        self.client.watch(&topics).await?;
        // Unbounded, for the desk must not wait; what is in it is bounded by the tasks there are and by the commands that
        // are read at a time.
        let (asks, mut asked) = mpsc::unbounded_channel();
        if self.desk.send(Heard::Up(asks)).await.is_err() {
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
            if self.desk.send(heard).await.is_err() {
                return Ok(());
            }
        }
    }

    /// The START to send: its program is pushed first, if the scheduler takes it.
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

    async fn migrate(
        &mut self,
        migrate: Migrate,
        answer: oneshot::Sender<Result<(), String>>,
    ) -> Result<(), ClientError> {
        let done = self.client.order(&LifecycleOrder::Migrate(migrate)).await;
        let closed = matches!(done, Err(ClientError::Closed(_)));
        let told = done.as_ref().map(drop).map_err(ToString::to_string);
        // The client may have gone.
        let _ = answer.send(told);
        if closed { done } else { Ok(()) }
    }

    /// What is listed, after the events that came before it.
    async fn look(&mut self) -> Result<Look, ClientError> {
        let family = Some(&*self.settings.family);
        let whose = family.filter(|_| !self.settings.everybody);
        let instances = self.client.list(QueryKind::Instances, whose).await?;
        let ended = self.client.ended(family).await?;
        let nodes = self.client.list(QueryKind::Nodes, None).await?;
        while let Some(event) = self.client.kept_event() {
            // The desk is found to be gone where the look is handed over.
            let _ = self.desk.send(Heard::Event(Box::new(event))).await;
        }
        Ok(Look {
            instances: instances.instances,
            ended,
            nodes: nodes.nodes,
        })
    }
}
