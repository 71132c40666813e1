//! Whether a request may be passed on. A token that is good once is exchanged for a cookie; a page of another origin,
//! or of another name for this address, gets nothing.
//!
//! ```text
//! GET /open?token=T    checked: Host                                    Set-Cookie; another token from then on
//! GET /v1/nodes        checked: Host, Origin, Sec-Fetch-Site, cookie    passed on
//! POST /v1/…           checked: the same, and the header ciao-web       passed on
//! ```
//!
//! Token and cookie are two secrets, so that an address in a browser's history or in a terminal is worth nothing once
//! it was used. The cookie is good as long as the program runs, a token until it is used.

use std::net::SocketAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::error::Unspecified;
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;

use super::limits::SECRET_BYTES;

/// The path at which a token is exchanged: the only one that this server answers itself.
pub(super) const OPEN: &str = "/open";

/// The header that every command has, with any value. A header that is not one of a form makes a browser ask by OPTIONS
/// whether a page of another origin may send it (a CORS preflight); that is not answered as it would have to be, so it
/// is not sent.
const COMMAND_HEADER: HeaderName = HeaderName::from_static("ciao-web");

/// The secrets of one run of the server, and its address.
#[derive(Debug)]
pub(super) struct Gate {
    /// With the real port. The only `Host` and `Origin` that are taken.
    address: SocketAddr,
    /// The value of the cookie, the same for all browsers that were let in.
    cookie: String,
    /// The token that is good next.
    token: Mutex<String>,
}

/// Why a request is not passed on: the parts of a problem document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusedRequest {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    pub(super) detail: &'static str,
    pub(super) help: &'static str,
}

impl Gate {
    /// A gate for a server at this address, with two secrets made for this run.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(address: SocketAddr) -> Result<Self, Unspecified> {
        Ok(Self {
            address,
            cookie: secret()?,
            token: Mutex::new(secret()?),
        })
    }

    /// The address to open, with the token that is good next. It is for the user's eyes alone: it lets in the first who
    /// opens it.
    pub(super) fn url(&self) -> String {
        format!("http://{}{OPEN}?token={}", self.address, self.token.lock())
    }

    /// Exchanges a token, from a query string: what to set as cookie. The token is another one from then on, so that of
    /// two who have the address only the first is let in. The cookie is not for scripts (`HttpOnly`) and is sent with
    /// requests of this origin's pages alone; it has no `Secure`, since this is HTTP on loopback, and ends with the
    /// browser.
    ///
    /// # Errors
    /// 403 `wrong_token`: it is not the token, or there is none in the query, or there are no random numbers for the
    /// next.
    pub(super) fn exchange(&self, query: &str) -> Result<String, RefusedRequest> {
        const WRONG: RefusedRequest = RefusedRequest {
            status: StatusCode::FORBIDDEN,
            reason: "wrong_token",
            detail: "this address has been used, or is of an earlier run",
            help: "open the address that was printed last",
        };
        let given = form_urlencoded::parse(query.as_bytes())
            .find_map(|(name, value)| (name == "token").then_some(value));
        let given = given.ok_or(WRONG)?;
        let mut token = self.token.lock();
        // In constant time, so that an answer's time does not tell how much of a token is right.
        let is_it = verify_slices_are_equal(given.as_bytes(), token.as_bytes()).is_ok();
        if !is_it {
            return Err(WRONG);
        }
        *token = secret().map_err(|_| WRONG)?;
        let (name, cookie) = (self.cookie_name(), &self.cookie);
        Ok(format!(
            "{name}={cookie}; Path=/; HttpOnly; SameSite=Strict"
        ))
    }

    /// Whether this request comes from a browser that has exchanged a token. Cookies of other names, such as those of
    /// other servers on this address, are passed over.
    pub(super) fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| {
            key == name && verify_slices_are_equal(value.as_bytes(), self.cookie.as_bytes()).is_ok()
        })
    }

    /// Refuses a request for another host. Without this a foreign page could have its own name lead to this address and
    /// be of the same origin as this server (DNS rebinding).
    ///
    /// # Errors
    /// 421 `wrong_host`.
    pub(super) fn check_host(&self, headers: &HeaderMap) -> Result<(), RefusedRequest> {
        let host = headers
            .get(header::HOST)
            .and_then(|value| value.to_str().ok());
        match host {
            Some(host) if self.is_own(host) => Ok(()),
            _ => Err(RefusedRequest {
                status: StatusCode::MISDIRECTED_REQUEST,
                reason: "wrong_host",
                detail: "the header Host is not this server's address",
                help: "open the address that was printed",
            }),
        }
    }

    /// Refuses a request that is not to be passed on. In this order: host, origin, cookie, and for all but GET and HEAD
    /// the header of commands.
    ///
    /// # Errors
    /// 421 `wrong_host`, 403 `cross_origin`, 401 `no_session`, 403 `no_command_header`.
    pub(super) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), RefusedRequest> {
        self.check_host(headers)?;
        // A value that is not ASCII is none that is taken.
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let site = text(HeaderName::from_static("sec-fetch-site"));
        let origin = text(header::ORIGIN);
        let is_ours = |origin: &str| {
            let host = origin.strip_prefix("http://");
            host.is_some_and(|host| self.is_own(host))
        };
        if !matches!(site, None | Some("same-origin" | "none")) || !origin.is_none_or(is_ours) {
            return Err(RefusedRequest {
                status: StatusCode::FORBIDDEN,
                reason: "cross_origin",
                detail: "this request comes from a page of another origin",
                help: "only the scheduler's own page is served here",
            });
        }
        if !self.has_cookie(headers) {
            return Err(RefusedRequest {
                status: StatusCode::UNAUTHORIZED,
                reason: "no_session",
                detail: "this browser has not been let in",
                help: "open the address that `ciaoctl web` printed last; it has a token that is good once",
            });
        }
        let is_command = !matches!(*method, Method::GET | Method::HEAD);
        if is_command && !headers.contains_key(COMMAND_HEADER) {
            return Err(RefusedRequest {
                status: StatusCode::FORBIDDEN,
                reason: "no_command_header",
                detail: "a command needs the header ciao-web",
                help: "the page sends `ciao-web: command`; so may you",
            });
        }
        Ok(())
    }

    /// The cookie's name. Cookies are the same on all ports of a host; with the port in its name, several of these
    /// servers on one address do not replace each other's.
    fn cookie_name(&self) -> String {
        format!("ciao-web-{}", self.address.port())
    }

    /// Whether a host is this server's address, as text. No name of it is, `localhost` neither: cookies of a name go to
    /// every port of it, and a name can be made to lead elsewhere.
    fn is_own(&self, host: &str) -> bool {
        self.address.to_string() == host
    }
}

