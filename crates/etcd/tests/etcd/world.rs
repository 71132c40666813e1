//! Members of etcd on addresses of loopback that no other test has, killed with the test's thread.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ciao_etcd::{Client, EtcdConfig};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a test waits for what has to come.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether there is no etcd. It has to be there where it is required.
pub(crate) fn is_missing() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|dir| dir.join("etcd").exists()) {
        return false;
    }
    let is_required = std::env::var_os("CIAO_REQUIRE_ETCD").is_some_and(|value| value == "1");
    assert!(!is_required, "etcd is required");
    eprintln!("skipped: etcd is not installed");
    true
}

/// An address of loopback that no other test has.
pub(crate) fn host() -> Ipv4Addr {
    let byte = || fastrand::u8(1..=254);
    Ipv4Addr::new(127, byte(), byte(), byte())
}

/// Members of one cluster. Dropping it kills them.
pub(crate) struct Etcd {
    members: Vec<Child>,
    /// Where each takes clients.
    pub(crate) endpoints: Vec<String>,
    _directory: TempDir,
}

impl Etcd {
    /// Starts so many members, with these flags besides. They may take a while to answer.
    pub(crate) fn start(count: usize, flags: &[&str]) -> Self {
        Self::start_at(host(), "http", count, flags)
    }

    /// The same at this address, with or without TLS.
    pub(crate) fn start_at(host: Ipv4Addr, scheme: &str, count: usize, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // All at once, so that no port is given twice.
        let ports: Vec<TcpListener> = (0..count * 2)
            .map(|_| TcpListener::bind((host, 0)).unwrap())
            .collect();
        let ports: Vec<u16> = ports
            .iter()
            .map(|it| it.local_addr().unwrap().port())
            .collect();
        let peer = |member: usize| format!("http://{host}:{}", ports[member * 2 + 1]);
        let cluster: Vec<String> = (0..count).map(|it| format!("m{it}={}", peer(it))).collect();
        let cluster = cluster.join(",");
        let endpoints: Vec<String> = (0..count)
            .map(|it| format!("{scheme}://{host}:{}", ports[it * 2]))
            .collect();
        let start = |member: usize| {
            let data = directory.path().join(format!("m{member}"));
            let mut command = command(&data, &format!("m{member}"), &endpoints[member]);
            command.args(["--initial-cluster", &cluster]);
            command.args(["--listen-peer-urls", &peer(member)]);
            command.args(["--initial-advertise-peer-urls", &peer(member)]);
            command.args(flags).spawn().unwrap()
        };
        Self {
            members: (0..count).map(start).collect(),
            endpoints: endpoints.clone(),
            _directory: directory,
        }
    }

    /// A client of all members.
    pub(crate) fn client(&self) -> Client {
        Client::new(config(&self.endpoints)).unwrap()
    }

    /// Stops a member, or lets it go on.
    pub(crate) fn signal(&self, member: usize, signal: Signal) {
        let pid = i32::try_from(self.members[member].id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn command(data: &Path, name: &str, endpoint: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "etcd", "--name", name]);
    command.arg("--data-dir").arg(data);
    command.args(["--listen-client-urls", endpoint]);
    command.args(["--advertise-client-urls", endpoint]);
    // What etcd writes is for people who look for a failure.
    command.args(["--logger", "zap", "--unsafe-no-fsync"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

pub(crate) fn config(endpoints: &[String]) -> EtcdConfig {
    EtcdConfig {
        endpoints: endpoints.to_vec(),
        tls: None,
        user: None,
        deadline: Duration::from_secs(2),
    }
}

/// Waits until a call succeeds.
pub(crate) async fn until_ok<T, E: std::fmt::Display>(
    mut call: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + GENEROUS;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        looks.tick().await;
    }
}
