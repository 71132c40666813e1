//! The daemon's tasks, watched: one that ends without being asked to takes the daemon down with an error, because
//! without it the daemon would only look alive.
//!
//! Tasks of single connections are not among them: a panic there ends that connection alone ([`caught`]).

use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

/// A part of the daemon has ended that runs as long as the daemon. The program exits with it. The name is that given to
/// `Tasks::spawn`.
#[derive(Debug, thiserror::Error)]
#[error("internal error: the task '{name}' has ended: {why}")]
pub struct TaskEnded {
    name: &'static str,
    why: String,
}

/// The tasks that run as long as the daemon; ended when dropped. Dropping it aborts all of them, at their next await.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    set: JoinSet<String>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Runs a task that is not to end. If it returns nevertheless, that is an error: [`Tasks::first_end`] reports it.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.watch(name, async move {
            work.await;
            "it returned".to_owned()
        });
    }

    /// Waits beside the tasks for something that is not to happen; its outcome says what. Used for the store's thread
    /// and for sessions, which are no tasks of this set.
    pub(super) fn watch(
        &mut self,
        name: &'static str,
        failure: impl Future<Output = String> + Send + 'static,
    ) {
        let task = self.set.spawn(failure);
        self.names.insert(task.id(), name);
    }

    /// Waits until one of them has ended. A panic is reported with its message. Pending for ever if there is no task.
    pub(super) async fn first_end(&mut self) -> TaskEnded {
        let (id, why) = match self.set.join_next_with_id().await {
            Some(Ok((id, why))) => (id, why),
            Some(Err(error)) => {
                let id = error.id();
                let why = match error.try_into_panic() {
                    Ok(panic) => format!("it panicked: {}", said(&*panic)),
                    Err(error) => error.to_string(),
                };
                (id, why)
            }
            None => return std::future::pending().await,
        };
        TaskEnded {
            name: self.names.get(&id).copied().unwrap_or("unknown"),
            why,
        }
    }
}

/// Does something of which a panic is to end nothing but itself; what it said if it did. What the work holds is dropped
/// before this returns. `AssertUnwindSafe`: whatever the work shares with others must be sound after a panic; sessions
/// share the hub, whose locks do not poison and whose core is told of the end.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(said(&*panic).to_owned())),
        },
    )
    .await
}

/// Waits until a task says why something has failed; for ever if no task is left that could.
pub(crate) async fn told(mut failure: watch::Receiver<Option<String>>) -> String {
    let said = failure.wait_for(Option::is_some).await;
    match said.ok().and_then(|why| why.clone()) {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

/// What a panic said.
pub(super) fn said(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::{Tasks, caught};

    #[tokio::test]
    async fn a_task_that_panics_is_named_with_what_it_said() {
        let mut tasks = Tasks::default();
        tasks.spawn("time", std::future::pending());
        tasks.spawn("accept", async { panic!("injected {}", 7) });
        let ended = tasks.first_end().await.to_string();
        assert_eq!(
            ended,
            "internal error: the task 'accept' has ended: it panicked: injected 7"
        );
    }

    #[tokio::test]
    async fn a_task_that_just_returns_is_named_too() {
        let mut tasks = Tasks::default();
        tasks.spawn("time", std::future::pending());
        tasks.spawn("nodes", async {});
        tasks.watch("store", std::future::pending());
        let ended = tasks.first_end().await.to_string();
        assert!(ended.contains("'nodes' has ended: it returned"), "{ended}");
    }

    #[tokio::test]
    async fn a_caught_panic_leaves_nothing_behind() {
        struct DropFlag(Arc<AtomicBool>);
        impl Drop for DropFlag {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let given_back = Arc::new(AtomicBool::new(false));
        let place = DropFlag(Arc::clone(&given_back));
        let work = async move {
            let _place = place;
            tokio::task::yield_now().await;
            assert!(std::hint::black_box(false), "injected");
        };
        assert_eq!(caught(work).await, Err("injected".to_owned()));
        assert!(given_back.load(Ordering::SeqCst));
        assert_eq!(caught(async { 3 }).await, Ok(3));
    }
}
