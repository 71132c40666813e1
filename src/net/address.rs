//! Where to connect: host and port as people write them, the addresses a CA certificate suggests, and how long to wait
//! between rounds of trying them.
//!
//! ```text
//! node7                   node7:8888          the default port
//! 192.0.2.1:9000          192.0.2.1:9000
//! [2001:db8::1]:9000      [2001:db8::1]:9000  brackets where a port follows
//! ::1                     [::1]:8888
//! [fe80::1%eth0]:9000     [fe80::1%eth0]:9000 the interface of a link-local address
//! 8889                                        refused: the system would read it as 0.0.34.185
//! ```
//!
//! Names are looked up when they are dialled, those to listen at by [`listen_address`].

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::time::Duration;

/// The port of SSNTP where none is given.
pub const DEFAULT_PORT: u16 = 8888;

/// The port on which the scheduler serves HTTP, where it does and no other is said.
pub const DEFAULT_HTTP_PORT: u16 = 8443;

/// The port of OpenStack's Placement API, where no other is said.
pub const DEFAULT_PLACEMENT_PORT: u16 = 8778;

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

    /// The name the certificate must be valid for. No certificate has the interface of a link-local address.
    #[must_use]
    pub fn expected_name(&self) -> &str {
        let host = self.host.split('%').next().unwrap_or_default();
        self.server_name.as_deref().unwrap_or(host)
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
        check_host(host).map_err(error)?;
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
        match is_ipv6(&self.host) {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
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
        if !is_ipv6(host) {
            return Err("what is in the brackets is no IPv6 address");
        }
        return match behind {
            "" => Ok((host, None)),
            _ => behind
                .strip_prefix(':')
                .map(|port| (host, Some(port)))
                .ok_or("a port begins with a colon"),
        };
    }
    if is_ipv6(text) {
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

/// Whether it is an IPv6 address, with or without an interface (`fe80::1%eth0`, RFC 4007).
fn is_ipv6(host: &str) -> bool {
    let (address, interface) = match host.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (host, None),
    };
    let is_name = |name: &str| {
        name.chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    address.parse::<Ipv6Addr>().is_ok()
        && interface.is_none_or(|name| !name.is_empty() && is_name(name))
}

/// Refuses what is no host. Names whose last part is a number are none: the system would read them as an IPv4 address of
/// fewer parts, `8889` as 0.0.34.185.
///
/// # Errors
/// What is wrong, for [`AddressError::reason`].
fn check_host(host: &str) -> Result<(), &'static str> {
    let last = host.rsplit('.').next().unwrap_or_default();
    let digits = last.strip_prefix("0x").unwrap_or(last);
    let is_number = !last.is_empty()
        && match digits == last {
            true => last.bytes().all(|byte| byte.is_ascii_digit()),
            false => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        };
    if host.is_empty() {
        Err("the host is missing")
    } else if is_ipv6(host) {
        Ok(())
    } else if host.contains(|c: char| c.is_whitespace() || c.is_control() || "/[]@%".contains(c)) {
        Err("the host has characters that no host has")
    } else if is_number && host.parse::<Ipv4Addr>().is_err() {
        Err(match host.parse::<u16>() {
            Ok(_) => "a number alone is no host; a port stands behind one",
            Err(_) => "no host's name ends in a number, and an IPv4 address has four parts",
        })
    } else {
        Ok(())
    }
}

/// Reads an address to listen at, as people write it; where it has no port, this one. A name is looked up, and its first
/// address taken. Port 0 is any free one.
///
/// # Errors
/// Why it is none, and what to write.
pub fn listen_address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    let alone = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = alone.parse::<u16>() {
        return Err(format!(
            "a port alone does not say where; write 127.0.0.1:{port}, or [::]:{port} for all interfaces"
        ));
    }
    let advised = |reason: &str| format!("{reason}; expected HOST:PORT");
    let (host, port) = split(text).map_err(advised)?;
    check_host(host).map_err(advised)?;
    let port = match port.map(str::parse::<u16>) {
        None => default_port,
        Some(Ok(port)) => port,
        Some(Err(_)) => return Err(advised("the port is no number up to 65535")),
    };
    let mut found = (host, port)
        .to_socket_addrs()
        .map_err(|error| advised(&error.to_string()))?;
    found
        .next()
        .ok_or_else(|| format!("'{text}' has no address"))
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

    use super::{Backoff, Endpoint, ROUND_WAITS, candidates, listen_address};

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
            ("fe80::1%eth0", "fe80::1%eth0", 8888),
            ("[fe80::1%br-0.7]:9000", "fe80::1%br-0.7", 9000),
            ("1a", "1a", 8888),
            ("node.7b:1", "node.7b", 1),
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
            ("8889", "a number alone is no host"),
            ("8889:8888", "a number alone is no host"),
            ("127.1", "four parts"),
            ("192.0.2.256:1", "four parts"),
            ("0x7f.1:8888", "four parts"),
            ("node.0x1f", "four parts"),
            ("99999999", "four parts"),
            ("[fe80::1%]:1", "no IPv6 address"),
            ("[fe80::1%a b]:1", "no IPv6 address"),
            ("192.0.2.1%eth0", "characters that no host has"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn addresses_to_listen_at_are_read_and_a_port_alone_is_not_taken_for_one() {
        for (text, expected) in [
            ("127.0.0.1", "127.0.0.1:8888"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("::1", "[::1]:8888"),
            ("[::]:9000", "[::]:9000"),
            // The loopback interface is number 1 on Linux.
            ("[fe80::1%lo]:9000", "[fe80::1%1]:9000"),
        ] {
            let read = listen_address(text, 8888).unwrap();
            assert_eq!(read.to_string(), expected, "{text}");
        }
        for (text, reason) in [
            (
                "8889",
                "write 127.0.0.1:8889, or [::]:8889 for all interfaces",
            ),
            (":8889", "write 127.0.0.1:8889"),
            ("8889:8889", "a number alone is no host"),
            ("127.1:8888", "four parts"),
            ("127.0.0.1:x", "the port is no number"),
            ("", "the host is missing"),
        ] {
            let error = listen_address(text, 8888).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn the_name_that_is_expected_has_no_interface() {
        let read = endpoint("[fe80::1%eth0]:1");
        assert_eq!(read.expected_name(), "fe80::1");
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