/// An address of this machine that hardly another server has, with any free port. Browsers send a host's cookies to all
/// of its ports: behind 127.0.0.1 any user of this machine could listen and be sent them. On Linux all of 127.0.0.0/8
/// is this machine.
pub fn own_address() -> SocketAddr {
    let byte = || fastrand::u8(1..=254);
    SocketAddr::from(([127, byte(), byte(), byte()], 0))
}

/// A secret as hexadecimal digits, from the system's random numbers.
///
/// # Errors
/// The system has none.
fn secret() -> Result<String, Unspecified> {
    let mut bytes = [0; SECRET_BYTES];
    aws_lc_rs::rand::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        pairs.collect()
    }

    fn gate() -> Gate {
        Gate::new("127.0.0.1:4711".parse().unwrap()).unwrap()
    }

    fn token(gate: &Gate) -> String {
        let url = gate.url();
        let (address, query) = url.split_once('?').unwrap();
        assert_eq!(address, "http://127.0.0.1:4711/open");
        query.to_owned()
    }

    #[test]
    fn a_token_is_good_once() {
        let gate = gate();
        let first = token(&gate);
        let cookie = gate.exchange(&first).unwrap();
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"));
        assert_eq!(gate.exchange(&first).unwrap_err().reason, "wrong_token");
        for wrong in ["", "token=", "token=x", "tokens=x"] {
            assert_eq!(gate.exchange(wrong).unwrap_err().reason, "wrong_token");
        }
        let second = token(&gate);
        assert_ne!(first, second);
        assert_eq!(gate.exchange(&second).unwrap(), cookie);
    }

    #[test]
    fn what_another_page_or_program_sends_is_refused() {
        let gate = gate();
        let set = gate.exchange(&token(&gate)).unwrap();
        let (cookie, _) = set.split_once(';').unwrap();
        let host = ("host", "127.0.0.1:4711");
        let cookie = ("cookie", cookie);
        let ours = ("origin", "http://127.0.0.1:4711");
        let command = ("ciao-web", "command");
        for (method, pairs, reason) in [
            (Method::GET, &[host, cookie][..], None),
            (
                Method::GET,
                &[("host", "localhost:4711"), cookie],
                Some("wrong_host"),
            ),
            (Method::GET, &[host], Some("no_session")),
            (
                Method::GET,
                &[host, ("cookie", "ciao-web-4711=guess")],
                Some("no_session"),
            ),
            (Method::GET, &[cookie], Some("wrong_host")),
            (
                Method::GET,
                &[("host", "evil.example:4711"), cookie],
                Some("wrong_host"),
            ),
            (
                Method::GET,
                &[("host", "127.0.0.1"), cookie],
                Some("wrong_host"),
            ),
            (
                Method::GET,
                &[host, cookie, ("origin", "http://evil.example")],
                Some("cross_origin"),
            ),
            (
                Method::GET,
                &[host, cookie, ("origin", "null")],
                Some("cross_origin"),
            ),
            (
                Method::GET,
                &[host, cookie, ("origin", "http://127.0.0.1:4712")],
                Some("cross_origin"),
            ),
            (
                Method::GET,
                &[host, cookie, ("sec-fetch-site", "same-site")],
                Some("cross_origin"),
            ),
            (
                Method::POST,
                &[host, cookie, ours],
                Some("no_command_header"),
            ),
            (Method::POST, &[host, cookie, ours, command], None),
            (Method::DELETE, &[host, cookie], Some("no_command_header")),
            (Method::POST, &[host, ours, command], Some("no_session")),
        ] {
            let refused = gate.check(&method, &headers(pairs)).err();
            assert_eq!(refused.map(|it| it.reason), reason, "{method} {pairs:?}");
        }
    }
}
