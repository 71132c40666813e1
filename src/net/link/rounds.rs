//! Which addresses a client tries, in which order, and how long each.
//!
//! ```text
//! connect_first ─ each endpoint ─▶ Round: Dials ─ each address ─▶ Opening ─▶ Link
//!       ▲                                              └ slow: once more, for twice as long ─┐
//!       └───────────────────────────────────────────────────────────────────────────────────┘
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::lookup_host;

use super::connect::{ConnectError, Opening, Timeouts};
use super::{Hello, Link};
use crate::net::address::Endpoint;
use crate::net::dial::Dials;

/// How long a handshake may take at first while there is another address to try; then twice as long. A scheduler answers
/// within milliseconds, unless thousands come to it at once.
pub const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// Connects to one endpoint: as [`connect_first`] with no other.
///
/// # Errors
/// [`ConnectError`]. One that no other try can help ends it at once; else the last one where there are several
/// addresses.
pub async fn connect(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
    hello: &Hello,
    timeouts: &Timeouts,
) -> Result<Link, ConnectError> {
    let only = std::slice::from_ref(endpoint);
    let (_, link) = connect_first(only, tls, hello, timeouts, |_, _| {}).await?;
    Ok(link)
}

/// Connects to the first of these endpoints that lets us, which is returned beside the link, and waits for CONNECTED: one
/// round, in order, without waiting between them. The addresses of one name are tried staggered (250 ms apart). Then a
/// task serves the link until it ends. `failed` is called for each endpoint that does not let us, also for the last.
///
/// A handshake that takes long is given up while there is another address to try ([`FIRST_PATIENCE`]): a scheduler that
/// is stopped accepts connections and says nothing. One that is merely busy may take as long, so those that were given
/// up are tried again after the others, with twice the time for each.
///
/// # Errors
/// The first error that no later try can help ([`ConnectError::may_retry`]), else the last one.
pub async fn connect_first<'a>(
    endpoints: &'a [Endpoint],
    tls: &Arc<ClientConfig>,
    hello: &Hello,
    timeouts: &Timeouts,
    mut failed: impl FnMut(&Endpoint, &ConnectError),
) -> Result<(&'a Endpoint, Link), ConnectError> {
    let mut last = ConnectError::NoEndpoint;
    let mut candidates: Vec<Candidate<'_>> = endpoints.iter().map(Candidate::new).collect();
    // Of a short time there is to be some left for the others.
    let mut patience = FIRST_PATIENCE.min(timeouts.handshake / 4);
    while !candidates.is_empty() {
        let count = candidates.len();
        let mut slow = Vec::new();
        for candidate in candidates {
            let round = Round {
                patience,
                has_others: count > 1,
                tls,
                hello,
                timeouts,
            };
            let endpoint = candidate.endpoint;
            match round.run(candidate).await {
                Ok(link) => return Ok((endpoint, link)),
                Err(failure) => {
                    failed(endpoint, &failure.error);
                    if !failure.error.may_retry() {
                        return Err(failure.error);
                    }
                    last = failure.error;
                    slow.extend(failure.slow);
                }
            }
        }
        candidates = slow;
        patience *= 2;
    }
    Err(last)
}

/// An endpoint, and which of its addresses are to be tried.
struct Candidate<'a> {
    endpoint: &'a Endpoint,
    /// `None` = those that its name has.
    addresses: Option<Vec<SocketAddr>>,
}

impl<'a> Candidate<'a> {
    fn new(endpoint: &'a Endpoint) -> Self {
        Self {
            endpoint,
            addresses: None,
        }
    }

    /// The addresses, looked up where that is to be done.
    async fn resolve(&mut self) -> Result<Vec<SocketAddr>, ConnectError> {
        if let Some(addresses) = self.addresses.take() {
            return Ok(addresses);
        }
        let Endpoint { host, port, .. } = self.endpoint;
        let unknown = |source| ConnectError::Resolve {
            host: host.clone(),
            source,
        };
        let found = lookup_host((host.as_str(), *port)).await.map_err(unknown)?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        // A hosts file may say the same twice.
        for address in found {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        match addresses.is_empty() {
            true => Err(unknown(io::Error::other("it has none"))),
            false => Ok(addresses),
        }
    }
}

/// Why a round over the addresses of one endpoint came to nothing.
struct RoundFailure<'a> {
    error: ConnectError,
    /// The addresses whose handshakes were given up for others.
    slow: Option<Candidate<'a>>,
}

impl From<ConnectError> for RoundFailure<'_> {
    fn from(error: ConnectError) -> Self {
        Self { error, slow: None }
    }
}

/// One round over the addresses of an endpoint.
struct Round<'a> {
    /// How long a handshake may take while another address is left.
    patience: Duration,
    /// Whether there are addresses of other endpoints.
    has_others: bool,
    tls: &'a Arc<ClientConfig>,
    hello: &'a Hello,
    timeouts: &'a Timeouts,
}

impl Round<'_> {
    /// Tries the addresses until one lets us, or an error says that none will.
    async fn run<'e>(self, mut candidate: Candidate<'e>) -> Result<Link, RoundFailure<'e>> {
        let endpoint = candidate.endpoint;
        let expected = endpoint.expected_name();
        let name = ServerName::try_from(expected.to_owned())
            .map_err(|_| ConnectError::BadServerName(expected.to_owned()))?;
        let addresses = candidate.resolve().await?;
        let mut dials = Dials::new(addresses, self.timeouts.dial);
        let mut slow: Vec<SocketAddr> = Vec::new();
        let mut last = ConnectError::NoEndpoint;
        while let Some((address, dialled)) = dials.next().await {
            let stream = match dialled {
                Ok(stream) => stream,
                Err(source) => {
                    last = ConnectError::dial(address, source, self.timeouts.dial);
                    continue;
                }
            };
            let full = self.timeouts.handshake;
            let has_others = self.has_others || dials.has_more() || !slow.is_empty();
            let limit = match has_others {
                true => self.patience.min(full),
                false => full,
            };
            let opening = Opening {
                address,
                name: name.clone(),
                tls: self.tls,
                hello: self.hello,
                timeouts: self.timeouts,
            };
            match opening.run(stream, limit).await {
                Err(error @ ConnectError::TimedOut { .. }) if limit < full => {
                    slow.push(address);
                    last = error;
                }
                Err(error) if error.may_retry() => last = error,
                settled => return settled.map_err(RoundFailure::from),
            }
        }
        let slow = (!slow.is_empty()).then_some(Candidate {
            endpoint,
            addresses: Some(slow),
        });
        Err(RoundFailure { error: last, slow })
    }
}
