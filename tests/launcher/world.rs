//! A node for a test: a scripted scheduler, a state directory, and the launcher's program running between them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ciao_scheduler::launcher::output_file;
use proto_frames::payload::{
    CommandFailure, Delete, InstanceDeleted, InstanceStat, InstanceStateEvent, InstanceStopped,
    LeaseRenewed, OnNodeLoss, Payload, PhaseName, Resume, Scheduling, Start, StartFailure, Stats,
    Suspend, Update,
};
use proto_frames::{
    Connect, Connected, Decoder, Encoder, Frame, Kind, Limits, Message, Role, Uuid,
};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certs::TestCa;
use crate::guarded::GuardedDir;
use crate::messages::next_message;
use crate::processes;
use crate::volume::Volume;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// Time between two looks at something that does not tell when it changes.
const LOOK: Duration = Duration::from_millis(10);

/// The scheduler's UUID.
pub(crate) const SERVER: Uuid = Uuid::from_u128(0x5e);

/// A scripted scheduler with the files of one launcher.
pub(crate) struct World {
    ca: TestCa,
    listener: TcpListener,
    dir: GuardedDir,
    /// Where the state directory is a file system of its own.
    volume: Option<Volume>,
}

/// A running launcher; killed when dropped.
pub(crate) struct Launcher(pub(crate) Child);

/// The scheduler's end of one connection.
pub(crate) struct Peer {
    stream: TlsStream<TcpStream>,
    decoder: Decoder,
    encoder: Encoder,
    buffer: BytesMut,
    /// The launcher's CONNECT.
    pub(crate) connect: Connect,
    /// Whether STATS that pass by are answered, so that the node's lease goes on.
    pub(crate) renews: bool,
}

