//! Following a key as it changes.

use tokio_stream::StreamExt as _;
use tonic::Streaming;

use super::{Client, Error};
use crate::messages::{
    KeyValue, WatchCreateRequest, WatchEvent, WatchEventKind, WatchRequest, WatchRequestKind,
    WatchResponse,
};

/// A change of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It was written.
    Put(KeyValue),
    /// It was deleted, or its lease has ended.
    Deleted {
        /// The key.
        key: Vec<u8>,
        /// The revision of that.
        revision: i64,
    },
}

/// A key that is followed. Dropping it ends that.
#[derive(Debug)]
pub struct Watch {
    answers: Streaming<WatchResponse>,
}

impl Client {
    /// Follows a key, from this revision on; 0 = from now on. A member that stands alone sends nothing and says nothing:
    /// who has to know what is so reads besides.
    ///
    /// # Errors
    /// [`Error`]: it cannot be followed at this member.
    pub async fn watch(&self, key: &[u8], from_revision: i64) -> Result<Watch, Error> {
        let create = WatchCreateRequest {
            key: key.to_vec(),
            range_end: Vec::new(),
            start_revision: from_revision,
        };
        let create = WatchRequest {
            request: Some(WatchRequestKind::Create(create)),
        };
        // Open as long as the watch is: etcd ends it with its requests.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let member = self.current();
        self.be_known(member).await?;
        let opened = self.streaming(member, "/etcdserverpb.Watch/Watch", requests);
        let opened = self.in_time(opened).await;
        if let Err(Error::Unanswered(_)) = &opened {
            self.leave(member);
        }
        Ok(Watch { answers: opened? })
    }
}

impl Watch {
    /// The next changes, oldest first; waits for them without a deadline.
    ///
    /// # Errors
    /// [`Error`]: nothing more comes. [`Error::Compacted`] where what was to be followed from is gone.
    pub async fn next(&mut self) -> Result<Vec<Event>, Error> {
        loop {
            let Some(answer) = self.answers.message().await? else {
                return Err(Error::Unanswered("etcd ended the watch".to_owned()));
            };
            if answer.compact_revision != 0 {
                return Err(Error::Compacted);
            }
            if answer.canceled {
                return Err(Error::Refused(answer.cancel_reason));
            }
            let events: Vec<Event> = answer.events.into_iter().filter_map(event).collect();
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

fn event(event: WatchEvent) -> Option<Event> {
    let kind = event.kind();
    let key = event.kv?;
    Some(match kind {
        WatchEventKind::Put => Event::Put(key),
        WatchEventKind::Delete => Event::Deleted {
            revision: key.mod_revision,
            key: key.key,
        },
    })
}
