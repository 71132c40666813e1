//! What goes over the connection with the scheduler as a controller; [`ciao_adapter::session`] keeps that connection.
//! The workers' connections are others, in [`node`](crate::node).

use bytes::Bytes;
use ciao_adapter::session::{self, Requests};
use ciao_scheduler::ctl::client::{Client, ClientError, Ended};
use proto_frames::payload::{Delete, InstanceView, QueryKind, Topic};

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
pub(crate) struct Listing {
    /// Those that have not ended.
    pub(crate) instances: Vec<InstanceView>,
    /// Those that have ended and are still remembered, the oldest first.
    pub(crate) ended: Ended,
}

/// What the session reports to the coordinator.
pub(crate) type SessionEvent = session::SessionEvent<Ask, Listing>;

/// How the scheduler is asked about our instances.
#[derive(Debug, Clone)]
pub(crate) struct InstanceRequests {
    /// The first eight hex digits of the UUIDs of our instances.
    pub(crate) family: String,
}

impl Requests for InstanceRequests {
    type Ask = Ask;
    type Listing = Listing;

    const TOPICS: &'static [Topic] = &[Topic::Instances, Topic::Failures];

    async fn send(&mut self, client: &mut Client, ask: Ask) -> Result<(), ClientError> {
        match ask {
            Ask::Start(payload) => client.submitter().submit(payload).await?,
            Ask::Delete(delete) => client.delete(&delete).await?,
        }
        Ok(())
    }

    async fn list(&mut self, client: &mut Client) -> Result<Listing, ClientError> {
        let family = Some(&*self.family);
        let instances = client.list(QueryKind::Instances, family).await?;
        Ok(Listing {
            instances: instances.instances,
            ended: client.ended_history(family).await?,
        })
    }

    fn entries(listing: &Listing) -> usize {
        listing.instances.len() + listing.ended.instances.len()
    }
}
