//! The sockets that a daemon listens on, opened before anything is served.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;

use super::{ServerConfig, StartError};
use crate::server::accept::{Listener, Speaks, listen};
use crate::server::credentials::placement_speaks;
use crate::server::http;
use crate::server::limits::DEFAULT_PORT;

/// Every socket that the configuration asks for. In the order SSNTP, HTTP, Placement API. The first that cannot be had
/// ends the start.
pub(in crate::server) fn open_all(config: &ServerConfig) -> Result<Vec<Listener>, StartError> {
    let mut listeners = open(&config.listen)?;
    for &address in &config.http {
        listeners.push(open_one(address, Speaks::Http)?);
    }
    for &address in config.placement.iter().flat_map(|it| &it.listen) {
        listeners.push(open_one(address, placement_speaks(&address))?);
    }
    Ok(listeners)
}

/// The addresses for SSNTP. Without any, one socket for both families on the default port, or for IPv4 alone where the
/// machine has no IPv6.
fn open(addresses: &[SocketAddr]) -> Result<Vec<Listener>, StartError> {
    if addresses.is_empty() {
        let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, DEFAULT_PORT));
        return match listen(everywhere) {
            Ok(socket) => Ok(vec![Listener {
                socket,
                speaks: Speaks::Ssntp,
            }]),
            // A machine without IPv6.
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                Ok(vec![open_one(address, Speaks::Ssntp)?])
            }
            Err(source) => Err(StartError::Listen {
                address: everywhere,
                source,
            }),
        };
    }
    let open = |&address| open_one(address, Speaks::Ssntp);
    addresses.iter().map(open).collect()
}

/// Listens on one address, with the send buffer that its protocol needs.
fn open_one(address: SocketAddr, speaks: Speaks) -> Result<Listener, StartError> {
    let open = || {
        let socket = listen(address)?;
        if speaks != Speaks::Ssntp {
            // Connections have what their listener had.
            SockRef::from(&socket).set_send_buffer_size(http::SEND_BUFFER)?;
        }
        Ok(Listener { socket, speaks })
    };
    open().map_err(|source| StartError::Listen { address, source })
}
