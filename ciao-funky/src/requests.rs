//! What goes over the connection with the scheduler; [`ciao_adapter::session`] keeps that connection.
//!
//! A START is sent in one of two forms: where the scheduler ships programs, its program has to be there first.

use std::sync::Arc;

use bytes::Bytes;
use ciao_adapter::session::{self, Requests};
use ciao_scheduler::ctl::client::{Client, ClientError, Ended, ImageError, LifecycleOrder};
use proto_frames::payload::{
    Digest, ImageFailure, InstanceView, Migrate, NodeView, QueryKind, Topic,
};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use crate::binaries::Binaries;
use crate::shipping::News;
use crate::task::{Binary, Shape, TaskRecord};

/// What the coordinator wants sent. The channel for these exists as long as one connection: what is in it when the
/// connection is lost is dropped.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Send this task's START, if the scheduler has the program and its files, or ships none. There is no answer here: what
    /// comes of it comes as events, and what is lacking as [`News`].
    ///
    /// The session chooses the START's form, for it alone knows whether the scheduler ships programs, and encodes it when
    /// its turn has come. The record is shared with the coordinator's.
    Start(Arc<TaskRecord>),
    /// Have an instance moved, and answer whether the scheduler accepted the command. That it has moved comes as
    /// events.
    Migrate {
        /// Instance and target node.
        migrate: Migrate,
        /// Dropped without an answer if the connection is lost first.
        answer: oneshot::Sender<Result<(), String>>,
    },
}

/// What the scheduler lists.
#[derive(Debug)]
pub(crate) struct Listing {
    /// Instances of our family that have not ended: those whose UUID begins with it.
    pub(crate) instances: Vec<InstanceView>,
    /// Instances of our family that have ended and that the scheduler still remembers, the oldest first.
    pub(crate) ended: Ended,
    /// All nodes that the scheduler lists.
    pub(crate) nodes: Vec<NodeView>,
}

/// What the session reports to the coordinator.
pub(crate) type SessionEvent = session::SessionEvent<Ask, Listing>;

/// How the scheduler is asked about our tasks.
#[derive(Debug, Clone)]
pub(crate) struct TaskRequests {
    /// The first eight hex digits of the UUIDs of our instances; the scheduler is asked for these alone.
    family: String,
    /// Whether programs are shipped. It begins as true. The answer that the scheduler takes no images, or that it does not
    /// know the question, makes it false until the next connection, so that not each START costs a futile question.
    ships: bool,
    /// What all tasks ask for.
    shape: Arc<Shape>,
    /// Where their files are.
    binaries: Binaries,
    /// Where programs that the scheduler does not have are told of.
    news: mpsc::Sender<News>,
}

impl TaskRequests {
    /// Requests for a new connection, before it is known whether the scheduler ships programs.
    pub(crate) fn new(
        family: String,
        shape: Shape,
        binaries: Binaries,
        news: mpsc::Sender<News>,
    ) -> Self {
        Self {
            family,
            ships: true,
            shape: Arc::new(shape),
            binaries,
            news,
        }
    }

    /// The START whose command names the files under this program's state directory. Launchers need that directory at
    /// the same path, which they have on the same machine or on a shared file system.
    fn local_start(&self, record: &TaskRecord) -> Bytes {
        let files = record.files.iter();
        let paths: Vec<String> = files
            .map(|it| self.binaries.path(it).display().to_string())
            .collect();
        record.start(&self.shape, &paths)
    }

