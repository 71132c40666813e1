//! Leases: keys that end with them unless they are kept alive.

use std::time::Duration;

use prost::Message;
use tokio_stream::Stream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::{Client, Error};
use crate::messages::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest,
};

impl Client {
    /// A lease of at least this time, in whole seconds, and its number. Not repeated: one that was granted and not
    /// answered ends by itself.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NoSpace`] where etcd is full.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, Error> {
        let ttl = ttl.as_millis().div_ceil(1000).max(1);
        let request = LeaseGrantRequest {
            ttl: i64::try_from(ttl).unwrap_or(i64::MAX),
            id: 0,
        };
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let answer: LeaseGrantResponse = self.once(path, request).await?;
        Ok(answer.id)
    }

    /// Ends a lease, and the keys with it.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NoSuchLease`] where it has ended already.
    pub async fn revoke(&self, lease: i64) -> Result<(), Error> {
        let request = LeaseRequest { id: lease };
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let _: crate::messages::Done = self.repeated(path, request).await?;
        Ok(())
    }

    /// Has a lease begin its time again.
    ///
    /// One stream for each call: etcd sends a stream's headers with its first answer, so that the request has to be in
    /// it when it is opened.
    ///
    /// # Errors
    /// [`Error`]; [`Error::NoSuchLease`] where it has ended.
    pub async fn keep_alive(&self, lease: i64) -> Result<(), Error> {
        let member = self.current();
        self.be_known(member).await?;
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        let request = tokio_stream::once(LeaseRequest { id: lease });
        let answer = self.in_time(async {
            let mut answers = self.streaming(member, path, request).await?;
            let answer: Option<LeaseKeepAliveResponse> = answers.message().await?;
            answer.ok_or_else(|| Status::unavailable("etcd ended the stream"))
        });
        let answer = answer.await;
        if let Err(Error::Unanswered(_)) = &answer {
            self.leave(member);
        }
        match answer?.ttl {
            1.. => Ok(()),
            _ => Err(Error::NoSuchLease),
        }
    }

    /// Opens a stream at this member; its requests are sent as it is opened.
    pub(super) async fn streaming<Q, A>(
        &self,
        member: usize,
        path: &'static str,
        requests: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let request = self.with_token(member, requests).await?;
        let mut grpc = self.grpc(member).await?;
        let path = PathAndQuery::from_static(path);
        let answers = grpc.streaming(request, path, ProstCodec::<Q, A>::default());
        Ok(answers.await?.into_inner())
    }
}
