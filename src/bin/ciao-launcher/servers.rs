//! Where schedulers are, as the flags say it.

use std::str::FromStr;

use ciao_scheduler::net::address::{AddressError, Endpoint, candidates};

/// Addresses of schedulers, with commas between them. As one value: of a flag that is given twice, the last one counts.
#[derive(Debug, Clone)]
pub(crate) struct Servers(Vec<Endpoint>);

impl FromStr for Servers {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let servers = text.split(',').map(str::parse);
        servers.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
impl Servers {
    /// The one that is tried first.
    pub(crate) fn first(&self) -> &Endpoint {
        &self.0[0]
    }
}

/// What is tried, in order: what was said, then what the CA certificate names and this machine. And how many of them were
/// said.
pub(crate) fn endpoints(
    said: Option<&Servers>,
    server_name: Option<&str>,
    names: &[String],
) -> (Vec<Endpoint>, usize) {
    let said = said.into_iter().flat_map(|it| it.0.iter().cloned());
    let said = said.map(|it| it.with_server_name(server_name.map(str::to_owned)));
    let mut endpoints: Vec<Endpoint> = said.collect();
    let count = endpoints.len();
    for other in candidates(endpoints.first(), names) {
        if endpoints.iter().all(|it| it.host != other.host) {
            endpoints.push(other);
        }
    }
    (endpoints, count)
}
