//! Where to connect: host and port as people write them, the addresses a CA certificate suggests, and how long to wait
//! between rounds of trying them.
//!
//! ```text
//! node7                   node7:8888          the default port
//! 192.0.2.1:9000          192.0.2.1:9000
//! [2001:db8::1]:9000      [2001:db8::1]:9000  brackets where a port follows
//! ::1                     [::1]:8888
//! ```
//!
//! Nothing is resolved here; names are looked up when they are dialled.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

/// The port of SSNTP where none is given.
pub const DEFAULT_PORT: u16 = 8888;

/// The port on which the scheduler serves HTTP, where it does and no other is said.
pub const DEFAULT_HTTP_PORT: u16 = 8443;

/// The host tried last of all: a scheduler on the same machine.
pub const LAST_RESORT: &str = "localhost";

/// Upper bounds of the wait after the first, second, third and every later round in which no address answered; the
/// original's clients have the same. So a client begins its next round at most 40 s after the last.
pub const ROUND_WAITS: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
];

/// Where a scheduler listens, and by which name it proves itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Host name or IP address, without brackets; not empty, and without characters that no host has.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The name its certificate must be valid for, where that is not `host` (`-server-name`): for a tunnel, or an
    /// address that the certificate does not have.
    pub server_name: Option<String>,
}

/// Why text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address: {reason} (write host, host:port, 192.0.2.1:8888 or [2001:db8::1]:8888)"
)]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Endpoint {
    /// A host on the default port.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: DEFAULT_PORT,
            server_name: None,
        }
    }

    /// The same, with another name to expect in the certificate.
    #[must_use]
    pub fn with_server_name(self, name: Option<String>) -> Self {
        Self {
            server_name: name,
            ..self
        }
    }

    /// The name the certificate must be valid for.
    #[must_use]
    pub fn expected_name(&self) -> &str {
        self.server_name.as_deref().unwrap_or(&self.host)
    }
}

impl FromStr for Endpoint {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse_with_port(text, DEFAULT_PORT)
    }
}

impl Endpoint {
    /// Reads an address; where it has no port, this one. No name of a certificate is set.
    ///
    /// # Errors
    /// It is none: [`AddressError`] says why, with the forms that are taken.
    pub fn parse_with_port(text: &str, default_port: u16) -> Result<Self, AddressError> {
        let error = |reason| AddressError {
            text: text.to_owned(),
            reason,
        };
        let (host, port) = split(text).map_err(error)?;
        if host.is_empty() {
            return Err(error("the host is missing"));
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || "/[]@".contains(c)) {
            return Err(error("the host has characters that no host has"));
        }
        let port = match port {
            None => default_port,
            Some(digits) => match digits.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(error("the port is no number from 1 to 65535")),
            },
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            server_name: None,
        })
    }
}

impl fmt::Display for Endpoint {
    /// `host:port`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(v6)) => write!(f, "[{v6}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Host and port as they are written, brackets taken off. An IPv6 address without brackets is a host without a port.
///
/// # Errors
/// What is wrong, for [`AddressError::reason`].
fn split(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, behind) = rest.split_once(']').ok_or("a bracket is not closed")?;
        host.parse::<Ipv6Addr>()
            .map_err(|_| "what is in the brackets is no IPv6 address")?;
        return match behind {
            "" => Ok((host, None)),
            _ => behind
                .strip_prefix(':')
                .map(|port| (host, Some(port)))
                .ok_or("a port begins with a colon"),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((_, port)) if port.contains(':') => {
            Err("it has several colons; an IPv6 address with a port needs brackets")
        }
        Some((host, port)) => Ok((host, Some(port))),
    }
}

/// Where the original's clients look for the scheduler, in their order: the configured address, then the names in the
/// CA certificate ([`crate::net::tls::TrustAnchors::server_names`]), then localhost. Each once.
///
/// The configured address's port (else the default one) and expected name hold for all of them. Names with a wildcard
/// (`*.example`) are left out: they are no addresses.
#[must_use]
pub fn candidates(configured: Option<&Endpoint>, suggested: &[String]) -> Vec<Endpoint> {
    let port = configured.map_or(DEFAULT_PORT, |endpoint| endpoint.port);
    let name = configured.and_then(|endpoint| endpoint.server_name.clone());
    let hosts = configured.iter().map(|endpoint| &*endpoint.host);
    let hosts = hosts
        .chain(suggested.iter().map(String::as_str))
        .chain([LAST_RESORT]);
    let mut found: Vec<Endpoint> = Vec::new();
    for host in hosts {
        if !host.starts_with('*') && found.iter().all(|endpoint| endpoint.host != host) {
            found.push(Endpoint {
                host: host.to_owned(),
                port,
                server_name: name.clone(),
            });
        }
    }
    found
}

