//! Calls of one scheduler's process on their way to etcd and back: futures that the world polls when an answer has come.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use ciao_etcd::{Error, KeyValue, Txn, TxnAnswer};
use ciao_scheduler::cluster::{EtcdCalls, Leading};

/// What is called.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Grant(Duration),
    KeepAlive(i64),
    Revoke(i64),
    Txn(Txn),
    Get(Vec<u8>),
    List(Vec<u8>),
    /// No call of etcd: time is to pass.
    Pause(Duration),
}

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Lease(i64),
    Done,
    Txn(TxnAnswer),
    Got(Option<KeyValue>),
    Listed(Vec<KeyValue>),
}

/// The calls of a process. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calls(Rc<RefCell<Mail>>);

#[derive(Debug, Default)]
struct Mail {
    count: u64,
    /// Put out, and not on its way yet.
    out: Vec<(u64, Request)>,
    /// Put in, and not taken by who waits for it.
    answers: BTreeMap<u64, Result<Reply, Error>>,
    /// Waited for.
    open: std::collections::BTreeSet<u64>,
    now: Duration,
    leads: bool,
    is_refused: bool,
}

impl Calls {
    /// What is to be sent.
    pub(crate) fn take(&self) -> Vec<(u64, Request)> {
        std::mem::take(&mut self.0.borrow_mut().out)
    }

    /// An answer has come, or the call has failed: the first of them counts.
    pub(crate) fn answer(&self, number: u64, answer: Result<Reply, Error>) {
        let mut mail = self.0.borrow_mut();
        if mail.open.remove(&number) {
            mail.answers.insert(number, answer);
        }
    }

    /// What the process knows when it goes on.
    pub(crate) fn set(&self, now: Duration, leads: bool) {
        let mut mail = self.0.borrow_mut();
        mail.now = now;
        mail.leads = leads;
    }

    /// Whether etcd has refused a write because another leads, since this was asked last.
    pub(crate) fn was_refused(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().is_refused)
    }

    async fn call(&self, request: Request) -> Result<Reply, Error> {
        let number = {
            let mut mail = self.0.borrow_mut();
            mail.count += 1;
            let number = mail.count;
            mail.out.push((number, request));
            mail.open.insert(number);
            number
        };
        poll_fn(|_| match self.0.borrow_mut().answers.remove(&number) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }
}

impl EtcdCalls for Calls {
    async fn grant(&self, ttl: Duration) -> Result<i64, Error> {
        match self.call(Request::Grant(ttl)).await? {
            Reply::Lease(lease) => Ok(lease),
            other => unreachable!("{other:?}"),
        }
    }

    async fn keep_alive(&self, lease: i64) -> Result<(), Error> {
        self.call(Request::KeepAlive(lease)).await.map(|_| ())
    }

    async fn revoke(&self, lease: i64) -> Result<(), Error> {
        self.call(Request::Revoke(lease)).await.map(|_| ())
    }

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Error> {
        match self.call(Request::Txn(txn)).await? {
            Reply::Txn(answer) => Ok(answer),
            other => unreachable!("{other:?}"),
        }
    }

    async fn get(&self, key: Vec<u8>) -> Result<Option<KeyValue>, Error> {
        match self.call(Request::Get(key)).await? {
            Reply::Got(found) => Ok(found),
            other => unreachable!("{other:?}"),
        }
    }

    async fn list(&self, prefix: Vec<u8>) -> Result<Vec<KeyValue>, Error> {
        match self.call(Request::List(prefix)).await? {
            Reply::Listed(found) => Ok(found),
            other => unreachable!("{other:?}"),
        }
    }
}

impl Leading for Calls {
    fn leads(&self) -> bool {
        self.0.borrow().leads
    }

    fn refused(&self) {
        self.0.borrow_mut().is_refused = true;
    }

    fn now(&self) -> Duration {
        self.0.borrow().now
    }

    async fn pause(&self, time: Duration) {
        let _ = self.call(Request::Pause(time)).await;
    }
}