impl World {
    pub(crate) async fn new() -> Self {
        let (ca, dir) = (TestCa::new(), GuardedDir::new());
        ca.write(
            dir.path(),
            &[("agent", Role::AGENT), ("controller", Role::CONTROLLER)],
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let volume = None;
        Self {
            ca,
            listener,
            dir,
            volume,
        }
    }

    /// A world whose state directory is a file system of so many KiB, which can be filled and made read-only.
    pub(crate) async fn on_volume(kib: u32) -> Self {
        let mut world = Self::new().await;
        let place = world.path("state");
        std::fs::create_dir(&place).unwrap();
        world.volume = Some(Volume::mount(place, kib));
        world
    }

    /// The file system of the state directory.
    pub(crate) fn volume(&self) -> &Volume {
        self.volume.as_ref().unwrap()
    }

    /// A world with a connected launcher.
    pub(crate) async fn connected(args: &[&str]) -> (Self, Launcher, Peer) {
        let world = Self::new().await;
        let launcher = world.launch(args);
        let peer = world.accept().await;
        (world, launcher, peer)
    }

    /// Where this world's scheduler listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The command that runs the launcher in this world.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_ciao-launcher");
        let mut command = match &self.volume {
            Some(volume) => volume.command(program),
            None => Command::new(program),
        };
        let port = self.address().port();
        // The program that is installed for that; other tests' launchers are their own supervisors.
        if !args.iter().any(|arg| arg.starts_with("-supervisor")) {
            command.arg(concat!(
                "-supervisor=",
                env!("CARGO_BIN_EXE_ciao-supervisor")
            ));
        }
        command
            .arg(format!("-cert={}", self.path("agent.pem").display()))
            .arg(format!("-cacert={}", self.path("CAcert.pem").display()))
            .arg(format!("-server=127.0.0.1:{port}"))
            .arg(format!("-state-dir={}", self.path("state").display()))
            .args(["-report-interval=200ms", "-reconnect-cap=100ms"])
            .args(args)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn launch(&self, args: &[&str]) -> Launcher {
        Launcher(self.command(args).spawn().unwrap())
    }

    /// As [`World::launch`], from within a cgroup.
    pub(crate) fn launch_in(&self, cgroup: &Path, args: &[&str]) -> Launcher {
        let launcher = self.command(args);
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(cgroup.join("cgroup.procs"))
            .arg(launcher.get_program())
            .args(launcher.get_args())
            .stdin(Stdio::null());
        Launcher(command.spawn().unwrap())
    }

    /// Accepts the launcher's next connection, lets it in and waits until it takes work, as a scheduler does.
    pub(crate) async fn accept(&self) -> Peer {
        let mut peer = self.admit().await;
        peer.next(&[Kind::READY, Kind::MAINTENANCE]).await;
        peer
    }

    /// Accepts the launcher's next connection and lets it in.
    pub(crate) async fn admit(&self) -> Peer {
        let mut peer = self.knock().await;
        let connected = Connected::new(SERVER, peer.connect.source, Bytes::new());
        peer.send_message(Message::Connected(connected)).await;
        peer
    }

    /// Accepts the launcher's next connection as far as CONNECT. One that ends before that is of a launcher that was
    /// ended, or is tried again, and is passed over.
    pub(crate) async fn knock(&self) -> Peer {
        within(async {
            loop {
                let (socket, _) = self.listener.accept().await.unwrap();
                let acceptor = TlsAcceptor::from(self.ca.server());
                let Ok(mut stream) = acceptor.accept(socket).await else {
                    continue;
                };
                let mut decoder = Decoder::server(Limits::default());
                let mut buffer = BytesMut::new();
                let connect = match next_message(&mut stream, &mut decoder, &mut buffer).await {
                    Some(Message::Connect(connect)) => connect,
                    None => continue,
                    other => panic!("{other:?} instead of CONNECT"),
                };
                let encoder = Encoder::new(decoder.encoding().unwrap());
                return Peer {
                    stream,
                    decoder,
                    encoder,
                    buffer,
                    connect,
                    renews: false,
                };
            }
        })
        .await
    }

    /// The authority of its certificates.
    pub(crate) fn ca(&self) -> &TestCa {
        &self.ca
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        let state = self.path("state");
        match &self.volume {
            Some(volume) => volume.seen(&state),
            None => state,
        }
    }

    /// How long supervisors still let instances under the lease run.
    pub(crate) fn lease_left(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = Duration::from_secs(now.tv_sec.try_into().unwrap());
        let now = seconds + Duration::from_nanos(now.tv_nsec.try_into().unwrap());
        self.lease_until().saturating_sub(now)
    }

    /// Until when supervisors let instances under the lease run, since the machine booted.
    pub(crate) fn lease_until(&self) -> Duration {
        let text = std::fs::read(self.state_dir().join("lease.json")).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&text).unwrap();
        Duration::from_millis(file["until_ms"].as_u64().unwrap())
    }

    /// What the instance has written.
    pub(crate) fn output(&self, id: &str) -> String {
        std::fs::read_to_string(output_file(&self.state_dir(), id)).unwrap_or_default()
    }

    /// Waits until the instance has written lines, and gives them as pids.
    pub(crate) async fn pids(&self, id: &str, count: usize) -> Vec<Pid> {
        let pids = || -> Vec<i32> {
            let output = self.output(id);
            output
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect()
        };
        until("the instance's pids", || pids().len() == count).await;
        pids()
            .into_iter()
            .map(|pid| Pid::from_raw(pid).unwrap())
            .collect()
    }
}

impl Drop for World {
    /// A test that fails leaves no workload behind.
    fn drop(&mut self) {
        let instances = std::fs::read_dir(self.state_dir().join("instances"));
        for instance in instances.into_iter().flatten().flatten() {
            if let Some(pid) = supervisor_in(&instance.path()).filter(|pid| runs(*pid)) {
                let _ = rustix::process::kill_process(pid, Signal::USR1);
            }
        }
    }
}

