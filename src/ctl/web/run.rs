//! `ciaoctl web` as a command: from its options to a server that runs until Ctrl-C.

use std::io::{self, IsTerminal as _, Write};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::watch;

use super::serve::{Web, WebConfig, WebError};
use crate::ctl::args::{GlobalArgs, WebArgs};
use crate::ctl::commands::{CONNECT_TIMEOUT, CommandError, client_config};
use crate::ctl::exit::Exit;
use crate::ctl::run::{check_key, complain, runtime};
use crate::net::address::{AddressError, DEFAULT_HTTP_PORT, Endpoint};
use crate::net::tls::{self, TlsError};
use crate::printable::{Lines, Printable};
use crate::shutdown::{self, OnHangup};

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
enum RunError {
    /// As any command may fail.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The server cannot be made.
    #[error(transparent)]
    Web(#[from] WebError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The scheduler's HTTP address cannot be read.
    #[error("--http: {0}")]
    Address(#[from] AddressError),
    /// The scheduler does not serve plain HTTP.
    #[error("--http: the scheduler serves HTTPS alone: write https://HOST:PORT")]
    PlainHttp,
}

/// Serves the page until Ctrl-C.
#[must_use]
pub fn run(args: &WebArgs, global: &GlobalArgs) -> Exit {
    match serve(args, global) {
        Ok(()) => Exit::Done,
        Err(RunError::Command(error)) => complain(error.exit(), &error.lines()),
        Err(error) => {
            let exit = match error {
                RunError::Tls(_) | RunError::Web(WebError::Listen { .. }) => Exit::Connection,
                _ => Exit::Usage,
            };
            let lines: Lines = [Printable::new(&error)].into_iter().collect();
            complain(exit, &lines)
        }
    }
}

fn serve(args: &WebArgs, global: &GlobalArgs) -> Result<(), RunError> {
    let config = client_config(global);
    let scheduler = match &args.http {
        Some(url) => endpoint(url)?,
        None => Endpoint {
            port: DEFAULT_HTTP_PORT,
            ..global.server.parse()?
        },
    };
    check_key(&config.cert, global)?;
    let identity = tls::load_identity(&config.cert)?;
    let anchors = tls::load_anchors(&config.cacert)?;
    let config = WebConfig {
        listen: args.listen,
        scheduler: scheduler.with_server_name(config.server_name),
        tls: tls::client_config(&identity, &anchors)?,
        connect_timeout: global.timeout.unwrap_or(CONNECT_TIMEOUT),
    };
    let runtime = runtime()?;
    let served: Result<(), RunError> = runtime.block_on(async {
        let stop = shutdown::requested(OnHangup::Stop).map_err(CommandError::from)?;
        let web = Web::bind(config).await?;
        let mut urls = web.urls();
        let first = urls.borrow_and_update().clone();
        let mut out = io::stdout();
        let told = writeln!(out, "{first}")
            .and_then(|()| writeln!(out, "Ctrl-C ends it. The address is good once."))
            .and_then(|()| out.flush());
        told.map_err(CommandError::from)?;
        if !args.no_open && out.is_terminal() {
            open(&first);
        }
        tokio::select! {
            () = web.run(stop) => {}
            () = tell_next(urls) => {}
        }
        Ok(())
    });
    runtime.shutdown_background();
    served
}

/// Prints the next address whenever one has been used.
pub async fn tell_next(mut urls: watch::Receiver<String>) {
    while urls.changed().await.is_ok() {
        let url = urls.borrow_and_update().clone();
        // With standard output gone, there is nobody to tell.
        let _ = writeln!(io::stdout(), "for another browser: {url}");
    }
    std::future::pending().await
}

/// Reads `https://HOST:PORT`; the scheme and the port may be left out.
fn endpoint(url: &str) -> Result<Endpoint, RunError> {
    if url.starts_with("http://") {
        return Err(RunError::PlainHttp);
    }
    let text = url.strip_prefix("https://").unwrap_or(url);
    let text = text.strip_suffix('/').unwrap_or(text);
    Ok(Endpoint::parse_with_port(text, DEFAULT_HTTP_PORT)?)
}

/// Opens a browser, where there is one. Where there is none, the address is on the screen.
fn open(url: &str) {
    let _ = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
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
