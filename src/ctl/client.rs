//! A session with the scheduler as OPERATOR or VIEWER: commands and their answers, queries and their pages, events as
//! they come.
//!
//! One task owns a [`Client`]; there is no other task behind it but the connection's own. Whatever arrives while
//! something else is waited for is kept, bounded, for [`Client::next_event`]. Rendering and policy (how long to wait,
//! what to print) belong to the callers.
//!
//! Three kinds of requests differ in how they are answered:
//!
//! - a query carries a number, and its result the same number;
//! - a START carries the UUID of its instance, and so do its placement and its failure;
//! - other commands are answered only if they are refused. The client sends a query behind such a command: frames of
//!   one connection are handled in order, so that a refusal comes before the result of that query.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proto_frames::payload::{
    Delete, EndFilter, Evacuate, Payload, Query, QueryKind, QueryResult, Restore, Topic, Watch,
};
use proto_frames::{Encoding, Frame, Kind, Role, Uuid};
use tokio::time::Instant;

use crate::ctl::event::{Event, refused_kind};
use crate::net::address::Endpoint;
use crate::net::link::{self, Hello, LinkClosed, LinkReceiver, LinkSender, Timeouts};
use crate::net::tls::{ClientFiles, LastRead, TrustFiles};

mod arrays;
mod configuration;
mod ends;
mod error;
mod images;
mod leader;
mod lifecycle;
mod listing;
mod on_record;
mod output;
mod reload;
mod start;

pub use configuration::{ConfigurationError, Which};
pub use ends::Ended;
pub use error::{ClientError, ConnectError, StartError};
pub use images::{ImageError, PushDone, PushFile};
pub use lifecycle::LifecycleOrder;
pub use listing::Listing;

/// Events kept while something else is waited for. The oldest go first; [`Client::missed`] counts them.
///
/// It bounds the memory of a command that waits for an answer while many events come.
pub const MAX_BACKLOG: usize = 65_536;

/// Rows asked for with one QUERY: the most that the scheduler gives at once.
pub const PAGE: u32 = 1_000;

/// Pages read for one listing at most. So many pages hold a hundred times the largest cluster this is built for; the
/// limit ends a listing whose cursor never does.
pub const MAX_PAGES: usize = 10_000;

/// How a [`Client`] connects.
///
/// Made of flags, variables and contexts by `commands::client_config`.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The scheduler, as `HOST`, `HOST:PORT`, `ADDRESS` or `[ADDRESS]:PORT`.
    pub server: String,
    /// The name to expect in its certificate, where that is not the host.
    ///
    /// For example where the scheduler is reached through a tunnel.
    pub server_name: Option<String>,
    /// PEM file with certificate and key of a controller or a viewer.
    pub cert: PathBuf,
    /// Files with the cluster's CA certificate and revocation lists.
    pub trust: TrustFiles,
    /// Longest time until CONNECTED.
    ///
    /// It covers everything: the name's addresses, TCP, TLS and the handshake of SSNTP.
    pub connect_timeout: Duration,
    /// Longest time until the answer to a command or query.
    ///
    /// It begins when the request was handed to the connection.
    pub answer_timeout: Duration,
    /// What was read from the certificates' files for an earlier connection.
    ///
    /// Used again where they cannot be read for a later one. Nothing at first.
    pub last: LastRead,
}

impl ClientConfig {
    /// The files of the certificates.
    #[must_use]
    pub fn files(&self) -> ClientFiles {
        ClientFiles {
            cert: self.cert.clone(),
            trust: self.trust.clone(),
        }
    }
}

/// Sends STARTs in a [`Client`]'s session.
///
/// Cheap to clone. It writes to the same connection as the client, so that frames keep their order.
#[derive(Debug, Clone)]
pub struct Submitter {
    uuid: Uuid,
    /// Frames queue in it, bounded in bytes.
    sender: LinkSender,
}

