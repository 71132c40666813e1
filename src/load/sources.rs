//! From which addresses of this machine the simulated launchers connect. An address has no more connections to one
//! scheduler than there are ephemeral ports, so many launchers need several.
//!
//! Not how a connection is made: that is [`peer`](crate::load::peer)'s.
//!
//! ```text
//! --sources 5                  127.0.0.2 … 127.0.0.6
//! --sources 10.0.0.7,10.0.0.8  these
//! no --sources                 the kernel's choice, or as many loopback addresses as the launchers need
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use crate::load::error::LoadError;

/// Most addresses: 127.0.0.2 to 127.0.0.254. A hundred thousand launchers need five.
pub const MAX_SOURCES: u8 = 253;

/// Where Linux says which ports it gives out.
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Ports given out per address where [`PORT_RANGE`] cannot be read: Linux's default, 32768 to 60999.
const DEFAULT_PORTS: usize = 28_232;

/// Addresses to connect from, as the command line has them.
///
/// Not yet known to be addresses of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources(Vec<IpAddr>);

impl Sources {
    /// The first so many loopback addresses behind 127.0.0.1, from 127.0.0.2; at most [`MAX_SOURCES`].
    #[must_use]
    pub fn loopback(count: u8) -> Self {
        let hosts = 2..=count.min(MAX_SOURCES) + 1;
        Self(
            hosts
                .map(|host| Ipv4Addr::new(127, 0, 0, host).into())
                .collect(),
        )
    }

    /// The addresses; never none.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.0
    }
}

impl FromStr for Sources {
    type Err = String;

    /// A number is a count, anything else a list.
    fn from_str(text: &str) -> Result<Self, String> {
        let help = format!(
            "write a number from 1 to {MAX_SOURCES}, or addresses with commas between them"
        );
        if let Ok(count) = text.parse::<u64>() {
            return match u8::try_from(count) {
                Ok(count @ 1..=MAX_SOURCES) => Ok(Self::loopback(count)),
                _ => Err(help),
            };
        }
        let address = |part: &str| {
            let part = part.trim();
            part.parse()
                .map_err(|_| format!("{part:?} is no address; {help}"))
        };
        let addresses = text
            .split(',')
            .map(address)
            .collect::<Result<Vec<_>, _>>()?;
        if addresses.len() > usize::from(MAX_SOURCES) {
            return Err(help);
        }
        Ok(Self(addresses))
    }
}

/// How launchers are spread over source addresses.
///
/// Empty: the kernel chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spread(Vec<IpAddr>);

impl Spread {
    /// How `launchers` launchers connect to `target`: from the addresses that were asked for; else from wherever the
    /// kernel likes while there are ports enough, and from several loopback addresses beyond that.
    ///
    /// Each address is tried by binding a socket to it, which is given back at once.
    ///
    /// # Errors
    /// [`LoadError`] where an address is of the other family or not this machine's, where the ports are too few, and
    /// where several loopback addresses are needed to reach a scheduler that is not on one.
    pub fn plan(
        asked: Option<&Sources>,
        launchers: usize,
        target: SocketAddr,
    ) -> Result<Self, LoadError> {
        let spread = Self::over(asked, launchers, target, ports())?;
        spread.0.iter().try_for_each(|&address| {
            TcpListener::bind((address, 0))
                .map(drop)
                .map_err(|source| LoadError::Source { address, source })
        })?;
        Ok(spread)
    }

    /// As [`Spread::plan`] on a machine that gives out `ports` ports per address, without trying the addresses.
    fn over(
        asked: Option<&Sources>,
        launchers: usize,
        target: SocketAddr,
        ports: usize,
    ) -> Result<Self, LoadError> {
        let Some(asked) = asked else {
            return Self::of_own_accord(launchers, target, ports);
        };
        let of_other_family = |source: &&IpAddr| source.is_ipv4() != target.is_ipv4();
        if let Some(&source_address) = asked.0.iter().find(of_other_family) {
            return Err(LoadError::OtherFamily {
                source_address,
                target,
            });
        }
        let sources = asked.0.len();
        if launchers > sources * ports {
            let needed = launchers.div_ceil(usable(ports));
            return Err(LoadError::TooFewPorts {
                launchers,
                sources,
                ports,
                needed,
            });
        }
        Ok(Self(asked.0.clone()))
    }

    /// Without `--sources`.
    fn of_own_accord(
        launchers: usize,
        target: SocketAddr,
        ports: usize,
    ) -> Result<Self, LoadError> {
        let needed = launchers.div_ceil(usable(ports));
        if needed <= 1 {
            return Ok(Self(Vec::new()));
        }
        if !(target.ip().is_loopback() && target.is_ipv4()) {
            return Err(LoadError::TooFar {
                target,
                launchers,
                ports,
            });
        }
        Ok(Self(
            Sources::loopback(u8::try_from(needed).unwrap_or(u8::MAX)).0,
        ))
    }

    /// The address from which launcher number `index` connects, in turn; `None` = the kernel's choice.
    #[must_use]
    pub fn source(&self, index: usize) -> Option<IpAddr> {
        (!self.0.is_empty()).then(|| self.0[index % self.0.len()])
    }

    /// From how many addresses launchers connect.
    #[cfg(test)]
    fn width(&self) -> usize {
        self.0.len().max(1)
    }
}