impl Launcher {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the program's end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the launcher's end", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// The next frame of one of these kinds; others are passed over.
    pub(crate) async fn next(&mut self, kinds: &[Kind]) -> Frame {
        within(async {
            loop {
                match next_message(&mut self.stream, &mut self.decoder, &mut self.buffer).await {
                    Some(Message::Frame(frame)) => {
                        if self.renews && frame.kind == Kind::STATS {
                            self.renew(&frame).await;
                        }
                        if kinds.contains(&frame.kind) {
                            return frame;
                        }
                    }
                    other => panic!("{other:?} instead of a frame"),
                }
            }
        })
        .await
    }

    /// Waits until the launcher closes the connection; whether it has sent no frame before.
    pub(crate) async fn is_left(&mut self) -> bool {
        let next = next_message(&mut self.stream, &mut self.decoder, &mut self.buffer);
        within(next).await.is_none()
    }

    /// The next frame that is not part of a report.
    pub(crate) async fn answer(&mut self) -> Frame {
        let answers = [
            Kind::START_FAILURE,
            Kind::DELETE_FAILURE,
            Kind::INSTANCE_DELETED,
            Kind::INSTANCE_STOPPED,
            Kind::INSTANCE_STATE,
            Kind::COMMAND_FAILURE,
            Kind::OFFLINE,
        ];
        self.next(&answers).await
    }

    /// The next frame that is not part of a report, which must be of this kind.
    async fn answer_of(&mut self, kind: Kind) -> Frame {
        let frame = self.answer().await;
        let payload = String::from_utf8_lossy(&frame.payload);
        assert_eq!(frame.kind, kind, "{payload}");
        frame
    }

    /// The next frame that is not part of a report, which says that an instance stopped: which one, with what code.
    pub(crate) async fn stopped(&mut self) -> (String, Option<i64>) {
        let frame = self.answer_of(Kind::INSTANCE_STOPPED).await;
        let event = InstanceStopped::decode(&frame.payload).unwrap();
        (event.instance_uuid, event.exit_code)
    }

    pub(crate) async fn deleted(&mut self) -> (String, Option<i64>) {
        let frame = self.answer_of(Kind::INSTANCE_DELETED).await;
        let event = InstanceDeleted::decode(&frame.payload).unwrap();
        (event.instance_uuid, event.exit_code)
    }

    pub(crate) async fn failure(&mut self) -> StartFailure {
        let frame = self.answer_of(Kind::START_FAILURE).await;
        StartFailure::decode(&frame.payload).unwrap()
    }

    /// STATS that satisfy `wanted`; earlier ones are passed over.
    pub(crate) async fn stats(&mut self, wanted: impl Fn(&Stats) -> bool) -> Stats {
        loop {
            let stats = Stats::decode(&self.next(&[Kind::STATS]).await.payload).unwrap();
            if wanted(&stats) {
                return stats;
            }
        }
    }

    /// Waits until an instance is listed as `state`.
    pub(crate) async fn listed(&mut self, id: &str, state: &str) -> InstanceStat {
        let matches = |it: &&InstanceStat| it.instance_uuid == id && it.state.as_str() == state;
        let stats = self
            .stats(|stats| stats.instances.iter().any(|it| matches(&it)))
            .await;
        stats.instances.iter().find(matches).unwrap().clone()
    }

    pub(crate) async fn start(&mut self, start: &Start) {
        self.send(Kind::START, start.encode()).await;
    }

    /// Starts a shell with this script.
    pub(crate) async fn shell(&mut self, id: &str, script: &str) {
        self.start(&shell(id, script)).await;
    }

    pub(crate) async fn delete(&mut self, id: &str, stop: bool) {
        let workload_agent_uuid = self.connect.source.to_string();
        let delete = Delete {
            instance_uuid: id.to_owned(),
            workload_agent_uuid,
            stop,
            ..Delete::default()
        };
        self.send(Kind::DELETE, delete.encode()).await;
    }

    pub(crate) async fn suspend(&mut self, id: &str) {
        let suspend = Suspend {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.connect.source.to_string(),
        };
        self.send(Kind::SUSPEND, suspend.encode()).await;
    }

