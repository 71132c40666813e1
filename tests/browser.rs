//! The page in a real browser: headless Chromium, driven over WebDriver, against built daemons with simulated nodes.
//!
//! They need `chromedriver`, `chromium` and, for the one with a client certificate, `certutil` and `pk12util`. Where these
//! are missing the tests say so and pass, unless `CIAO_REQUIRE_BROWSER=1`.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "browser/certificate.rs"]
mod certificate;
#[path = "common/certs.rs"]
mod certs;
#[path = "browser/commands.rs"]
mod commands;
#[path = "browser/driver.rs"]
mod driver;
#[path = "browser/large.rs"]
mod large;
#[path = "browser/live.rs"]
mod live;
#[path = "common/peer.rs"]
mod peer;
#[path = "browser/reading.rs"]
mod reading;
#[path = "common/site.rs"]
mod site;
#[path = "browser/world.rs"]
mod world;
