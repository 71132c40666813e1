//! Transactions: what has to be so, and what is done if it is.

use super::{Client, Error, range_end};
use crate::messages::{
    CompareRequest, CompareResult, CompareTarget, CompareTo, DeleteRangeRequest, KeyValue,
    PutRequest, RangeRequest, Request, RequestOp, Response, ResponseOp, TxnRequest, TxnResponse,
};

/// What has to be so of a key. A key that is not there has revisions of 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// It was made at this revision.
    Created(Vec<u8>, i64),
    /// It was written last at this revision.
    Modified(Vec<u8>, i64),
    /// It has this value; false of a key that is not there.
    Value(Vec<u8>, Vec<u8>),
}

/// What is done in a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A key gets a value, and a lease with which it ends.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// The lease; 0 = none.
        lease: i64,
    },
    /// A key is deleted, if it is there.
    Delete(Vec<u8>),
    /// All keys with this prefix are deleted.
    DeletePrefix(Vec<u8>),
    /// A key is read.
    Get(Vec<u8>),
}

/// A transaction: all of one list is done at one revision, or all of the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// What has to be so: all of it.
    pub compare: Vec<Compare>,
    /// Done if it is. etcd takes 128 in one transaction unless it is set to take more, and no key twice.
    pub then: Vec<Op>,
    /// Done if it is not.
    pub otherwise: Vec<Op>,
}

/// What a transaction came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TxnAnswer {
    /// Whether what had to be so was.
    pub succeeded: bool,
    /// The revision at which it was done.
    pub revision: i64,
    /// What each [`Op::Get`] found, in order.
    pub found: Vec<Option<KeyValue>>,
}

impl Client {
    /// Carries a transaction out, at one member, once.
    ///
    /// # Errors
    /// [`Error`]. After [`Error::Unanswered`] it may have been carried out, or may be later.
    pub async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Error> {
        let request = TxnRequest {
            compare: txn.compare.into_iter().map(compare).collect(),
            success: txn.then.into_iter().map(operation).collect(),
            failure: txn.otherwise.into_iter().map(operation).collect(),
        };
        let answer: TxnResponse = self.once("/etcdserverpb.KV/Txn", request).await?;
        Ok(TxnAnswer {
            succeeded: answer.succeeded,
            revision: answer.header.map_or(0, |header| header.revision),
            found: answer.responses.into_iter().filter_map(found).collect(),
        })
    }
}

fn compare(it: Compare) -> CompareRequest {
    let (target, key, to) = match it {
        Compare::Created(key, revision) => (
            CompareTarget::Create,
            key,
            CompareTo::CreateRevision(revision),
        ),
        Compare::Modified(key, revision) => {
            (CompareTarget::Mod, key, CompareTo::ModRevision(revision))
        }
        Compare::Value(key, value) => (CompareTarget::Value, key, CompareTo::Value(value)),
    };
    CompareRequest {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        to: Some(to),
    }
}

fn operation(op: Op) -> RequestOp {
    let request = match op {
        Op::Put { key, value, lease } => Request::Put(PutRequest { key, value, lease }),
        Op::Delete(key) => Request::Delete(DeleteRangeRequest {
            key,
            range_end: Vec::new(),
        }),
        Op::DeletePrefix(prefix) => Request::Delete(DeleteRangeRequest {
            range_end: range_end(&prefix),
            key: prefix,
        }),
        Op::Get(key) => Request::Range(RangeRequest {
            key,
            ..RangeRequest::default()
        }),
    };
    RequestOp {
        request: Some(request),
    }
}

/// What was read, where this is the answer to a read.
fn found(answer: ResponseOp) -> Option<Option<KeyValue>> {
    match answer.response {
        Some(Response::Range(range)) => Some(range.kvs.into_iter().next()),
        _ => None,
    }
}
