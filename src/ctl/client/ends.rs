//! What a client learns of instances that have ended.

use std::time::Duration;

use proto_frames::payload::{InstanceView, QueryKind};

use super::{Client, ClientError};

/// Instances that have ended, as far as the scheduler remembers them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// The oldest first; the same UUID can be there several times, once for each run.
    pub instances: Vec<InstanceView>,
    /// For how long, up to the answer, no end is missing among them: an instance that began within this time and is
    /// neither here nor among those that exist never ran.
    ///
    /// `None` = the scheduler does not say.
    pub complete_for: Option<Duration>,
    /// How many earlier ends the scheduler has forgotten, to stay within its memory.
    pub forgotten: u64,
}

impl Client {
    /// Instances that have ended, the oldest first; none from a scheduler that remembers none.
    ///
    /// The same UUID can be there several times, once for each run.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ended(
        &mut self,
        matching: Option<&str>,
    ) -> Result<Vec<InstanceView>, ClientError> {
        Ok(self.ended_history(matching).await?.instances)
    }

    /// The same of those alone that ended within this time: for who asks often, or wants the latest of very many.
    ///
    /// A scheduler that cannot tell gives all: the caller has to look at their age.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ended_within(
        &mut self,
        matching: Option<&str>,
        within: Duration,
    ) -> Result<Vec<InstanceView>, ClientError> {
        Ok(self.ends(matching, Some(within)).await?.instances)
    }

    /// The same, and how far back it is known to be complete.
    ///
    /// A scheduler that remembers none gives none, and does not say how far back.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn ended_history(&mut self, matching: Option<&str>) -> Result<Ended, ClientError> {
        self.ends(matching, None).await
    }

    async fn ends(
        &mut self,
        matching: Option<&str>,
        within: Option<Duration>,
    ) -> Result<Ended, ClientError> {
        let listing = self.all_pages(QueryKind::Ended, matching, within).await;
        match listing {
            // Those that the scheduler has learnt from launchers after a restart come in the order of nodes.
            Ok(listing) => {
                let mut instances = listing.instances;
                instances.sort_by_key(|view| view.ended_at_ms);
                Ok(Ended {
                    instances,
                    complete_for: listing.complete_for,
                    forgotten: listing.forgotten,
                })
            }
            Err(ClientError::Query { .. }) => Ok(Ended::default()),
            Err(error) => Err(error),
        }
    }
}
