//! `ciao-scheduler ha`: what operators see and do of several schedulers behind one name.

use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use ciao_etcd::Client;
use ciao_scheduler::cluster::{self, ClusterView, Released};
use ciao_scheduler::printable::Printable;
use ciao_scheduler::server::DEFAULT_PORT;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cluster_flags::{EtcdFlags, HaCommand, NamedCluster, reachable};

/// How long one call of etcd may take at one member.
const CALL: Duration = Duration::from_secs(5);

/// How long a scheduler that is said to have died may take to let a connection in.
const CONNECT: Duration = Duration::from_secs(2);

/// Does it.
///
/// # Errors
/// etcd cannot be reached, or refuses; the scheduler that is to be released still runs.
pub(crate) fn run(command: HaCommand) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            HaCommand::Status { of, json } => status(&of, json).await,
            HaCommand::NewGeneration { of } => new_generation(&of).await,
            HaCommand::Release {
                of,
                cluster_address,
                force,
            } => release(&of, cluster_address, force).await,
        }
    })
}

async fn new_generation(of: &NamedCluster) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let generation = cluster::new_generation(&client(of)?, &of.cluster, now).await?;
    writeln!(
        std::io::stdout(),
        "generation {generation}: the next leader's term is later than all before"
    )?;
    Ok(ExitCode::SUCCESS)
}

fn client(of: &NamedCluster) -> anyhow::Result<Client> {
    Ok(Client::new(of.etcd.config(CALL)?)?)
}

async fn status(of: &NamedCluster, json: bool) -> anyhow::Result<ExitCode> {
    let view = cluster::view(&client(of)?, &of.cluster, &etcdctl(&of.etcd)).await?;
    let text = match json {
        true => serde_json::to_string(&view)? + "\n",
        false => lines(&view),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(match view.leader {
        Some(_) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

/// How `etcdctl` reaches the same members. Who may maintain etcd is root, where it asks for passwords.
fn etcdctl(etcd: &EtcdFlags) -> String {
    let mut text = format!("etcdctl --endpoints {}", etcd.etcd.join(","));
    let files = [
        ("cacert", &etcd.etcd_cacert),
        ("cert", &etcd.etcd_cert),
        ("key", &etcd.etcd_key),
    ];
    for (flag, file) in files {
        if let Some(file) = file {
            text += &format!(" --{flag} {}", file.display());
        }
    }
    if etcd.etcd_user.is_some() {
        text += " --user root";
    }
    text
}

fn lines(view: &ClusterView) -> String {
    let mut text = match (&view.leader, view.term) {
        (Some(leader), Some(term)) => format!(
            "cluster {}: {} leads, since revision {term} of etcd\n",
            view.cluster,
            Printable::new(leader)
        ),
        _ => format!("cluster {}: no scheduler leads\n", view.cluster),
    };
    for standby in &view.standby {
        text += &format!("standby {}\n", Printable::new(standby));
    }
    if view.standby.is_empty() {
        text +=
            "no scheduler stands by: another can be started with the same --cluster and --etcd\n";
    }
    for member in &view.etcd {
        text += &match &member.error {
            Some(error) => format!("etcd {}: {}\n", member.endpoint, Printable::new(error)),
            None => format!(
                "etcd {}: version {}, database {} KiB, {} in use{}\n",
                member.endpoint,
                Printable::new(&member.version),
                member.db_bytes / 1024,
                member.db_bytes_in_use / 1024,
                if member.is_leader { ", leads etcd" } else { "" }
            ),
        };
        if member.has_lease_fault {
            text += "  this version may confirm a lease that has ended after its member was cut off: use 3.4.31, 3.5.13 or \
                     a later one\n";
        }
    }
    for alarm in &view.alarms {
        text += &format!("alarm {alarm}\n");
    }
    for command in &view.commands {
        text += &format!("  {}\n", Printable::new(command));
    }
    text
}

async fn release(
    of: &NamedCluster,
    address: Option<String>,
    force: bool,
) -> anyhow::Result<ExitCode> {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT));
    let address = address.unwrap_or_else(|| reachable(everywhere));
    let answers = timeout(CONNECT, TcpStream::connect(&address)).await;
    anyhow::ensure!(
        force || !matches!(answers, Ok(Ok(_))),
        "something still answers at {address}: a scheduler that runs gives its place to another when it is stopped \
         (SIGTERM); --force does it all the same"
    );
    let text = match cluster::release(&client(of)?, &of.cluster, &address).await? {
        Released::Done => format!("{address} leads no more"),
        Released::Another(leader) => {
            format!(
                "nothing to do: {} leads, not {address}",
                Printable::new(&leader)
            )
        }
        Released::None => "nothing to do: no scheduler leads".to_owned(),
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(ExitCode::SUCCESS)
}
