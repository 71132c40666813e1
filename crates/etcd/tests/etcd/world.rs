//! Members of etcd on addresses of loopback that no other test has, killed with the test's thread.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
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
    members: Vec<Member>,
    /// Where each takes clients.
    pub(crate) endpoints: Vec<String>,
    /// Where each takes the other members, `host:port`.
    pub(crate) peers: Vec<String>,
    directory: TempDir,
}

/// What is not as usual with one of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    /// Where the others are told to reach it, `host:port`; `None`: where it takes them.
    pub(crate) door: Option<String>,
    /// The directory of its data, if not one that all of them share.
    pub(crate) disk: Option<PathBuf>,
    /// Flags of it alone.
    pub(crate) flags: Vec<String>,
}

/// One of them.
struct Member {
    /// `None` while it is killed.
    process: Option<Child>,
    data: PathBuf,
    /// What it writes, for people who look for a failure.
    log: PathBuf,
    /// Where the others are told to reach it.
    peer: String,
    flags: Vec<String>,
}

impl Etcd {
    /// Starts so many members, with these flags besides. They may take a while to answer.
    pub(crate) fn start(count: usize, flags: &[&str]) -> Self {
        Self::start_at(host(), "http", count, flags)
    }

    /// The same at this address, with or without TLS.
    pub(crate) fn start_at(host: Ipv4Addr, scheme: &str, count: usize, flags: &[&str]) -> Self {
        Self::start_each(host, scheme, &vec![Own::default(); count], flags)
    }

    /// The same, one member for each of these.
    pub(crate) fn start_each(host: Ipv4Addr, scheme: &str, each: &[Own], flags: &[&str]) -> Self {
        let count = each.len();
        let directory = tempfile::tempdir().unwrap();
        // All at once, so that no port is given twice.
        let ports: Vec<TcpListener> = (0..count * 2)
            .map(|_| TcpListener::bind((host, 0)).unwrap())
            .collect();
        let ports: Vec<u16> = ports
            .iter()
            .map(|it| it.local_addr().unwrap().port())
            .collect();
        let listens = |member: usize| format!("{host}:{}", ports[member * 2 + 1]);
        let peer = |member: usize| {
            let door = each[member].door.clone();
            format!("http://{}", door.unwrap_or_else(|| listens(member)))
        };
        let cluster: Vec<String> = (0..count).map(|it| format!("m{it}={}", peer(it))).collect();
        let cluster = cluster.join(",");
        let endpoints: Vec<String> = (0..count)
            .map(|it| format!("{scheme}://{host}:{}", ports[it * 2]))
            .collect();
        let member = |member: usize| {
            let (peer, endpoint) = (peer(member), &endpoints[member]);
            let listens = format!("http://{}", listens(member));
            let own = [
                ["--name", &format!("m{member}")],
                ["--listen-client-urls", endpoint],
                ["--advertise-client-urls", endpoint],
                ["--initial-cluster", &cluster],
                ["--listen-peer-urls", &listens],
                ["--initial-advertise-peer-urls", &peer],
            ];
            let all = own.concat();
            let all = all.iter().chain(flags).map(|it| (*it).to_owned());
            let own = each[member].clone();
            let flags: Vec<String> = all.chain(own.flags).collect();
            let name = format!("m{member}");
            let log = directory.path().join(format!("{name}.log"));
            let data = own.disk.unwrap_or_else(|| directory.path().to_owned());
            let data = data.join(name);
            let process = Some(spawn(&data, &log, &flags));
            Member {
                process,
                data,
                log,
                peer,
                flags,
            }
        };
        Self {
            members: (0..count).map(member).collect(),
            endpoints: endpoints.clone(),
            peers: (0..count).map(listens).collect(),
            directory,
        }
    }

    /// A client of all members.
    pub(crate) fn client(&self) -> Client {
        Client::new(config(&self.endpoints)).unwrap()
    }