    /// Chooses the form of the START. If the scheduler ships programs, it has to have this one; the form with a local path
    /// is used only where it ships none at all or the task has too many files, and works where launchers share this
    /// machine's files. `None` if the scheduler lacks one of its files: the coordinator is told of the first, which has it
    /// pushed ([`shipping`](crate::shipping)), and nothing is sent.
    ///
    /// # Errors
    /// The connection is lost or does not answer. The START is not sent then; the coordinator finds out from the
    /// listing of the next connection that the instance is not there, and sends it again.
    async fn start_of(
        &mut self,
        client: &mut Client,
        record: &TaskRecord,
    ) -> Result<Option<Bytes>, ClientError> {
        if !self.ships || !record.can_be_shipped() {
            return Ok(Some(self.local_start(record)));
        }
        for (number, file) in record.files.iter().enumerate() {
            match self.has(client, file).await {
                Ok(true) => {}
                Ok(false) => {
                    let (id, file) = (record.id, number);
                    self.tell(News::Lacks { id, file }).await;
                    return Ok(None);
                }
                Err(ImageError::Client(
                    error @ (ClientError::Closed(_) | ClientError::NoAnswer { .. }),
                )) => return Err(error),
                Err(why) if ships_none(&why) => {
                    self.ships = false;
                    warn!(
                        event = "program_not_shipped",
                        "the scheduler does not ship {}: nodes have to have it at that path: {why}",
                        self.binaries.path(file).display()
                    );
                    return Ok(Some(self.local_start(record)));
                }
                Err(why) => {
                    self.tell(News::Refused(record.id, why.to_string())).await;
                    return Ok(None);
                }
            }
        }
        Ok(Some(record.shipped_start(&self.shape)))
    }

    /// Whether the scheduler has a file of a task.
    async fn has(&self, client: &mut Client, file: &Binary) -> Result<bool, ImageError> {
        let Some(digest) = Digest::from_hex(&file.sha256) else {
            // Of a record that was changed by hand.
            let failure = ImageFailure::InvalidData;
            let detail = format!("{} is no digest of a program", file.sha256);
            return Err(ImageError::Refused { failure, detail });
        };
        client
            .has_image((digest, file.bytes), &self.shape.tenant)
            .await
    }

    /// Tells the coordinator. One that is gone needs no news.
    async fn tell(&self, news: News) {
        let _ = self.news.send(news).await;
    }
}

/// Whether a scheduler that answers so keeps no programs, or does not know what that is.
fn ships_none(why: &ImageError) -> bool {
    let failure = match why {
        ImageError::Client(_) => return true,
        ImageError::Refused { failure, .. } => Some(failure),
        _ => None,
    };
    failure == Some(&ImageFailure::NotOffered)
}

impl Requests for TaskRequests {
    type Ask = Ask;
    type Listing = Listing;

    const TOPICS: &'static [Topic] = &[
        Topic::Nodes,
        Topic::Instances,
        Topic::Failures,
        Topic::Placements,
    ];

    async fn send(&mut self, client: &mut Client, ask: Ask) -> Result<(), ClientError> {
        match ask {
            Ask::Start(record) => {
                if let Some(start) = self.start_of(client, &record).await? {
                    client.submitter().submit(start).await?;
                }
                Ok(())
            }
            Ask::Migrate {
                migrate: order,
                answer,
            } => migrate(client, order, answer).await,
        }
    }

    /// Lists instances, ended instances and nodes, in three queries.
    async fn list(&mut self, client: &mut Client) -> Result<Listing, ClientError> {
        let family = Some(&*self.family);
        let instances = client.list(QueryKind::Instances, family).await?;
        let ended = client.ended_history(family).await?;
        let nodes = client.list(QueryKind::Nodes, None).await?;
        Ok(Listing {
            instances: instances.instances,
            ended,
            nodes: nodes.nodes,
        })
    }

    fn entries(listing: &Listing) -> usize {
        listing.instances.len() + listing.ended.instances.len() + listing.nodes.len()
    }
}

/// Sends the command, waits for its answer and passes that on. Only a closed connection is an error here; a refusal is
/// the client's to read.
async fn migrate(
    client: &mut Client,
    migrate: Migrate,
    answer: oneshot::Sender<Result<(), String>>,
) -> Result<(), ClientError> {
    let done = client.order(&LifecycleOrder::Migrate(migrate)).await;
    let closed = matches!(done, Err(ClientError::Closed(_)));
    let answered = done.as_ref().map(drop).map_err(ToString::to_string);
    // The client may have gone.
    let _ = answer.send(answered);
    if closed { done } else { Ok(()) }
}
