//! Finding the scheduler: rounds over the configured addresses, with growing pauses between them, until a connection
//! stands or an error says that no further try can succeed.
//!
//! One [`Dialler`] belongs to one node. After a lost connection the run loop tells it how long that lived
//! ([`Dialler::lost`]) and dials with a clone of it.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::config::{Config, LauncherError};
use super::leader_term::LeaderTerm;
use crate::net::address::{Backoff, Endpoint};
use crate::net::link::{ConnectError, Hello, Link, connect_first};

/// A connection that lived this long has ended for a reason of its own, and the next is tried soon. A shorter one may
/// well end the same way again: the pauses go on growing as if it had not stood.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// For how long after a loss another scheduler is expected to take the place of the one that is gone, where there are
/// several: their TTL, an election of etcd (3.3 s at most, as measured with its default settings), and the handshakes of
/// thousands that return at once.
const TAKE_OVER: Duration = Duration::from_secs(15);

/// The pauses between rounds meanwhile, random so that not all nodes come at once: a fail-over takes seconds, and growing
/// pauses would double that.
const TAKE_OVER_PAUSES: Range<Duration> = Duration::from_millis(300)..Duration::from_secs(1);

/// Longest pause before the first try after a stable connection. The actual one is random, so that thousands of
/// launchers do not return to a restarted scheduler in the same moment.
const RETURN_SPREAD: Duration = Duration::from_millis(500);

/// Tries to connect for one node.
#[derive(Debug, Clone)]
pub(super) struct Dialler {
    config: Arc<Config>,
    hello: Hello,
    /// Whose turn it is to command, among several schedulers.
    terms: LeaderTerm,
    /// Limits the tries at a time; shared by all nodes of the process.
    dials: Arc<Semaphore>,
    pauses: Pauses,
    random: fastrand::Rng,
    /// The pause before the next round.
    wait: Duration,
}

impl Dialler {
    pub(super) fn new(config: Arc<Config>, hello: Hello, dials: Arc<Semaphore>) -> Self {
        let pauses = Pauses {
            backoff: Backoff::new(1.0, config.reconnect_cap),
            cap: config.reconnect_cap,
            is_among_several: config.servers_said > 1,
        };
        let terms = LeaderTerm::of(&config.machine);
        Self {
            config,
            hello,
            terms,
            dials,
            pauses,
            random: fastrand::Rng::new(),
            wait: Duration::ZERO,
        }
    }

    /// Notes that a connection which had lived so long has ended, which sets the pause before the next round.
    pub(super) fn lost(&mut self, lived: Duration) {
        if lived >= STABLE_AFTER {
            self.pauses.backoff.reset();
            self.wait = RETURN_SPREAD
                .min(self.config.reconnect_cap)
                .mul_f64(self.random.f64());
        } else {
            self.wait = self.pauses.backoff.next_wait(&mut self.random);
        }
    }

    /// Tries until a connection stands.
    ///
    /// # Errors
    /// A refusal that further tries would only repeat, such as a certificate without the role.
    pub(super) fn dial(
        mut self,
    ) -> Pin<Box<dyn Future<Output = Result<Link, LauncherError>> + Send>> {
        Box::pin(async move {
            let since = Instant::now();
            loop {
                sleep(self.wait).await;
                match self.round().await {
                    Ok(link) => return Ok(link),
                    Err(error) if error.may_retry() => {}
                    Err(error) => return Err(error.into()),
                }
                self.wait = self.pauses.next(since.elapsed(), &mut self.random);
            }
        })
    }

    /// One round over all addresses, in order, up to the first that accepts. Failures are logged one by one.
    ///
    /// # Errors
    /// The first that no later try can help, else that of the last address.
    async fn round(&self) -> Result<Link, ConnectError> {
        // Never closed, so a turn always comes.
        let _turn = self.dials.acquire().await;
        let Config {
            endpoints,
            servers_said,
            tls,
            timeouts,
            ..
        } = &*self.config;
        let tls = tls.at_dial(Some(self.hello.uuid)).await;
        let said = &endpoints[..endpoints.len().min(*servers_said)];
        let failed = |_: &Endpoint, error: &ConnectError| {
            let advice = match error.is_elsewhere() {
                true => "; is ciao-scheduler there? (-server)",
                false => "",
            };
            warn!(event = "connect_failed", node = %self.hello.uuid, "cannot connect: {error}{advice}");
        };
        let (found, connected) =
            connect_first(endpoints, &tls, &self.hello, timeouts, failed).await?;
        let terms = self.terms.clone();
        let term = connected.connected.term;
        // To write a file blocks; a task that panics has not admitted it, and ends the launcher as others do.
        let admitted = spawn_blocking(move || terms.admit(term)).await;
        if let Ok(Err((term, known))) = admitted {
            let error = ConnectError::EarlierTerm {
                address: found.to_string(),
                term,
                known,
            };
            failed(found, &error);
            return Err(error);
        }
        // It may well be another cluster's, or one that was forgotten on this machine.
        if let Some(first) = said.first().filter(|_| !said.contains(found)) {
            warn!(
                event = "other_scheduler",
                node = %self.hello.uuid,
                "this is not the scheduler of -server ({first}), which cannot be reached: connected to {found} instead, an \
                 address of the CA certificate or this machine; mend -server if that is not meant"
            );
        }
        Ok(connected)
    }
}

/// The pauses between rounds.
#[derive(Debug, Clone)]
struct Pauses {
    backoff: Backoff,
    /// None is longer.
    cap: Duration,
    /// Whether there is more than one scheduler.
    is_among_several: bool,
}

impl Pauses {
    /// The one before the next round, when the first was so long ago.
    fn next(&mut self, since: Duration, random: &mut fastrand::Rng) -> Duration {
        if self.is_among_several && since < TAKE_OVER {
            let Range { start, end } = TAKE_OVER_PAUSES;
            return (start + (end - start).mul_f64(random.f64())).min(self.cap);
        }
        self.backoff.next_wait(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_another_of_several_schedulers_takes_over_the_pauses_stay_short() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut longest = |is_among_several, since| {
            let mut pauses = Pauses {
                backoff: Backoff::default(),
                cap: Duration::from_secs(30),
                is_among_several,
            };
            let pauses = (0..20).map(|_| pauses.next(since, &mut random));
            pauses.max().unwrap()
        };
        let just_before = TAKE_OVER.checked_sub(Duration::from_millis(1)).unwrap();
        assert!(longest(true, Duration::ZERO) < TAKE_OVER_PAUSES.end);
        assert!(longest(true, just_before) < TAKE_OVER_PAUSES.end);
        assert!(longest(true, TAKE_OVER) > TAKE_OVER_PAUSES.end);
        assert!(longest(false, Duration::ZERO) > TAKE_OVER_PAUSES.end);
    }
}
