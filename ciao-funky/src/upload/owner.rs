//! Whose uploads are taken. TCP says nothing of users, but the kernel's tables (`/proc/net/tcp`, `/proc/net/tcp6`) name
//! the owner of each socket of this machine, and the other end of a connection from this machine is among them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::front::Allowed;

/// The kernel's tables of sockets. An IPv6 socket may be connected to an IPv4 address, so that both are read.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// How often the tables are read until they have the socket: the kernel hands them out in pieces, and may skip a row
/// while others come and go.
const LOOKS: usize = 3;

/// Whose uploads are taken.
#[derive(Debug, Clone)]
pub(crate) enum Uploaders {
    /// Everybody's who reaches the port: `-upload-any-user`.
    Any,
    /// Those of users who may give commands at the socket.
    These(Allowed),
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) client: SocketAddr,
    pub(super) here: SocketAddr,
}

/// Why a user's upload is not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum UserError {
    /// It is another user's.
    #[error(
        "uploads of user {0} are not taken, but those of the user that ciao-funky runs as, and of root: start it with \
         -allow-uid {0} for this user, or with -upload-any-user, with which everybody who reaches this port may run \
         programs"
    )]
    Other(u32),
    /// The client is not on this machine, or its socket is closed, or the tables cannot be read.
    #[error(
        "uploads are taken from users of this machine alone, and the kernel names none for {0}: send it from this \
         machine and keep the connection until the answer, or start ciao-funky with -upload-any-user, with which \
         everybody who reaches this port may run programs"
    )]
    Unknown(SocketAddr),
}

impl Uploaders {
    /// Checks whose connection it is. It reads files of the kernel's, which does not wait for anything.
    ///
    /// # Errors
    /// The user is another, or cannot be found out.
    pub(super) fn check(&self, ends: Ends) -> Result<(), UserError> {
        let Self::These(allowed) = self else {
            return Ok(());
        };
        match owner(ends) {
            Some(uid) if allowed.has(uid) => Ok(()),
            Some(uid) => Err(UserError::Other(uid)),
            None => Err(UserError::Unknown(ends.client)),
        }
    }
}

/// The user whose socket is the client's end.
fn owner(ends: Ends) -> Option<u32> {
    let look = || {
        TABLES.iter().find_map(|path| {
            let table = std::fs::read_to_string(path).ok()?;
            table.lines().find_map(|row| owner_in(row, ends))
        })
    };
    (0..LOOKS).find_map(|_| look())
}

/// The user of a row of the tables, if it is the client's end: `sl local remote state queues timer retransmits uid
/// timeout inode …`. A socket that no process holds any longer has inode 0, and then user 0 whoever made it.
fn owner_in(row: &str, ends: Ends) -> Option<u32> {
    let mut words = row.split_ascii_whitespace().skip(1);
    let is = |word: Option<&str>, end: SocketAddr| {
        word.and_then(address).is_some_and(|(ip, port)| {
            ip.to_canonical() == end.ip().to_canonical() && port == end.port()
        })
    };
    if !is(words.next(), ends.client) || !is(words.next(), ends.here) {
        return None;
    }
    let uid = words.nth(4)?.parse().ok()?;
    let inode: u64 = words.nth(1)?.parse().ok()?;
    (inode != 0).then_some(uid)
}

/// An address and a port in hexadecimal digits. Each word of the address is printed as this machine's number of the
/// bytes in the network's order.
fn address(word: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = word.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let bytes = |at: usize| {
        let word = u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => Ipv4Addr::from(bytes(0)?).into(),
        32 => {
            let words = [bytes(0)?, bytes(1)?, bytes(2)?, bytes(3)?];
            let mut octets = [0; 16];
            octets.copy_from_slice(words.as_flattened());
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it fails")]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn row(client: SocketAddr, here: SocketAddr, uid: u32, inode: u64) -> String {
        let end = |end: SocketAddr| {
            let hex = |bytes: &[u8]| {
                let words = bytes.chunks(4).map(|it| it.try_into().unwrap());
                words
                    .map(|it| format!("{:08X}", u32::from_ne_bytes(it)))
                    .collect::<String>()
            };
            let ip = match end.ip() {
                IpAddr::V4(ip) => hex(&ip.octets()),
                IpAddr::V6(ip) => hex(&ip.octets()),
            };
            format!("{ip}:{:04X}", end.port())
        };
        format!(
            "  12: {} {} 01 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 0 20 4 30 10 -1",
            end(client),
            end(here)
        )
    }

    fn ends(client: &str, here: &str) -> Ends {
        Ends {
            client: client.parse().unwrap(),
            here: here.parse().unwrap(),
        }
    }

    #[test]
    fn a_row_names_the_owner_of_the_clients_end_alone() {
        let at = ends("127.0.0.1:50000", "127.0.0.1:8080");
        assert_eq!(
            owner_in(&row(at.client, at.here, 65534, 7), at),
            Some(65534)
        );
        // This machine's own end, another client's, and a socket that nobody holds any longer.
        assert_eq!(owner_in(&row(at.here, at.client, 0, 7), at), None);
        let other = "127.0.0.1:50001".parse().unwrap();
        assert_eq!(owner_in(&row(other, at.here, 0, 7), at), None);
        assert_eq!(owner_in(&row(at.client, at.here, 0, 0), at), None);
        // An IPv6 socket of a client that an IPv4 socket has accepted.
        let mapped = ends("[::ffff:127.0.0.1]:50000", "[::ffff:127.0.0.1]:8080");
        assert_eq!(
            owner_in(&row(mapped.client, mapped.here, 5, 7), at),
            Some(5)
        );
        let six = ends("[fd00::1:2]:50000", "[fd00::3]:8080");
        assert_eq!(owner_in(&row(six.client, six.here, 5, 7), six), Some(5));
        for nonsense in [
            "",
            "  sl  local_address rem_address   st tx_queue",
            "0: 0:0 0:0",
            "0: é00000é:1 x",
        ] {
            assert_eq!(owner_in(nonsense, at), None, "{nonsense}");
        }
    }

    #[test]
    fn the_owner_of_a_socket_is_found_by_both_families_and_lost_with_its_end() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let here = listener.local_addr().unwrap();
            let client = TcpStream::connect(here).unwrap();
            let (_accepted, from) = listener.accept().unwrap();
            let ends = Ends { client: from, here };
            let own = rustix::process::geteuid().as_raw();
            assert_eq!(owner(ends), Some(own));
            Uploaders::These(Allowed::these(&[])).check(ends).unwrap();
            drop(client);
            assert_eq!(owner(ends), None);
            let why = Uploaders::These(Allowed::these(&[])).check(ends);
            let why = why.unwrap_err().to_string();
            assert!(why.contains("-upload-any-user"), "{why}");
            Uploaders::Any.check(ends).unwrap();
        }
    }
}
