//! Finding the scheduler: round after round over the addresses, with waits between, until a connection stands or the
//! scheduler says that no try will help.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::warn;

use super::config::{Config, LauncherError};
use crate::net::address::Backoff;
use crate::net::link::{ConnectError, Hello, Link, connect_first};

/// A connection that lived so long ended for a reason of its own: the next is tried soon. One that did not may well end
/// the same way again: it is tried as if it had never stood.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// Longest wait before the first try after a stable connection: spreads the return of thousands of launchers.
const RETURN_SPREAD: Duration = Duration::from_millis(500);

/// Dials for one node.
#[derive(Debug, Clone)]
pub(super) struct Dialler {
    config: Arc<Config>,
    hello: Hello,
    /// Shared by all nodes of the process.
    dials: Arc<Semaphore>,
    backoff: Backoff,
    random: fastrand::Rng,
    wait: Duration,
}

impl Dialler {
    pub(super) fn new(config: Arc<Config>, hello: Hello, dials: Arc<Semaphore>) -> Self {
        let backoff = Backoff::new(1.0, config.reconnect_cap);
        Self {
            config,
            hello,
            dials,
            backoff,
            random: fastrand::Rng::new(),
            wait: Duration::ZERO,
        }
    }

    /// A connection that had lived so long ended.
    pub(super) fn lost(&mut self, lived: Duration) {
        if lived >= STABLE_AFTER {
            self.backoff.reset();
            self.wait = RETURN_SPREAD
                .min(self.config.reconnect_cap)
                .mul_f64(self.random.f64());
        } else {
            self.wait = self.backoff.next_wait(&mut self.random);
        }
    }

    /// Tries until a connection stands.
    pub(super) fn dial(
        mut self,
    ) -> Pin<Box<dyn Future<Output = Result<Link, LauncherError>> + Send>> {
        Box::pin(async move {
            loop {
                sleep(self.wait).await;
                match self.round().await {
                    Ok(link) => return Ok(link),
                    Err(error) if error.may_retry() => {}
                    Err(error) => return Err(error.into()),
                }
                self.wait = self.backoff.next_wait(&mut self.random);
            }
        })
    }

    async fn round(&self) -> Result<Link, ConnectError> {
        // Never closed, so a turn always comes.
        let _turn = self.dials.acquire().await;
        let Config {
            endpoints,
            tls,
            timeouts,
            ..
        } = &*self.config;
        connect_first(endpoints, tls, &self.hello, timeouts, |_, error| {
            let advice = match error.is_elsewhere() {
                true => "; is ciao-scheduler there? (-server)",
                false => "",
            };
            warn!(event = "connect_failed", node = %self.hello.uuid, "cannot connect: {error}{advice}");
        })
        .await
    }
}
