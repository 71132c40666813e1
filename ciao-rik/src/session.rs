//! The connection with the scheduler: made again whenever it is lost, looked at from time to time for what events did not
//! tell.

use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::client::{Client, ClientConfig, ClientError};
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::{Delete, InstanceView, QueryKind, Topic};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// First pause between two tries to connect; each is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Time between two looks at what the scheduler lists, where that is little.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Added to it for each entry that was listed: a look costs the scheduler some µs an entry, of which it shall not notice
/// anything.
const LOOK_LESS: Duration = Duration::from_millis(10);

/// What is asked of the session.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Send a START.
    Start(Bytes),
    /// Send a DELETE.
    Delete(Delete),
}

/// What the scheduler lists of our own.
#[derive(Debug)]
pub(crate) struct Look {
    /// Instances.
    pub(crate) instances: Vec<InstanceView>,
    /// Those that have ended, the oldest first.
    pub(crate) ended: Vec<InstanceView>,
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
        settings,
        desk,
    };
    match session.attend().await {
        Ok(()) => "this program is about to end".to_owned(),
        Err(error) => error.to_string(),
    }
}

struct Session<'a> {
    client: Client,
    settings: &'a Settings,
    desk: &'a mpsc::Sender<Heard>,
}

impl Session<'_> {
    /// Ends without an error once the desk is gone.
    async fn attend(&mut self) -> Result<(), ClientError> {
        self.client
            .watch(&[Topic::Instances, Topic::Failures])
            .await?;
        // Unbounded, for the desk must not wait; what is in it is bounded by the instances there are.
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
                    let entries = look.instances.len() + look.ended.len();
                    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
                    next_look = Instant::now() + LOOK_EVERY + LOOK_LESS.saturating_mul(entries);
                    Heard::Look(Box::new(look))
                }
                ask = asked.recv() => match ask {
                    None => return Ok(()),
                    Some(Ask::Start(payload)) => {
                        self.client.submitter().submit(payload).await?;
                        continue;
                    }
                    Some(Ask::Delete(delete)) => {
                        self.client.delete(&delete).await?;
                        continue;
                    }
                },
            };
            if self.desk.send(heard).await.is_err() {
                return Ok(());
            }
        }
    }

    /// What is listed, after the events that came before it.
    async fn look(&mut self) -> Result<Look, ClientError> {
        let family = Some(&*self.settings.family);
        let instances = self.client.list(QueryKind::Instances, family).await?;
        let ended = self.client.ended(family).await?;
        while let Some(event) = self.client.kept_event() {
            // The desk is found to be gone where the look is handed over.
            let _ = self.desk.send(Heard::Event(Box::new(event))).await;
        }
        Ok(Look {
            instances: instances.instances,
            ended,
        })
    }
}