/// A session with the scheduler.
///
/// Dropping it ends the session.
#[derive(Debug)]
pub struct Client {
    /// Random for each session: two sessions of the same operator are two peers.
    uuid: Uuid,
    /// From its CONNECTED frame.
    scheduler: Uuid,
    sender: LinkSender,
    /// Frames in the order in which the scheduler sent them.
    receiver: LinkReceiver,
    /// From [`ClientConfig::answer_timeout`].
    answer_timeout: Duration,
    /// What was last subscribed to. A WATCH replaces the subscription, so that adding a topic sends all of them.
    topics: Vec<Topic>,
    /// The number of the last query, image request or output request. Wraps around.
    last_query: u32,
    /// At most [`MAX_BACKLOG`] events, the oldest in front.
    backlog: VecDeque<Event>,
    /// Events dropped from the backlog so far.
    missed: u64,
}

/// Pause between two rounds over several schedulers, none of which took the connection: another one is about to lead.
const NEXT_ROUND: Duration = Duration::from_millis(300);

/// Connects to the first of these schedulers that leads. Of several, again and again for as long as one connection may
/// take (`timeouts.dial`), and then with what the last round came to; of one, once.
async fn connect_any(
    endpoints: &[Endpoint],
    tls: &Arc<rustls::ClientConfig>,
    hello: &Hello,
    timeouts: &Timeouts,
) -> Result<link::Link, link::ConnectError> {
    let begun = Instant::now();
    let may_try_again = || begun.elapsed() + NEXT_ROUND < timeouts.dial;
    loop {
        match link::connect_first(endpoints, tls, hello, timeouts, |_, _| {}).await {
            Ok((_, link)) => return Ok(link),
            Err(error) if endpoints.len() > 1 && error.may_retry() && may_try_again() => {
                tokio::time::sleep(NEXT_ROUND).await;
            }
            Err(error) => return Err(error),
        }
    }
}

impl Client {
    /// Connects as OPERATOR, or as VIEWER with a certificate that grants no more, and waits until the scheduler has
    /// accepted that.
    ///
    /// Reads the certificate files first, so that a wrong path is reported even if no scheduler answers. Where they can
    /// no longer be used, what was read for an earlier connection with this configuration is. The certificate decides
    /// the role that is asked for.
    ///
    /// # Errors
    /// [`ConnectError`]: what went wrong, at which address, and what to look at.
    pub async fn connect(config: &ClientConfig) -> Result<Self, ConnectError> {
        // Several, with commas between them, where there are several schedulers.
        let servers = config.server.split(',');
        let endpoints = servers.map(|it| it.trim().parse::<Endpoint>());
        let endpoints: Vec<Endpoint> = endpoints
            .map(|it| Ok(it?.with_server_name(config.server_name.clone())))
            .collect::<Result<_, ConnectError>>()?;
        let files = config.files();
        let credentials = config.last.or_now(&files)?;
        let granted = credentials.roles;
        if !granted.intersects(Role::OPERATOR | Role::VIEWER) {
            return Err(ConnectError::NoOperator {
                path: config.cert.clone(),
                granted,
            });
        }
        let hello = Hello {
            role: match granted.contains(Role::OPERATOR) {
                true => Role::OPERATOR,
                false => Role::VIEWER,
            },
            uuid: Uuid::new_v4(),
            encoding: Encoding::Native,
        };
        let limit = config.connect_timeout;
        let timeouts = Timeouts {
            dial: limit,
            handshake: limit,
            ..Timeouts::default()
        };
        let connecting = connect_any(&endpoints, &credentials.tls, &hello, &timeouts);
        let late = |_| ConnectError::TimedOut {
            server: config.server.clone(),
            waited: limit,
        };
        let link = tokio::time::timeout(limit, connecting)
            .await
            .map_err(late)?
            .map_err(|error| match error {
                link::ConnectError::OtherCa { address } => ConnectError::OtherCa {
                    address,
                    cacert: config.trust.ca.clone(),
                },
                error => ConnectError::Link(error),
            })?;
        Ok(Self {
            uuid: hello.uuid,
            scheduler: link.connected.source,
            sender: link.sender,
            receiver: link.receiver,
            answer_timeout: config.answer_timeout,
            topics: Vec::new(),
            last_query: 0,
            backlog: VecDeque::new(),
            missed: 0,
        })
    }

