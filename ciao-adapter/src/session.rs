//! The connection with the scheduler as a controller: one task that connects, listens, sends, and connects again after
//! a loss.
//!
//! It knows no instances. It reports to the coordinator what happened ([`SessionEvent`]) and sends what the coordinator
//! asks for, as the adapter's [`Requests`] say. Two sources tell how instances are: events, which come at once, and a
//! listing every few seconds, which shows what events did not: those of the time without a connection, and those that
//! the scheduler dropped.
//!
//! ```text
//! connect ─▶ Up(asks) ─▶ Event, Event, Listing, Event, … ─▶ connection lost ─▶ Down(why) ─▶ pause ─▶ connect …
//! ```

use std::time::Duration;

use ciao_scheduler::ctl::client::{Client, ClientConfig, ClientError};
use ciao_scheduler::ctl::event::Event;
use proto_frames::payload::Topic;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Pause after a lost connection or the first failed try to connect; each further pause is half as long again as the
/// one before, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Upper bound of the pause: a scheduler that is back is found within this time.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Pause between two listings where little is listed.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// Added to [`LIST_EVERY`] for each entry of the previous listing: with 1 000 entries the pause is 15 s. A listing
/// costs the scheduler some µs an entry, which this keeps to a very small share of its time.
const PAUSE_PER_ENTRY: Duration = Duration::from_millis(10);

/// What an adapter watches, sends and lists over its connection. Each connection is served by a clone of its own.
pub trait Requests: Clone + Send {
    /// What the coordinator wants sent.
    type Ask: Send;

    /// One listing.
    type Listing: Send;

    /// Which events are subscribed to.
    const TOPICS: &'static [Topic];

    /// Sends what the coordinator wants. Meanwhile events are kept by the client, and further asks wait.
    ///
    /// # Errors
    /// The connection is lost; all else that can go wrong is dealt with there.
    fn send(
        &mut self,
        client: &mut Client,
        ask: Self::Ask,
    ) -> impl Future<Output = Result<(), ClientError>> + Send;

    /// Asks for a listing.
    ///
    /// # Errors
    /// The connection is lost, or the scheduler did not answer in time; both end the connection.
    fn list(
        &mut self,
        client: &mut Client,
    ) -> impl Future<Output = Result<Self::Listing, ClientError>> + Send;

    /// How many entries a listing has: the more, the later the next.
    fn entries(listing: &Self::Listing) -> usize;
}

/// What the session reports to the coordinator; `A` and `L` are [`Requests::Ask`] and [`Requests::Listing`].
#[derive(Debug)]
pub enum SessionEvent<A, L> {
    /// A connection exists and its events are subscribed to; commands go into this channel, which lasts as long as the
    /// connection: what is in it when that is lost is dropped. Instances that ended while there was no connection show
    /// only in the next [`SessionEvent::Listing`].
    Up(mpsc::UnboundedSender<A>),
    /// There is no connection, and why. Sent once for each different reason, not for each try.
    Down(String),
    /// Events are missing: more came than are kept while something else was waited for. What was missed shows in the
    /// next [`SessionEvent::Listing`], which is asked for at once, as after [`SessionEvent::Up`].
    Missed,
    /// One event of the scheduler, in the order of arrival.
    Event(Box<Event>),
    /// One listing, after all events that arrived before it was complete.
    Listing(Box<L>),
}

/// Keeps a connection until the coordinator's end of the channel is closed. Errors are reported as
/// [`SessionEvent::Down`]; none ends it.
pub async fn run<R: Requests>(
    config: ClientConfig,
    requests: R,
    coordinator: mpsc::Sender<SessionEvent<R::Ask, R::Listing>>,
) {
    let mut pause = FIRST_PAUSE;
    let mut reported = String::new();
    while !coordinator.is_closed() {
        let why = match Client::connect(&config).await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let mut session = Session {
                    client,
                    requests: requests.clone(),
                    coordinator: &coordinator,
                    told_missed: 0,
                };
                let served = session.serve().await;
                reported.clear();
                served.map_or_else(
                    |error| error.to_string(),
                    |()| "this program is about to end".to_owned(),
                )
            }
            Err(error) => error.to_string(),
        };
        if why != reported {
            reported.clone_from(&why);
            if coordinator.send(SessionEvent::Down(why)).await.is_err() {
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

/// One connection.
struct Session<'a, R: Requests> {
    client: Client,
    requests: R,
    coordinator: &'a mpsc::Sender<SessionEvent<R::Ask, R::Listing>>,
    /// How many missed events the coordinator was told of.
    told_missed: u64,
}

impl<R: Requests> Session<'_, R> {
    /// Subscribes, announces the connection to the coordinator, and then handles events, listings and commands as they
    /// come. All three share one connection and one task: while a listing or a command is awaited, events are kept by
    /// the client and commands wait in their channel.
    ///
    /// Returns without an error once the coordinator is gone.
    ///
    /// # Errors
    /// The connection is lost, or the scheduler did not answer a listing in time; the caller connects again.
    async fn serve(&mut self) -> Result<(), ClientError> {
        self.client.watch(R::TOPICS).await?;
        // Unbounded, for the coordinator must not wait; what is in it is bounded by the instances there are and by the
        // commands that are read at a time.
        let (asks, mut asked) = mpsc::unbounded_channel();
        if self.coordinator.send(SessionEvent::Up(asks)).await.is_err() {
            return Ok(());
        }
        let mut next_listing = Instant::now();
        loop {
            if self.tell_missed().await {
                next_listing = Instant::now();
            }
            let heard = tokio::select! {
                event = self.client.next_event() => SessionEvent::Event(Box::new(event?)),
                () = sleep_until(next_listing) => {
                    let (listing, pause) = self.list().await?;
                    next_listing = Instant::now() + pause;
                    SessionEvent::Listing(Box::new(listing))
                }
                ask = asked.recv() => match ask {
                    None => return Ok(()),
                    Some(ask) => {
                        self.requests.send(&mut self.client, ask).await?;
                        continue;
                    }
                },
            };
            if self.coordinator.send(heard).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Asks for a listing. The events that came meanwhile are handed over first. Otherwise the coordinator would see a
    /// state in the listing and then, in the older events, how it came about.
    /// Returns the pause until the next one as well.
    async fn list(&mut self) -> Result<(R::Listing, Duration), ClientError> {
        let listing = self.requests.list(&mut self.client).await?;
        let entries = u32::try_from(R::entries(&listing)).unwrap_or(u32::MAX);
        let pause = match self.tell_missed().await {
            // It may be older than what was missed.
            true => Duration::ZERO,
            false => LIST_EVERY + PAUSE_PER_ENTRY.saturating_mul(entries),
        };
        while let Some(event) = self.client.kept_event() {
            // The coordinator is found to be gone where the listing is handed over.
            let _ = self
                .coordinator
                .send(SessionEvent::Event(Box::new(event)))
                .await;
        }
        Ok((listing, pause))
    }

    /// Tells the coordinator if the client has dropped events since the last time; whether it has. To be called before
    /// the events that were kept are handed over, which are newer.
    async fn tell_missed(&mut self) -> bool {
        let missed = self.client.missed();
        if missed == self.told_missed {
            return false;
        }
        self.told_missed = missed;
        // The coordinator is found to be gone at the next report.
        let _ = self.coordinator.send(SessionEvent::Missed).await;
        true
    }
}

#[cfg(test)]
mod tests;
