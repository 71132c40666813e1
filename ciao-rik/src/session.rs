//! The connection with the scheduler as a controller: one task that connects, listens, sends, and connects again after
//! a loss.
//!
//! It knows no instances. It reports to [`coordinator`](crate::coordinator) what happened ([`Heard`]) and sends what
//! the coordinator wants ([`Ask`]). Events come at once; a listing every few seconds (a [`Look`]) shows what events did
//! not. The workers' connections are others, in [`node`](crate::node).

use std::time::Duration;

use bytes::Bytes;
use ciao_scheduler::ctl::client::{Client, ClientConfig, ClientError};
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::{Delete, InstanceView, QueryKind, Topic};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Pause after a lost connection or the first failed try; each further one is half as long again as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Upper bound of the pause.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two listings where little is listed.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Added to it for each entry of the previous listing, which costs the scheduler some µs an entry.
const LOOK_LESS: Duration = Duration::from_millis(10);

/// What the coordinator wants sent. Neither has an answer here: what comes of it comes as events.
#[derive(Debug)]
pub(crate) enum Ask {
    /// The payload of a START.
    Start(Bytes),
    /// Send a DELETE.
    Delete(Delete),
}

/// What the scheduler lists of the instances whose UUIDs begin with our family.
#[derive(Debug)]
pub(crate) struct Look {
    /// Those that have not ended.
    pub(crate) instances: Vec<InstanceView>,
    /// Those that have ended and are still remembered, the oldest first.
    pub(crate) ended: Vec<InstanceView>,
}

/// What the session reports to the coordinator.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A connection exists and its events are subscribed to; commands go into this channel, which lasts as long as the
    /// connection.
    Up(mpsc::UnboundedSender<Ask>),
    /// There is no connection, and why. Sent once for each different reason, not for each try.
    Down(String),
    /// One event of the scheduler, in the order of arrival.
    Event(Box<Event>),
    /// One listing, after all events that arrived before it was complete.
    Look(Box<Look>),
}

/// What the session needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Server, certificates, deadlines.
    pub(crate) client: ClientConfig,
    /// The first eight hex digits of the UUIDs of our instances.
    pub(crate) family: String,
}

/// Keeps a connection until the coordinator's end of the channel is closed. Errors are reported as [`Heard::Down`].
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

/// Serves one connection to its end, and returns why it ended.
async fn attend(client: Client, settings: &Settings, coordinator: &mpsc::Sender<Heard>) -> String {
    let mut session = Session {
        client,
        settings,
        coordinator,
    };
    match session.attend().await {
        Ok(()) => "this program is about to end".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// One connection.
struct Session<'a> {
    client: Client,
    settings: &'a Settings,
    coordinator: &'a mpsc::Sender<Heard>,
}

impl Session<'_> {
    /// Subscribes, announces the connection, and then handles events, listings and commands as they come.
    ///
    /// # Errors
    /// The connection is lost, or a listing was not answered in time. Returns without an error once the coordinator is
    /// gone.
    async fn attend(&mut self) -> Result<(), ClientError> {
        self.client
            .watch(&[Topic::Instances, Topic::Failures])
            .await?;
        // Unbounded, for the coordinator must not wait; what is in it is bounded by the instances there are.
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
            if self.coordinator.send(heard).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Lists instances and ended instances. The events that came meanwhile are handed over first, for they are older.
    async fn look(&mut self) -> Result<Look, ClientError> {
        let family = Some(&*self.settings.family);
        let instances = self.client.list(QueryKind::Instances, family).await?;
        let ended = self.client.ended(family).await?;
        while let Some(event) = self.client.kept_event() {
            // The coordinator is found to be gone where the look is handed over.
            let _ = self.coordinator.send(Heard::Event(Box::new(event))).await;
        }
        Ok(Look {
            instances: instances.instances,
            ended,
        })
    }
}