    /// The scheduler's UUID.
    #[must_use]
    pub fn scheduler(&self) -> Uuid {
        self.scheduler
    }

    /// Events that were dropped because more than [`MAX_BACKLOG`] came while something else was waited for.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Subscribes to these topics instead of those before.
    ///
    /// Events that come before the scheduler has handled the WATCH are of the topics before. An empty list ends the
    /// subscription.
    ///
    /// # Errors
    /// [`LinkClosed`]. A refusal comes as an [`Event::Refused`].
    pub async fn watch(&mut self, topics: &[Topic]) -> Result<(), LinkClosed> {
        self.topics = topics.to_vec();
        let watch = Watch {
            topics: self.topics.clone(),
        };
        self.send(Kind::WATCH, watch.encode()).await
    }

    /// The topics that are subscribed to.
    #[must_use]
    pub fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// Subscribes to this topic in addition.
    ///
    /// Does nothing if it is subscribed to already.
    ///
    /// # Errors
    /// [`LinkClosed`].
    pub async fn watch_also(&mut self, topic: Topic) -> Result<(), LinkClosed> {
        if self.topics.contains(&topic) {
            return Ok(());
        }
        let topics: Vec<Topic> = self.topics.iter().cloned().chain([topic]).collect();
        self.watch(&topics).await
    }

    /// The next event of the topics watched, or the next answer to something sent without waiting; the oldest first.
    ///
    /// Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended and everything received before was handed out.
    pub async fn next_event(&mut self) -> Result<Event, LinkClosed> {
        if let Some(event) = self.backlog.pop_front() {
            return Ok(event);
        }
        loop {
            match self.receive().await? {
                Event::QueryResult(_)
                | Event::Output(_)
                | Event::Image(_)
                | Event::ImageList(_)
                | Event::Configuration(_) => {} // of a query that was given up
                event => return Ok(event),
            }
        }
    }

    /// A handle that submits STARTs in this session while the client itself takes events in.
    ///
    /// `start` sends thousands of STARTs with it while the client takes in what becomes of the first ones: neither
    /// blocks the other.
    #[must_use]
    pub fn submitter(&self) -> Submitter {
        Submitter {
            uuid: self.uuid,
            sender: self.sender.clone(),
        }
    }

    /// The oldest event that came while something else was waited for; never waits.
    ///
    /// For after a listing: events that came before it are older than what it says, and have to be taken in first.
    pub fn kept_event(&mut self) -> Option<Event> {
        self.backlog.pop_front()
    }

    /// Asks a node to delete an instance, or to stop it only; what comes of it comes as events.
    ///
    /// Sent, not confirmed: call [`Client::sync`] to have the scheduler's refusals among the events. Many deletions
    /// can share one such call.
    ///
    /// # Errors
    /// [`LinkClosed`].
    pub async fn delete(&self, delete: &Delete) -> Result<(), LinkClosed> {
        self.send(Kind::DELETE, delete.encode()).await
    }

    /// Takes a node out of service and waits until the scheduler has forwarded the command to it.
    ///
    /// Ciao's EVACUATE, without a mode: the launcher stops everything on the node. A drain is [`Client::relocate`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the scheduler would not.
    pub async fn evacuate(&mut self, node_uuid: &str) -> Result<(), ClientError> {
        let evacuate = Evacuate {
            workload_agent_uuid: node_uuid.to_owned(),
            ..Evacuate::default()
        };
        self.command(Kind::EVACUATE, evacuate.encode()).await
    }

