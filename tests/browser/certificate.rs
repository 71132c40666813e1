//! A browser with a client certificate of its own, straight at the scheduler's HTTP door.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::driver::{Browser, bound_to_us, is_missing};
use crate::site::output;
use crate::world::{Page, World};

/// Where Debian's Chromium reads policies.
const POLICIES: &str = "/etc/chromium/policies/managed";

/// A policy file; it goes with this.
struct Policy(PathBuf);

impl Policy {
    /// Has the browser present a certificate to this origin without asking. None where the directory cannot be written.
    fn present_certificate_to(origin: &str) -> Option<Self> {
        std::fs::create_dir_all(POLICIES).ok()?;
        let path = Path::new(POLICIES).join(format!("ciao-test-{}.json", std::process::id()));
        let pattern = json!({"pattern": origin, "filter": {}}).to_string();
        let policy = json!({"AutoSelectCertificateForUrls": [pattern]});
        std::fs::write(&path, policy.to_string()).ok()?;
        Some(Self(path))
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_browser_that_presents_a_certificate_needs_nothing_between() {
    if is_missing(&[
        "chromedriver",
        "chromium",
        "setpriv",
        "certutil",
        "pk12util",
        "openssl",
    ]) {
        return;
    }
    let world = World::new(&["node-1"]).await;
    let origin = format!("https://localhost:{}", world.http.port());
    let Some(_policy) = Policy::present_certificate_to(&origin) else {
        let is_required =
            std::env::var_os("CIAO_REQUIRE_BROWSER").is_some_and(|value| value == "1");
        assert!(!is_required, "{POLICIES} has to be writable");
        eprintln!("skipped: {POLICIES} cannot be written");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let database = home.path().join(".pki/nssdb");
    std::fs::create_dir_all(&database).unwrap();
    let database = format!("sql:{}", database.display());
    let (viewer, ca) = (world.site.path("viewer.pem"), world.site.path("CAcert.pem"));
    let bundle = home.path().join("viewer.p12");
    let (viewer, ca) = (viewer.to_str().unwrap(), ca.to_str().unwrap());
    let bundle = bundle.to_str().unwrap();
    for words in [
        &["certutil", "-N", "-d", &database, "--empty-password"][..],
        &[
            "certutil", "-A", "-d", &database, "-n", "ciao", "-t", "C,,", "-i", ca,
        ],
        &[
            "openssl", "pkcs12", "-export", "-in", viewer, "-out", bundle, "-passout", "pass:",
        ],
        &["pk12util", "-d", &database, "-i", bundle, "-W", ""],
    ] {
        let mut command: Command = bound_to_us(words[0]);
        command
            .args(&words[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = output(command).await;
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    let browser = Browser::start_in(home).await;
    let page = Page::open(browser, &format!("{origin}/")).await;
    page.says("#role", "read only").await;
    page.show("nodes").await;
    page.says("main tbody", "node-1").await;
    page.is_clean(&[]).await;
}
