//! A scheduler with simulated nodes, `ciaoctl`, and the page of both in a browser.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use proto_frames::Role;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{MissedTickBehavior, interval};

use crate::driver::{Browser, bound_to_us};
use crate::site::{Daemon, Site, output, within};

/// What every node here has.
const NODE: &str = "mem=1000,cpus=8,disk=100000";

/// The parts of a cluster as processes.
pub(crate) struct World {
    pub(crate) site: Site,
    scheduler: Option<Daemon>,
    pub(crate) frames: SocketAddr,
    pub(crate) http: SocketAddr,
    launchers: Vec<Child>,
}

/// `ciaoctl web`, and the address that it has printed.
pub(crate) struct Web {
    pub(crate) url: String,
    _process: Child,
}

/// What a page has done that it should not; seen by [`Page::is_clean`].
pub(crate) struct Page {
    pub(crate) browser: Browser,
    origin: String,
}

impl World {
    /// A scheduler and these nodes, which take work.
    pub(crate) async fn new(nodes: &[&str]) -> Self {
        let mut world = Self::empty(&[]).await;
        for (at, node) in nodes.iter().enumerate() {
            let zone = if at % 2 == 0 { "zone=a" } else { "zone=b" };
            world.launch(&["--hostname", node, "--label", zone]);
        }
        world.ready(nodes.len()).await;
        world
    }

    /// A scheduler with these flags, and no nodes.
    pub(crate) async fn empty(flags: &[&str]) -> Self {
        let site = Site::new();
        site.ca.write(&site.path("."), &[("viewer", Role::VIEWER)]);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut world = Self {
            site,
            scheduler: None,
            frames: any,
            http: any,
            launchers: Vec::new(),
        };
        world.start_scheduler(flags).await;
        world
    }

    /// Starts the scheduler, at the addresses where it was if it was there before.
    pub(crate) async fn start_scheduler(&mut self, flags: &[&str]) {
        let mut command = bound_to_us(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command
            .arg("-cert")
            .arg(self.site.path("scheduler.pem"))
            .arg("-cacert")
            .arg(self.site.path("CAcert.pem"))
            .args(["-logtostderr", "--tls-deadline", "60s"])
            .args(["--listen", &self.frames.to_string()])
            .args(["--http", &self.http.to_string()])
            .args(flags)
            .stderr(Stdio::piped());
        let scheduler = Daemon::start(command).await;
        let line = scheduler.logged("serves HTTP on ").await;
        let (_, http) = line.rsplit_once(' ').unwrap();
        self.http = http.parse().unwrap();
        self.frames = scheduler.address;
        self.scheduler = Some(scheduler);
    }

    /// The scheduler, which runs.
    pub(crate) fn daemon(&self) -> &Daemon {
        self.scheduler.as_ref().unwrap()
    }

    /// Ends the scheduler as a crash would.
    pub(crate) async fn kill_scheduler(&mut self) {
        self.scheduler.take().unwrap().kill().await;
    }

    /// Starts a launcher of simulated nodes.
    pub(crate) fn launch(&mut self, flags: &[&str]) {
        let mut command = bound_to_us(env!("CARGO_BIN_EXE_ciao-launcher"));
        command
            .arg("-cert")
            .arg(self.site.path("agent.pem"))
            .arg("-cacert")
            .arg(self.site.path("CAcert.pem"))
            .args(["--server", &self.frames.to_string()])
            .args(["--simulate", NODE, "--reconnect-cap", "200ms"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.launchers.push(command.spawn().unwrap());
    }

    /// Waits until so many nodes take work.
    pub(crate) async fn ready(&self, count: usize) {
        // A list of many takes the processor from the nodes that are to come.
        let every = if count > 100 { 1000 } else { 50 };
        let mut look = interval(Duration::from_millis(every));
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let nodes = self.ctl(&["nodes"]).await;
            let nodes = nodes["nodes"].as_array().unwrap();
            if nodes
                .iter()
                .filter(|node| node["status"] == "READY")
                .count()
                == count
            {
                return;
            }
        }
    }

    /// `ciaoctl --json` with these words.
    pub(crate) async fn ctl(&self, words: &[&str]) -> Value {
        let mut command = self.command("controller", words);
        command.arg("--json");
        let output = output(command).await;
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {output:?}"))
    }

    /// Starts an array of so many elements with this name, each of which runs this.
    pub(crate) async fn start_array(&self, name: &str, count: u32, script: &str) {
        let indexes = format!("0-{}", count - 1);
        let words = ["run", "--mem", "1", "--cpus", "1", "--name", name];
        let mut command = self.command("controller", &words);
        command.args(["--array", &indexes, "--", "sh", "-c", script]);
        let ran = output(command).await;
        assert!(ran.status.success(), "{ran:?}");
    }

    /// Starts an instance with this name, for so much memory; whatever becomes of it.
    pub(crate) async fn start(&self, name: &str, mem_mb: u32, more: &[&str]) {
        let mem = mem_mb.to_string();
        let words = ["run", "--mem", &mem, "--cpus", "1", "--name", name];
        let mut command = self.command("controller", &words);
        command.args(more).args(["--", "true"]);
        let output = output(command).await;
        assert!(output.status.success(), "{output:?}");
    }

    /// Serves the page with a certificate.
    pub(crate) async fn web(&self, certificate: &str) -> Web {
        let url = format!("https://{}", self.http);
        let mut command = self.command(certificate, &["web", "--http", &url]);
        command.stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = within(lines.next_line()).await.unwrap().unwrap();
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Web {
            url,
            _process: process,
        }
    }

    fn command(&self, certificate: &str, words: &[&str]) -> Command {
        let mut command = bound_to_us(env!("CARGO_BIN_EXE_ciaoctl"));
        command
            .args(["--server", &self.frames.to_string(), "--timeout", "60s"])
            .arg("--cert")
            .arg(self.site.path(&format!("{certificate}.pem")))
            .arg("--cacert")
            .arg(self.site.path("CAcert.pem"))
            .args(words)
            .stderr(Stdio::piped());
        command
    }
}

impl Page {
    /// Opens an address, and waits until the page there follows the cluster.
    pub(crate) async fn open(browser: Browser, url: &str) -> Self {
        browser.open(url).await;
        browser
            .until("document.getElementById('link').dataset.state === 'live'")
            .await;
        // It goes if the page is loaded once more.
        browser.js("window.isFirst = true").await;
        let origin = browser.text("location.origin").await;
        Self { browser, origin }
    }

    /// Shows a view.
    pub(crate) async fn show(&self, view: &str) {
        self.browser
            .js(&format!("location.hash = '#/{view}'"))
            .await;
    }

    /// Waits until a part of the page says this.
    pub(crate) async fn says(&self, selector: &str, text: &str) {
        let wanted = format!("document.querySelector({selector:?}).innerText.includes({text:?})");
        self.browser.until(&wanted).await;
    }

    /// Insists that the page was not loaded again, that nothing left its origin, and that the console has no complaint but
    /// these.
    pub(crate) async fn is_clean(&self, expected: &[&str]) {
        assert_eq!(self.browser.text("window.isFirst").await, "true");
        let script = "return performance.getEntriesByType('resource').map((it) => it.name)";
        let names = self.browser.js(script).await;
        let names = names.as_array().unwrap();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            let name = name.as_str().unwrap();
            assert!(name.starts_with(&format!("{}/", self.origin)), "{name}");
        }
        for line in self.browser.log().await {
            let is_expected = expected.iter().any(|text| line.contains(text));
            assert!(is_expected || !line.contains("SEVERE"), "{line}");
        }
    }
}