    /// Puts a node back into service and waits until the scheduler has forwarded the command to it.
    ///
    /// Ciao's RESTORE, without a mode: the launcher leaves maintenance. It also ends a cordon and a drain.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the scheduler would not.
    pub async fn restore(&mut self, node_uuid: &str) -> Result<(), ClientError> {
        let restore = Restore {
            workload_agent_uuid: node_uuid.to_owned(),
            ..Restore::default()
        };
        self.command(Kind::RESTORE, restore.encode()).await
    }

    /// Waits until the scheduler has dealt with everything sent so far: its own refusals are then among the events,
    /// because frames of one connection are handled and answered in order.
    ///
    /// Costs one round trip: it asks for a single controller and drops the answer.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`] and [`ClientError::Closed`].
    pub async fn sync(&mut self) -> Result<(), ClientError> {
        let smallest = Query {
            limit: Some(1),
            ..self.query_for(QueryKind::Controllers, None)
        };
        self.ask(smallest).await.map(drop)
    }

    /// Everything of a kind as the scheduler sees it: all pages, one result.
    ///
    /// `matching` restricts it to a host name or the beginning of a UUID, as the scheduler compares them; the caller
    /// still has to check what it gets.
    ///
    /// Pages are not one snapshot: something that changes while pages are read can be missing or be in an older state.
    ///
    /// # Errors
    /// [`ClientError`]; a listing is whole or an error.
    pub async fn list(
        &mut self,
        what: QueryKind,
        matching: Option<&str>,
    ) -> Result<Listing, ClientError> {
        self.all_pages(what, matching, None).await
    }

    /// All pages; of ends those of this time.
    async fn all_pages(
        &mut self,
        what: QueryKind,
        matching: Option<&str>,
        within: Option<Duration>,
    ) -> Result<Listing, ClientError> {
        if let Some(name) = matching
            && let Some((at, character)) = name.chars().enumerate().find(|(_, it)| no_name_has(*it))
        {
            let name = name.to_owned();
            return Err(ClientError::NoName {
                name,
                character,
                at,
            });
        }
        let mut listing = Listing::default();
        let mut after: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let query = Query {
                after: after.clone(),
                within_ms: within
                    .map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
                ..self.query_for(what.clone(), matching)
            };
            let page = self.ask(query).await?;
            listing.nodes.extend(page.nodes);
            listing.instances.extend(page.instances);
            listing.arrays.extend(page.arrays);
            listing.controllers.extend(page.controllers);
            listing.store = page.store.or(listing.store);
            listing.status = page.status.or(listing.status);
            listing.history.extend(page.history);
            listing.outputs.extend(page.outputs);
            // What was forgotten while pages were read is known to the last one alone.
            let complete_for_ms = page
                .complete_for_ms
                .map(|ms| u64::try_from(ms).unwrap_or(0));
            listing.complete_for = complete_for_ms.map(Duration::from_millis);
            listing.forgotten = page.forgotten.unwrap_or(0);
            match page.next {
                None => {
                    listing.drop_superseded();
                    return Ok(listing);
                }
                // A cursor that does not advance would ask for the same page for ever.
                next if next == after => break,
                next => after = next,
            }
        }
        let reason = format!("its list has no end, after {} entries", listing.len());
        Err(ClientError::Query { what, reason })
    }
}

/// Whether names and UUIDs are free of a character: the scheduler refuses white space and control characters in them.
fn no_name_has(character: char) -> bool {
    character.is_whitespace() || character.is_control()
}

impl Client {
    /// Sends a command that has no answer of its own where it succeeds.
    ///
    /// One round trip. A refusal of the same kind from before is taken for this one's: callers send one command at a
    /// time.
    async fn command(&mut self, kind: Kind, payload: Bytes) -> Result<(), ClientError> {
        self.send(kind, payload).await?;
        self.sync().await?;
        let refused = |event: &Event| matches!(event, Event::Refused(refused) if refused_kind(refused) == kind);
        match self
            .backlog
            .iter()
            .position(refused)
            .and_then(|at| self.backlog.remove(at))
        {
            Some(Event::Refused(refusal)) => Err(ClientError::Refused(Box::new(refusal))),
            _ => Ok(()),
        }
    }

