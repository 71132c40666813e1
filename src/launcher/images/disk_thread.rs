//! A thread that hashes and writes what is fetched, at a low priority: a program that comes is to take a processor from
//! nothing that runs on the node, nor from the launcher's answers to the scheduler.

use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

/// By how much the thread is nicer than its process (nice(2)): it has a tenth of what a thread at 0 has beside it on the
/// same processor, so that it goes on where all are busy.
const NICER: i32 = 10;

/// Work for the thread, which answers by itself.
type Job = Box<dyn FnOnce() + Send>;

/// The thread of one fetch. It ends once this is dropped and its work is done.
#[derive(Debug)]
pub(super) struct DiskThread {
    /// One at a time: a fetch waits for each.
    jobs: mpsc::SyncSender<Job>,
}

impl DiskThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(1);
        thread::Builder::new()
            .name("fetch".to_owned())
            .spawn(move || {
                // On Linux it is that of the thread, not of its process. Where the system refuses, it stays as it is.
                let _ = rustix::process::nice(NICER);
                for job in queue {
                    job();
                }
            })?;
        Ok(Self { jobs })
    }

    /// Does this on the thread. It is done as well if the wait is given up.
    ///
    /// # Errors
    /// Its own; or the thread has panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let gone = |_| io::Error::other("the thread that writes it has panicked");
        let (done, result) = oneshot::channel();
        let job = Box::new(move || {
            let _ = done.send(work());
        });
        self.jobs.try_send(job).map_err(|error| {
            io::Error::other(format!("the thread that writes it takes no work: {error}"))
        })?;
        result.await.map_err(gone)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_thread_is_nicer_than_its_process_and_it_alone() {
        let before = rustix::process::nice(0).unwrap();
        let thread = DiskThread::start().unwrap();
        let nicer = thread.run(|| Ok(rustix::process::nice(0)?)).await.unwrap();
        assert_eq!(nicer, (before + NICER).min(19));
        assert_eq!(rustix::process::nice(0).unwrap(), before);
    }

    #[tokio::test]
    async fn work_is_done_in_its_order_and_a_panic_is_an_error() {
        let thread = DiskThread::start().unwrap();
        assert_eq!(thread.run(|| Ok(1)).await.unwrap(), 1);
        let failed = thread.run(|| Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(failed.await.unwrap_err().kind(), io::ErrorKind::NotFound);
        let error = thread.run::<()>(|| panic!("injected")).await.unwrap_err();
        assert!(error.to_string().contains("has panicked"), "{error}");
        assert!(thread.run(|| Ok(())).await.is_err());
    }
}
