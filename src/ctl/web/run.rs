//! `ciaoctl web` as a command: from its options to a server that runs until Ctrl-C.
//!
//! ```text
//! $ ciaoctl web
//! http://127.83.201.17:40133/open?token=4ad1…
//! Ctrl-C ends it. The address is good once.
//! for another browser: http://127.83.201.17:40133/open?token=9c02…     (once the first was used)
//! ```
//!
//! Where JSON is asked for each address is a line `{"url": …}` instead.

use proto_frames::Role;
use serde_json::json;

use super::gate::own_address;
use super::serve::{Web, WebConfig, WebError};
use crate::ctl::args::{GlobalArgs, WebArgs};
use crate::ctl::commands::{CONNECT_TIMEOUT, CommandError, client_config};
use crate::ctl::exit::Exit;
use crate::ctl::output::Output;
use crate::ctl::run::check_key;
use crate::net::address::{AddressError, DEFAULT_HTTP_PORT, Endpoint};
use crate::net::tls::{ClientTls, TlsError};
use crate::printable::{Lines, Printable};
use crate::shutdown::{self, OnHangup};

/// How a browser is opened with an address. Failing to is not reported: the address is on the terminal as well.
pub(in crate::ctl) type Open = fn(url: &str);

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(in crate::ctl) enum RunError {
    /// As any command may fail.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The server cannot be made.
    #[error(transparent)]
    Web(#[from] WebError),
    /// A certificate cannot be used: the user's, or the trust anchors.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The scheduler's HTTP address cannot be read.
    #[error("--http: {0}")]
    Address(#[from] AddressError),
    /// The scheduler does not serve plain HTTP, and the certificate would not be shown to it.
    #[error("--http: the scheduler serves HTTPS alone: write https://HOST:PORT")]
    PlainHttp,
}

impl RunError {
    /// The exit code it stands for: `Connection` where a certificate cannot be used or the address cannot be listened
    /// on, that of the [`CommandError`] where it is one, else `Usage`.
    pub(in crate::ctl) fn exit(&self) -> Exit {
        match self {
            Self::Command(error) => error.exit(),
            Self::Tls(_) | Self::Web(WebError::Listen { .. }) => Exit::Connection,
            _ => Exit::Usage,
        }
    }

    /// What it says, for people, with control characters made visible.
    pub(in crate::ctl) fn lines(&self) -> Lines {
        match self {
            Self::Command(error) => error.lines(),
            _ => [Printable::new(self)].into_iter().collect(),
        }
    }
}

/// Serves the page until Ctrl-C. Whether the scheduler can be reached is not tried first: the page says so, and goes on
/// by itself once it can.
///
/// `open` is `None` where standard output is no terminal; `--no-open` keeps it from being called.
///
/// # Errors
/// [`RunError`]: before anything is served, or where an address cannot be printed later.
pub(in crate::ctl) async fn serve(
    args: &WebArgs,
    global: &GlobalArgs,
    mut out: Output<'_>,
    open: Option<Open>,
) -> Result<Exit, RunError> {
    let config = client_config(global);
    // The HTTP address is on the host of the SSNTP one unless said otherwise, on the port that HTTP has by default.
    let scheduler = match &args.http {
        Some(url) => endpoint(url)?,
        None => Endpoint {
            port: DEFAULT_HTTP_PORT,
            ..global.server().parse()?
        },
    };
    check_key(&config.cert, global)?;
    let files = config.files();
    let credentials = files.read()?;
    let config = WebConfig {
        listen: args.listen.unwrap_or_else(own_address),
        scheduler: scheduler.with_server_name(config.server_name),
        tls: ClientTls::of_files(files, credentials, Role::default()),
        connect_timeout: global.timeout.unwrap_or(CONNECT_TIMEOUT),
    };
    // Before the address is printed, so that Ctrl-C ends the program properly from then on.
    let stop = shutdown::requested(OnHangup::Stop).map_err(CommandError::from)?;
    let web = Web::bind(config).await?;
    let mut urls = web.urls();
    let first = urls.borrow_and_update().clone();
    let mut tell = |url: &str, is_first: bool| {
        if global.json {
            out.document_line(&json!({ "url": url }))?;
        } else if is_first {
            out.line(&Printable::new(url))?;
            let more = "Ctrl-C ends it. The address is good once.";
            out.line(&Printable::new(more))?;
        } else {
            out.line(&Printable::new(format!("for another browser: {url}")))?;
        }
        out.flush()
    };
    tell(&first, true).map_err(CommandError::from)?;
    if let Some(open) = open.filter(|_| !args.no_open) {
        open(&first);
    }
    let serving = web.run(stop);
    tokio::pin!(serving);
    loop {
        tokio::select! {
            () = &mut serving => return Ok(Exit::Done),
            // The address was used: its token is no good any more, and there is another.
            Ok(()) = urls.changed() => {
                let url = urls.borrow_and_update().clone();
                tell(&url, false).map_err(CommandError::from)?;
            }
        }
    }
}

/// Reads `https://HOST:PORT`; the scheme, the port and a slash at the end may be left out.
///
/// # Errors
/// Another scheme, a path, or what is no host.
fn endpoint(url: &str) -> Result<Endpoint, RunError> {
    if url.starts_with("http://") {
        return Err(RunError::PlainHttp);
    }
    let text = url.strip_prefix("https://").unwrap_or(url);
    let text = text.strip_suffix('/').unwrap_or(text);
    Ok(Endpoint::parse_with_port(text, DEFAULT_HTTP_PORT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_http_address_may_leave_out_scheme_and_port() {
        for (text, host, port) in [
            ("https://localhost:8443", "localhost", 8443),
            ("https://localhost:9443/", "localhost", 9443),
            ("https://localhost", "localhost", 8443),
            ("host1", "host1", 8443),
            ("[::1]:7", "::1", 7),
        ] {
            let read = endpoint(text).unwrap();
            assert_eq!((&*read.host, read.port), (host, port), "{text}");
        }
        for bad in [
            "http://localhost:8443",
            "https://",
            "ftp://x",
            "https://a/b",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }
}