    /// With the next number and the largest page.
    fn query_for(&mut self, what: QueryKind, matching: Option<&str>) -> Query {
        self.last_query = self.last_query.wrapping_add(1);
        Query {
            id: self.last_query,
            what,
            matching: matching.map(Into::into),
            after: None,
            limit: Some(PAGE),
            within_ms: None,
            filter: EndFilter::default(),
        }
    }

    /// Sends a query and waits for the result that carries its number.
    ///
    /// A refusal of any QUERY is taken as the answer, because it does not carry the number.
    async fn ask(&mut self, query: Query) -> Result<QueryResult, ClientError> {
        let (id, what) = (query.id, query.what.clone());
        self.send(Kind::QUERY, query.encode()).await?;
        let answer = self.wait_for(
            "answer to QUERY",
            self.answer_timeout,
            |event| match event {
                Event::QueryResult(result) if result.id == id => Ok(Ok(*result)),
                Event::Refused(refusal) if refused_kind(&refusal) == Kind::QUERY => {
                    Ok(Err(refusal))
                }
                other => Err(other),
            },
        );
        match answer.await? {
            Ok(QueryResult {
                error: Some(reason),
                ..
            }) => Err(ClientError::Query { what, reason }),
            Ok(result) => Ok(result),
            Err(refusal) => Err(ClientError::Refused(Box::new(refusal))),
        }
    }

    /// Reads events until `pick` takes one; those it gives back are kept for [`Client::next_event`].
    ///
    /// The time is for the whole wait, not for each event, so that a stream of unrelated events cannot extend it.
    async fn wait_for<T>(
        &mut self,
        what: &str,
        patience: Duration,
        mut pick: impl FnMut(Event) -> Result<T, Event>,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + patience;
        loop {
            let Ok(event) = tokio::time::timeout_at(deadline, self.receive()).await else {
                return Err(ClientError::NoAnswer {
                    what: what.to_owned(),
                    waited: patience,
                });
            };
            match pick(event?) {
                Ok(picked) => return Ok(picked),
                Err(event) => self.keep(event),
            }
        }
    }

    /// Drops the oldest event if the backlog is full.
    fn keep(&mut self, event: Event) {
        if matches!(
            event,
            Event::QueryResult(_)
                | Event::Output(_)
                | Event::Image(_)
                | Event::ImageList(_)
                | Event::Configuration(_)
        ) {
            return; // of a query that was given up
        }
        if self.backlog.len() == MAX_BACKLOG {
            self.backlog.pop_front();
            self.missed += 1;
        }
        self.backlog.push_back(event);
    }

    /// The next frame from the connection, past the backlog.
    async fn receive(&mut self) -> Result<Event, LinkClosed> {
        self.receiver
            .recv()
            .await
            .map(|frame| Event::from_frame(&frame))
    }

    /// Waits while the connection's queue is full; does not wait until the frame is on the wire.
    async fn send(&self, kind: Kind, payload: Bytes) -> Result<(), LinkClosed> {
        self.sender.send(Frame::new(kind, self.uuid, payload)).await
    }
}

impl Submitter {
    /// Submits a START without waiting: its placement (if watched) or failure comes as an event.
    ///
    /// The payload is not looked at: a bad one is answered with a failure.
    ///
    /// # Errors
    /// [`LinkClosed`].
    pub async fn submit(&self, payload: Bytes) -> Result<(), LinkClosed> {
        self.sender
            .send(Frame::new(Kind::START, self.uuid, payload))
            .await
    }
}

#[cfg(test)]
mod tests;