/// Ports per address that a run counts on, of those there are: three quarters. Others use some, and connections that
/// ended keep theirs for a minute.
fn usable(ports: usize) -> usize {
    (ports - ports / 4).max(1)
}

/// Ports that the kernel gives out per address and destination.
///
/// The range is inclusive at both ends.
fn ports() -> usize {
    let range = fs::read_to_string(PORT_RANGE).ok();
    range.as_deref().and_then(ports_in).unwrap_or(DEFAULT_PORTS)
}

/// `None` for a text that is not two numbers in order.
fn ports_in(range: &str) -> Option<usize> {
    let mut bounds = range.split_whitespace();
    let (low, high): (usize, usize) = (bounds.next()?.parse().ok()?, bounds.next()?.parse().ok()?);
    Some(high.checked_sub(low)? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Sources {
        text.parse().unwrap()
    }

    fn local() -> SocketAddr {
        "127.0.0.1:8888".parse().unwrap()
    }

    /// How many of `launchers` connect from each address.
    fn share(spread: &Spread, launchers: usize) -> Vec<(String, usize)> {
        let mut shares = std::collections::BTreeMap::<String, usize>::new();
        for index in 0..launchers {
            let source = spread.source(index);
            *shares
                .entry(source.map_or("any".into(), |source| source.to_string()))
                .or_default() += 1;
        }
        shares.into_iter().collect()
    }

    #[test]
    fn a_number_means_the_loopback_addresses_from_the_second_on() {
        assert_eq!(sources("3"), sources("127.0.0.2, 127.0.0.3,127.0.0.4"));
        let last = sources("253").addresses()[252];
        assert_eq!(last.to_string(), "127.0.0.254");
        for text in [
            "",
            "0",
            "254",
            "99999999999",
            "-1",
            "127.0.0.2,",
            "localhost",
            "127.0.0.2:1",
        ] {
            assert!(text.parse::<Sources>().is_err(), "{text:?}");
        }
        let many = vec!["127.0.0.2"; 254].join(",");
        assert!(many.parse::<Sources>().is_err());
    }

    #[test]
    fn launchers_are_spread_evenly_over_the_addresses_asked_for() {
        let asked = sources("127.0.0.7,127.0.0.9");
        let spread = Spread::over(Some(&asked), 20_001, local(), 28_232).unwrap();
        let shares = [("127.0.0.7", 10_001), ("127.0.0.9", 10_000)];
        assert_eq!(
            share(&spread, 20_001),
            shares.map(|(source, n)| (source.to_owned(), n))
        );
        assert_eq!(spread.width(), 2);
    }

    #[test]
    fn without_a_wish_addresses_are_added_where_ports_would_run_short() {
        for (launchers, width) in [
            (1, 1),
            (21_174, 1),
            (21_175, 2),
            (42_348, 2),
            (42_349, 3),
            (100_000, 5),
        ] {
            let spread = Spread::over(None, launchers, local(), 28_232).unwrap();
            assert_eq!(spread.width(), width, "{launchers}");
            let most = share(&spread, launchers).into_iter().map(|(_, n)| n).max();
            assert!(most <= Some(21_174), "{launchers}: {most:?}");
        }
        let few = Spread::over(None, 10_000, local(), 28_232).unwrap();
        assert_eq!(share(&few, 10_000), [("any".to_owned(), 10_000)]);
    }

    #[test]
    fn too_few_ports_are_an_error_that_says_how_many_addresses_would_do() {
        let asked = sources("2");
        assert!(Spread::over(Some(&asked), 2_000, local(), 1_000).is_ok());
        let error = Spread::over(Some(&asked), 2_001, local(), 1_000).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("2001 launchers") && text.contains("--sources 3"),
            "{text}"
        );
    }

    #[test]
    fn a_scheduler_elsewhere_is_not_reached_from_loopback_of_own_accord() {
        for target in ["192.0.2.1:8888", "[::1]:8888"] {
            let target = target.parse().unwrap();
            assert!(Spread::over(None, 20_000, target, 28_232).is_ok());
            let error = Spread::over(None, 30_000, target, 28_232).unwrap_err();
            assert!(error.to_string().contains("--sources"), "{error}");
        }
        let asked = sources("192.0.2.7,192.0.2.8");
        assert!(
            Spread::over(
                Some(&asked),
                30_000,
                "192.0.2.1:8888".parse().unwrap(),
                28_232
            )
            .is_ok()
        );
        let other = Spread::over(Some(&asked), 1, "[::1]:8888".parse().unwrap(), 28_232);
        assert!(other.unwrap_err().to_string().contains("192.0.2.7"));
    }

    #[test]
    fn an_address_of_another_machine_is_refused_before_anything_is_connected() {
        // TEST-NET-1 belongs to no network.
        let error = Spread::plan(
            Some(&sources("192.0.2.1")),
            1,
            "192.0.2.2:8888".parse().unwrap(),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("cannot connect from 192.0.2.1"),
            "{error}"
        );
        assert!(Spread::plan(Some(&sources("2")), 1, local()).is_ok());
    }

    #[test]
    fn the_kernels_port_range_is_counted_with_both_its_ends() {
        assert_eq!(ports_in("32768\t60999\n"), Some(28_232));
        assert_eq!(ports_in("1 1"), Some(1));
        assert_eq!(ports_in("2 1"), None);
        assert_eq!(ports_in(""), None);
    }
}