/// How long to wait after each round of trying: random, so that a thousand launchers do not come back at once, and
/// growing to a cap. Holds no clock and no randomness of its own: who waits passes that in.
#[derive(Debug, Clone)]
pub struct Backoff {
    /// Rounds without an answer so far.
    round: usize,
    /// What each wait is multiplied with.
    scale: f64,
    /// No round's bound is longer, before it is scaled.
    cap: Duration,
}

impl Backoff {
    /// The original's waits ([`ROUND_WAITS`]), none longer than `cap`, all multiplied by `scale` (tests make it small).
    #[must_use]
    pub fn new(scale: f64, cap: Duration) -> Self {
        Self {
            round: 0,
            scale,
            cap,
        }
    }

    /// The wait after one more round without an answer: between a tenth of the round's bound and the bound.
    pub fn next_wait(&mut self, random: &mut fastrand::Rng) -> Duration {
        let bound = ROUND_WAITS[self.round.min(ROUND_WAITS.len() - 1)].min(self.cap);
        self.round += 1;
        bound.mul_f64(self.scale * (0.1 + 0.9 * random.f64()))
    }

    /// A connection was established: the next wait is one after a first round again.
    pub fn reset(&mut self) {
        self.round = 0;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(1.0, Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, Endpoint, ROUND_WAITS, candidates};

    fn endpoint(text: &str) -> Endpoint {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_read_with_and_without_a_port() {
        for (text, host, port) in [
            ("node7", "node7", 8888),
            ("node7:9000", "node7", 9000),
            ("192.0.2.1:1", "192.0.2.1", 1),
            ("::1", "::1", 8888),
            ("[::1]", "::1", 8888),
            ("[2001:db8::1]:9000", "2001:db8::1", 9000),
        ] {
            let read = endpoint(text);
            assert_eq!((read.host.as_str(), read.port), (host, port), "{text}");
            assert_eq!(
                endpoint(&read.to_string()),
                read,
                "{text} survives being printed"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "host is missing"),
            (":9000", "host is missing"),
            ("node7:", "port is no number"),
            ("node7:0", "port is no number"),
            ("node7:65536", "port is no number"),
            ("2001:db8::1:x", "several colons"),
            ("[::1", "not closed"),
            ("[node7]:1", "no IPv6 address"),
            ("[::1]9000", "begins with a colon"),
            ("tls://node7", "port is no number"),
            ("a b", "characters that no host has"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_configured_address_comes_first_and_localhost_last_and_none_twice() {
        let suggested = [
            "192.0.2.1".to_owned(),
            "sched.example".to_owned(),
            "*.example".to_owned(),
        ];
        let configured =
            endpoint("sched.example:9000").with_server_name(Some("localhost".to_owned()));
        let found = candidates(Some(&configured), &suggested);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["sched.example:9000", "192.0.2.1:9000", "localhost:9000"]
        );
        assert!(
            found
                .iter()
                .all(|endpoint| endpoint.expected_name() == "localhost")
        );
        assert_eq!(candidates(None, &[]), [Endpoint::new("localhost")]);
    }

    #[test]
    fn waits_grow_to_the_last_bound_and_stay_within_each() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::default();
        for bound in ROUND_WAITS.into_iter().chain([ROUND_WAITS[3]; 3]) {
            let wait = backoff.next_wait(&mut random);
            assert!(wait <= bound && wait >= bound / 10, "{wait:?} of {bound:?}");
        }
        backoff.reset();
        assert!(backoff.next_wait(&mut random) <= ROUND_WAITS[0]);
    }

    #[test]
    fn waits_are_spread_capped_and_scaled() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut backoff = Backoff::new(0.001, Duration::from_secs(8));
        let waits: Vec<_> = (0..200).map(|_| backoff.next_wait(&mut random)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(8)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(7)));
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(2)));
    }
}
