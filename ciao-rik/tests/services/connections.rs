//! Connections that say nothing, and more of them than there are files for.

use std::net::SocketAddr;
use std::sync::Arc;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::process::{DEADLINE, Process, Reads};
use crate::rpc::common::ResourceStatus as Is;
use crate::world::World;

async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(TcpStream::connect(address).await.unwrap());
    }
    all
}

/// Lets this process open as many files as it may.
fn raise_own_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

#[tokio::test]
async fn more_silent_connections_than_there_may_be_keep_nobody_out() {
    raise_own_limit();
    let world = World::new().await;
    let mut first = Vec::new();
    // More than controllers may have; of workers, more than may be silent at a time.
    for (address, count) in [(world.controllers_at(), 600), (world.workers_at(), 2500)] {
        first.push(silent(address, count).await);
    }
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    assert_eq!(worker.created(), ["a"]);
    for mut all in first {
        let read = timeout(DEADLINE, all[0].read(&mut [0; 16])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

#[tokio::test]
async fn a_silent_connection_is_closed_in_time() {
    let world = World::new().await;
    let mut connections = silent(world.controllers_at(), 1).await;
    connections.extend(silent(world.workers_at(), 1).await);
    for mut connection in connections {
        let mut buffer = [0; 16];
        let read = timeout(DEADLINE, connection.read(&mut buffer));
        let read = read.await.expect("it is closed");
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

#[tokio::test]
async fn a_connection_that_is_silent_after_its_tls_handshake_is_closed_in_time() {
    let mut world = World::bare(&[]);
    let file = world.path("services.pem").display().to_string();
    world.flags(&["-tls", &file]);
    world.start_scheduler().await;
    world.start_rik().await;
    let mut roots = RootCertStore::empty();
    let ca = std::fs::read(world.path("CAcert.pem")).unwrap();
    roots
        .add(CertificateDer::from_pem_slice(&ca).unwrap())
        .unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(world.controllers_at()).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut connection = connector.connect(name, stream).await.unwrap();
    let mut buffer = [0; 16];
    let read = timeout(DEADLINE, connection.read(&mut buffer));
    let read = read.await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn where_files_have_run_out_it_says_so_once_and_goes_on_when_there_are_some() {
    let world = World::new().await;
    let [_, pid] = world.pids();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open = u64::try_from(open.count()).unwrap();
    let pid = Pid::from_raw(pid.try_into().unwrap());
    let few = |maximum| Rlimit {
        current: Some(open + 4),
        maximum,
    };
    let all = prlimit(
        pid,
        Resource::Nofile,
        few(getrlimit(Resource::Nofile).maximum),
    )
    .unwrap();
    let held = silent(world.controllers_at(), 40).await;
    world.rik_wrote("accept_failed").await;
    // Time passes in which it would try again without end.
    for _ in 0..3 {
        world.ciaoctl(&["nodes"]).await;
    }
    drop(held);
    prlimit(pid, Resource::Nofile, all).unwrap();
    let controller = world.controller().await;
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Pending).await;
    let log = world.log();
    let said = log.iter().filter(|it| it.contains("accept_failed")).count();
    assert_eq!(said, 1, "{log:#?}");
}

#[tokio::test]
async fn it_may_open_as_many_files_as_the_system_lets_it() {
    let mut world = World::bare(&[]);
    world.start_scheduler().await;
    let rik = world.rik();
    let rik = rik.as_std();
    let mut limited = Command::new("sh");
    limited
        .args(["-c", r#"ulimit -S -n 256 && exec "$0" "$@""#])
        .arg(rik.get_program())
        .args(rik.get_args())
        .kill_on_drop(true);
    let rik = Process::start(limited, Reads::Err);
    rik.wrote("listens for controllers").await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", rik.pid())).unwrap();
    let files = limits.lines().find(|it| it.starts_with("Max open files"));
    let mut numbers = files.unwrap().split_whitespace().skip(3);
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert_eq!(soft, hard);
}