    /// Stops a member, or lets it go on.
    pub(crate) fn signal(&self, member: usize, signal: Signal) {
        let process = self.members[member].process.as_ref().unwrap();
        let pid = i32::try_from(process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits until a member leads the others; which.
    pub(crate) async fn leader(&self) -> usize {
        let client = self.client();
        let leader = async || {
            let statuses = client.statuses().await;
            let mut leads = statuses
                .iter()
                .map(|(_, it)| it.as_ref().is_ok_and(|it| it.is_leader));
            leads
                .position(|leads| leads)
                .ok_or("no member of etcd leads")
        };
        until_ok(leader).await
    }

    /// Ends a member at once, as the loss of its machine would. Its data stays.
    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            let _ = process.kill();
            process.wait().unwrap();
        }
    }

    /// Starts a member that was killed, with the data that it had.
    pub(crate) fn restart(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.process = Some(spawn(&member.data, &member.log, &member.flags));
    }

    /// Whether a member has ended by itself.
    pub(crate) fn has_ended(&mut self, member: usize) -> bool {
        let process = self.members[member].process.as_mut().unwrap();
        process.try_wait().unwrap().is_some()
    }

    /// What members are called among each other, in the order of their addresses, once they know each other.
    pub(crate) fn ids(&self) -> Vec<String> {
        let all = self.endpoints.join(",");
        let listed = etcdctl(&["--endpoints", &all, "member", "list"]);
        let fields = |line: &str| line.split(", ").map(str::to_owned).collect::<Vec<_>>();
        let mut members: Vec<_> = listed.lines().map(fields).collect();
        members.sort_by(|one, other| one[2].cmp(&other[2]));
        members.into_iter().map(|it| it[0].clone()).collect()
    }

    /// Has this member lead the others.
    pub(crate) async fn have_lead(&self, member: usize) {
        let id = &self.ids()[member];
        let try_it = async || {
            let leader = self.leader().await;
            if leader == member {
                return Ok(());
            }
            etcdctl(&["--endpoints", &self.endpoints[leader], "move-leader", id]);
            Err("another member leads")
        };
        until_ok(try_it).await;
    }

    /// Writes a snapshot of the only member to this file.
    pub(crate) fn save(&self, file: &Path) {
        let file = file.to_str().unwrap();
        etcdctl(&["--endpoints", &self.endpoints[0], "snapshot", "save", file]);
    }

    /// Has the only member begin again with this snapshot.
    pub(crate) fn restore(&mut self, file: &Path) {
        self.kill(0);
        let data = self.directory.path().join("restored");
        let peer = &self.members[0].peer;
        let words = [
            "snapshot",
            "restore",
            file.to_str().unwrap(),
            "--name",
            "m0",
        ];
        let to = ["--data-dir", data.to_str().unwrap()];
        let cluster = format!("m0={peer}");
        let who = [
            "--initial-cluster",
            &cluster,
            "--initial-advertise-peer-urls",
            peer,
        ];
        etcdctl(&[&words[..], &to[..], &who[..]].concat());
        self.members[0].data = data;
        self.restart(0);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let process = member.process.as_mut();
            let ended = process.and_then(|it| it.try_wait().unwrap());
            if let Some(status) = ended.filter(|_| std::thread::panicking()) {
                let log = std::fs::read_to_string(&member.log).unwrap_or_default();
                eprintln!("a member of etcd has ended by itself: {status}: {log}");
            }
        }
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

fn spawn(data: &Path, log: &Path, flags: &[String]) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "etcd"]);
    command.arg("--data-dir").arg(data).args(flags);
    command.args(["--logger", "zap", "--unsafe-no-fsync"]);
    let mut file = OpenOptions::new();
    let log = file.create(true).append(true).open(log).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(log).spawn().unwrap()
}

/// Runs `etcdctl`, which must do it; what it prints.
pub(crate) fn etcdctl(words: &[&str]) -> String {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(words);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
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
