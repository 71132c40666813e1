//! The page with the form, for people, and from which pages forms are taken.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, header};

/// The form. A row without a file is left out, and so is a frequency without a number.
pub(super) const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>New task</title></head><body>
<form action="/upload" method="post" enctype="multipart/form-data">
<p>The first file is the program.</p>
<div id="files">
<p><label>File <input type="file" name="bitstream[]" required></label>
<label>Frequency <input type="number" name="frequency[]"></label></p>
<p><label>File <input type="file" name="bitstream[]"></label>
<label>Frequency <input type="number" name="frequency[]"></label></p>
</div>
<p><button type="button" id="more">More files</button></p>
<p><label><input type="radio" name="Priority" value="0"> high</label>
<label><input type="radio" name="Priority" value="1" checked> low</label></p>
<p><label>Arguments <input type="text" name="Arguments"></label></p>
<p><button>Run it</button></p>
</form>
<script>
document.getElementById("more").onclick = () => {
  const files = document.getElementById("files");
  const row = files.lastElementChild.cloneNode(true);
  row.querySelectorAll("input").forEach(it => { it.value = ""; });
  files.append(row);
};
</script>
</body></html>
"#;

/// Whether forms are taken whose `Origin` is `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NullOrigin {
    /// Yes, and then from any page that a browser shows: `-allow-null-origin`.
    Taken,
    /// No.
    Refused,
}

impl NullOrigin {
    /// As the flag says.
    pub(crate) const fn of(is_taken: bool) -> Self {
        match is_taken {
            true => Self::Taken,
            false => Self::Refused,
        }
    }
}

/// Finds out whether a form may come from where it says. A browser sends forms of any page to any address, this
/// machine's loopback too, and names the page's site in `Origin`. Clients that are no browsers send none and pass.
///
/// - It has to be this server's, or both are loopback names: such a page comes from the machine that the browser is on,
///   whose programs reach this server as they are.
/// - `Host` is checked as well: a name that an attacker's DNS has pointed to this machine would make both equal.
/// - `null` is what pages that are opened as files send, and what any site's page can send by a sandboxed frame.
///
/// # Errors
/// The origin that is refused.
pub(super) fn check_origin(
    headers: &HeaderMap,
    address: SocketAddr,
    null: NullOrigin,
) -> Result<(), String> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or("?"))
    };
    let Some(origin) = text(header::ORIGIN) else {
        return Ok(());
    };
    let host = text(header::HOST).unwrap_or_default();
    let name = without_port(host);
    // A name could have been made to mean this machine.
    let is_address = address_of(name).is_some();
    let is_here = is_address || name == "localhost" || host == address.to_string();
    let site = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    let is_local = site.is_some_and(|site| is_loopback(without_port(site)));
    let is_taken = origin == format!("http://{host}")
        || is_local && is_loopback(name)
        || origin == "null" && null == NullOrigin::Taken;
    if is_here && is_taken {
        return Ok(());
    }
    Err(origin.to_owned())
}

/// The name in `name:port`, where there is a port. That of an IPv6 address is in square brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    }
}

fn address_of(name: &str) -> Option<IpAddr> {
    name.trim_matches(['[', ']']).parse().ok()
}

/// Whether a browser takes a name for the machine that it is on, whatever DNS says.
fn is_loopback(name: &str) -> bool {
    name == "localhost" || address_of(name).is_some_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(host: &'static str, origin: &'static str, null: NullOrigin) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static(host));
        headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
        check_origin(&headers, ([127, 0, 0, 1], 8080).into(), null).is_ok()
    }

    #[test]
    fn pages_of_this_machine_are_taken_under_any_loopback_name_and_no_others() {
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:8080", "http://127.0.0.1"),
            ("localhost:8080", "http://127.0.0.1:5000"),
            ("127.0.0.1:8080", "http://localhost:8080"),
            ("localhost:8080", "http://[::1]:80"),
            ("[::1]:8080", "https://localhost"),
            ("192.0.2.1:8080", "http://192.0.2.1:8080"),
        ] {
            assert!(is_taken(host, origin, NullOrigin::Refused), "{origin}");
        }
        for (host, origin) in [
            ("127.0.0.1:8080", "http://evil.example"),
            ("127.0.0.1:8080", "http://192.0.2.1:8080"),
            ("127.0.0.1:8080", "http://127.0.0.1.evil.example"),
            ("127.0.0.1:8080", "http://localhost.evil.example"),
            ("127.0.0.1:8080", "http://evil.example/127.0.0.1"),
            ("127.0.0.1:8080", "http://localhost@evil.example"),
            // A name that was pointed to this machine.
            ("evil.example:8080", "http://evil.example:8080"),
            ("evil.example:8080", "http://localhost:8080"),
            // A page of the browser's machine to another one, whose pages it does not have.
            ("192.0.2.1:8080", "http://localhost:8080"),
            ("127.0.0.1:8080", "file://"),
            ("127.0.0.1:8080", ""),
        ] {
            for null in [NullOrigin::Taken, NullOrigin::Refused] {
                assert!(!is_taken(host, origin, null), "{host} {origin}");
            }
        }
    }

    #[test]
    fn a_page_without_an_origin_of_its_own_is_taken_only_where_that_is_allowed() {
        assert!(!is_taken("localhost:8080", "null", NullOrigin::Refused));
        assert!(is_taken("localhost:8080", "null", NullOrigin::Taken));
        assert!(!is_taken("evil.example", "null", NullOrigin::Taken));
    }
}
