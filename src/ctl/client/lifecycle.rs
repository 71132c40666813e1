//! The commands of a session that take a while: they are answered by events, or refused at once.

use proto_frames::Kind;
use proto_frames::payload::{
    Evacuate, Migrate, Payload, QueryKind, Restore, Resume, Suspend, Update,
};

use super::{Client, ClientError, Listing};

/// A command that changes the lifecycle of an instance.
///
/// The payloads must have passed their own check: the scheduler refuses others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleOrder {
    /// Suspend it.
    Suspend(Suspend),
    /// Resume it after a suspension.
    Resume(Resume),
    /// Move it.
    Migrate(Migrate),
    /// Change what it asks for.
    Update(Update),
}

impl Client {
    /// Sends a command on an instance's lifecycle and waits until the scheduler has taken it in. What comes of it
    /// comes as events.
    ///
    /// The caller must have subscribed to instances and failures before, or it misses the result.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the scheduler would not.
    pub async fn order(&mut self, order: &LifecycleOrder) -> Result<(), ClientError> {
        let (kind, payload) = match order {
            LifecycleOrder::Suspend(suspend) => (Kind::SUSPEND, suspend.encode()),
            LifecycleOrder::Resume(resume) => (Kind::RESUME, resume.encode()),
            LifecycleOrder::Migrate(migrate) => (Kind::MIGRATE, migrate.encode()),
            LifecycleOrder::Update(update) => (Kind::UPDATE, update.encode()),
        };
        self.command(kind, payload).await
    }

    /// Sends an EVACUATE that is not the original's and waits until the scheduler has taken it in.
    ///
    /// A scheduler that does not know modes would stop everything on the node: it is asked for its queue first, which
    /// only one that knows them has.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if the scheduler would not, [`ClientError::Query`] if it does not know modes.
    pub async fn relocate(&mut self, evacuate: &Evacuate) -> Result<(), ClientError> {
        self.knows_modes().await?;
        self.command(Kind::EVACUATE, evacuate.encode()).await
    }

    /// Sends a Restore that is not the original's and waits until the scheduler has taken it in.
    ///
    /// # Errors
    /// As [`Client::relocate`].
    pub async fn uncordon(&mut self, restore: &Restore) -> Result<(), ClientError> {
        self.knows_modes().await?;
        self.command(Kind::RESTORE, restore.encode()).await
    }

    /// What became of an instance so far, the oldest first, and where the output of its runs is.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn history(&mut self, instance_uuid: &str) -> Result<Listing, ClientError> {
        self.list(QueryKind::History, Some(instance_uuid)).await
    }

    /// One round trip before each such command. The answer itself is not used.
    async fn knows_modes(&mut self) -> Result<(), ClientError> {
        let mut smallest = self.query_for(QueryKind::Queue, None);
        smallest.limit = Some(1);
        self.ask(smallest).await.map(drop)
    }
}
