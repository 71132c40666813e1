//! The page for browsers, at `/`: files that are in the program, and the headers that keep a browser to them.
//!
//! The page is plain HTML, CSS and ES modules in the folder of the same name, without a build step; it knows the
//! cluster from the API alone. This file knows nothing of what the page shows. To add a file: put it into the folder
//! and name it in [`FILES`]; a test compares the two.
//!
//! Files are compiled in, so a scheduler and its page are always of one version, and nothing is read from disk when a
//! browser asks.

use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

use super::call::text_response;

/// What the page may load and do: its own files and requests to its own origin. No inline script or style, no `eval`,
/// no frame around it. Trusted Types forbid making scripts and markup from text; the one policy, `ciao-page`, names the
/// worker's file. Names and output of workloads, which others choose, can so not become script.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types ciao-page";

/// Media types say the character set, which a browser would otherwise guess.
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the page, as it is served.
#[derive(Debug)]
pub(super) struct Asset {
    /// Where it is served.
    pub(super) path: &'static str,
    media_type: &'static str,
    content: &'static str,
    /// The quoted entity tag, from the content alone, so it is the same in each run of one version.
    etag: String,
}

/// Path, content and media type of files of the page. The content is read when the program is compiled.
macro_rules! files {
    ($($path:literal, $file:literal, $media_type:expr;)*) => {
        &[$(($path, include_str!(concat!("page/", $file)), $media_type),)*]
    };
}

/// All files of the page: path, content, media type.
static FILES: &[(&str, &str, &str)] = files! {
    "/", "index.html", HTML;
    "/page/theme.css", "theme.css", CSS;
    "/page/layout.css", "layout.css", CSS;
    "/page/parts.css", "parts.css", CSS;
    "/page/icon.svg", "icon.svg", SVG;
    "/page/app.js", "app.js", SCRIPT;
    "/page/api.js", "api.js", SCRIPT;
    "/page/arrays.js", "arrays.js", SCRIPT;
    "/page/commands.js", "commands.js", SCRIPT;
    "/page/dom.js", "dom.js", SCRIPT;
    "/page/explain.js", "explain.js", SCRIPT;
    "/page/feed.js", "feed.js", SCRIPT;
    "/page/format.js", "format.js", SCRIPT;
    "/page/history.js", "history.js", SCRIPT;
    "/page/instance.js", "instance.js", SCRIPT;
    "/page/instances.js", "instances.js", SCRIPT;
    "/page/link.js", "link.js", SCRIPT;
    "/page/map.js", "map.js", SCRIPT;
    "/page/node.js", "node.js", SCRIPT;
    "/page/nodes.js", "nodes.js", SCRIPT;
    "/page/overview.js", "overview.js", SCRIPT;
    "/page/plot.js", "plot.js", SCRIPT;
    "/page/queue.js", "queue.js", SCRIPT;
    "/page/select.js", "select.js", SCRIPT;
    "/page/store.js", "store.js", SCRIPT;
    "/page/table.js", "table.js", SCRIPT;
    "/page/worker.js", "worker.js", SCRIPT;
};

/// All files of the page with their entity tags, which are computed once, when the router is made.
pub(super) static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let asset = |&(path, content, media_type)| Asset {
        path,
        media_type,
        content,
        etag: etag_of(content),
    };
    FILES.iter().map(asset).collect()
});

impl Asset {
    /// The answer to a request for it: 304 without a body where the browser has it already, by `If-None-Match`. All
    /// security headers are on both.
    pub(super) fn answer(&self, request: &HeaderMap) -> Response {
        let known = request.get(header::IF_NONE_MATCH);
        let is_known = known
            .and_then(|known| known.to_str().ok())
            .is_some_and(|known| known.split(',').any(|tag| self.is_tagged(tag)));
        let mut response = match is_known {
            true => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            false => text_response(StatusCode::OK, self.media_type, self.content),
        };
        let headers = response.headers_mut();
        for (name, value) in [
            // The browser keeps it and asks each time whether it has changed, because another version of the scheduler
            // has another page.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(header::ETAG, etag);
        }
        response
    }

    /// Whether one entity tag of `If-None-Match` is this file's. Compared weakly (RFC 9110, section 13.1.2): `W/`
    /// before it does not matter.
    fn is_tagged(&self, tag: &str) -> bool {
        let tag = tag.trim();
        tag == "*" || tag.trim_start_matches("W/") == self.etag
    }
}

/// The first 16 bytes of the SHA-256, as hexadecimal digits in quotes.
fn etag_of(content: &str) -> String {
    let digest = digest(&SHA256, content.as_bytes());
    let hex = digest.as_ref().iter().take(16);
    let hex: String = hex.map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_served_and_what_modules_import_is_there() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/http/page");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut served: Vec<&str> = ASSETS
            .iter()
            .map(|asset| match asset.path {
                "/" => "index.html",
                path => path.trim_start_matches("/page/"),
            })
            .collect();
        served.sort_unstable();
        assert_eq!(files, served);
        for asset in &*ASSETS {
            for (_, rest) in asset
                .content
                .match_indices(" from \"./")
                .map(|(at, found)| asset.content.split_at(at + found.len()))
            {
                let (file, _) = rest.split_once('"').unwrap();
                assert!(served.contains(&file), "{} imports {file}", asset.path);
            }
        }
    }

    #[test]
    fn nothing_is_made_from_text_and_nothing_is_inline() {
        for asset in &*ASSETS {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=\"",
                " onclick=",
                "<script>",
                "<style>",
            ] {
                assert!(!asset.content.contains(bad), "{}: {bad}", asset.path);
            }
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let asset = &ASSETS[0];
        let fresh = asset.answer(&HeaderMap::new());
        assert_eq!(fresh.status(), StatusCode::OK);
        let etag = fresh.headers()[header::ETAG].clone();
        for (known, status) in [
            (etag.clone(), StatusCode::NOT_MODIFIED),
            (HeaderValue::from_static("\"other\""), StatusCode::OK),
            (
                HeaderValue::from_str(&format!("\"other\", W/{}", etag.to_str().unwrap())).unwrap(),
                StatusCode::NOT_MODIFIED,
            ),
        ] {
            let request = HeaderMap::from_iter([(header::IF_NONE_MATCH, known)]);
            let answer = asset.answer(&request);
            assert_eq!(answer.status(), status);
            assert_eq!(answer.headers()[header::ETAG], etag);
        }
    }
}