    pub(crate) async fn resume(&mut self, id: &str) {
        let resume = Resume {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.connect.source.to_string(),
        };
        self.send(Kind::RESUME, resume.encode()).await;
    }

    /// Has an instance have this much memory (MiB) and so many vcpus from now on.
    pub(crate) async fn update(&mut self, id: &str, mem_mb: i64, vcpus: i64) {
        let update = Update {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.connect.source.to_string(),
            mem_mb: Some(mem_mb),
            vcpus: Some(vcpus),
            disk_mb: Some(0),
            ..Update::default()
        };
        self.send(Kind::UPDATE, update.encode()).await;
    }

    /// The next frame that is not part of a report, which says what an instance is now.
    pub(crate) async fn turned(&mut self) -> (String, PhaseName) {
        let frame = self.answer_of(Kind::INSTANCE_STATE).await;
        let event = InstanceStateEvent::decode(&frame.payload).unwrap();
        assert_eq!(event.node_uuid, self.connect.source.to_string());
        (event.instance_uuid, event.state)
    }

    /// The next frame that is not part of a report, which says that a command was not done.
    pub(crate) async fn refused(&mut self) -> CommandFailure {
        let frame = self.answer_of(Kind::COMMAND_FAILURE).await;
        CommandFailure::decode(&frame.payload).unwrap()
    }

    /// Passes over so many reports.
    pub(crate) async fn reports(&mut self, count: usize) {
        for _ in 0..count {
            self.next(&[Kind::STATS]).await;
        }
    }

    async fn renew(&mut self, stats: &Frame) {
        let seq = Stats::decode(&stats.payload).unwrap().lease_seq;
        let renewed = LeaseRenewed { seq: seq.unwrap() };
        self.send(Kind::LEASE_RENEWED, renewed.encode()).await;
    }

    pub(crate) async fn send(&mut self, kind: Kind, payload: impl Into<Bytes>) {
        self.send_message(Message::Frame(Frame::new(kind, SERVER, payload)))
            .await;
    }

    pub(crate) async fn send_message(&mut self, message: Message) {
        self.send_at_once(vec![message]).await;
    }

    /// Sends messages with one write, so that the launcher has them all when it reads the first.
    pub(crate) async fn send_at_once(&mut self, messages: Vec<Message>) {
        let mut bytes = BytesMut::new();
        for message in &messages {
            self.encoder.encode(message, &mut bytes);
        }
        self.stream.write_all(&bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }
}

/// A START of a shell script.
pub(crate) fn shell(id: &str, script: &str) -> Start {
    let mut start = Start {
        instance_uuid: id.to_owned(),
        vm_type: "process".to_owned(),
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..Start::default()
    };
    start.requirements.mem_mb = 64;
    start.requirements.vcpus = 1;
    start
}

/// A START of a shell script that may run only under the lease.
pub(crate) fn leased(id: &str, script: &str) -> Start {
    let scheduling = Scheduling {
        on_node_loss: OnNodeLoss::Restart,
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..shell(id, script)
    }
}

/// Whether a process runs, or could; one that has ended and was not waited for does not.
pub(crate) fn runs(pid: Pid) -> bool {
    processes::runs(pid.as_raw_pid())
}

/// Whether a process is stopped.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    processes::is_stopped(pid.as_raw_pid())
}

/// The supervisor of an instance.
pub(crate) fn supervisor(state_dir: &Path, id: &str) -> Pid {
    supervisor_in(&state_dir.join("instances").join(id)).unwrap()
}

fn supervisor_in(instance: &Path) -> Option<Pid> {
    let text = std::fs::read(instance.join("process.json")).ok()?;
    let file: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Pid::from_raw(file["By"]["pid"].as_i64()?.try_into().ok()?)
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = async {
        let mut look = tokio::time::interval(LOOK);
        while !condition() {
            look.tick().await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, waited).await.is_ok(),
        "{what} did not come"
    );
}

/// Fails loudly instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the test hangs")
}
