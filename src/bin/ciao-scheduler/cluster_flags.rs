//! The flags of one of several schedulers.

#![cfg_attr(
    not(feature = "etcd"),
    allow(
        dead_code,
        reason = "without the feature they are taken, and none is used"
    )
)]

use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

/// What makes this scheduler one of several.
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// Be one of several schedulers of the cluster with this name: one leads, the others stand by. Needs a program built
    /// with --features etcd
    #[arg(long, value_name = "NAME", requires = "etcd", value_parser = parse_name)]
    pub(crate) cluster: Option<String>,
    /// Where etcd is
    #[command(flatten)]
    pub(crate) etcd: EtcdFlags,
    /// How long after its last sign of life another scheduler takes the place of the leader, at least 2s
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "cluster")]
    pub(crate) etcd_ttl: humantime::Duration,
    /// Whether the leader has etcd forget, every 5 min, what was overwritten 5 min before; off where others use this etcd
    /// and do so
    #[arg(long, value_name = "on|off", default_value = "on", requires = "cluster", action = ArgAction::Set, value_parser = on_or_off)]
    pub(crate) etcd_compact: bool,
    /// Where this scheduler is, for those whom another refuses [default: its first --listen address, with the host's name
    /// where that is every address]
    #[arg(long, value_name = "HOST:PORT", requires = "cluster")]
    pub(crate) cluster_address: Option<String>,
}

/// How etcd is reached.
#[derive(Debug, Args)]
pub(crate) struct EtcdFlags {
    /// Members of etcd, http(s)://HOST:PORT, with commas between them: etcd decides which scheduler leads, and keeps what
    /// a state directory would
    #[arg(long, value_name = "URLS", value_delimiter = ',', requires = "cluster")]
    pub(crate) etcd: Vec<String>,
    /// CA certificates of etcd's members, for https
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub(crate) etcd_cacert: Option<PathBuf>,
    /// Certificate to show to etcd
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    pub(crate) etcd_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// User to be in etcd, with --etcd-password-file
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    pub(crate) etcd_user: Option<String>,
    /// File with that user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub(crate) etcd_password_file: Option<PathBuf>,
}

/// What can be seen and done of several schedulers behind one name.
#[derive(Debug, Args)]
pub(crate) struct HaFlags {
    /// What to do
    #[command(subcommand)]
    pub(crate) command: HaCommand,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum HaCommand {
    /// Show who leads, who stands by, and how etcd is; exit code 1 where none leads
    Status {
        /// Which cluster
        #[command(flatten)]
        of: NamedCluster,
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make the terms of leaders later than all before: once after etcd was wiped or restored from a snapshot, because launchers
    /// refuse leaders of earlier terms
    NewGeneration {
        /// Which cluster
        #[command(flatten)]
        of: NamedCluster,
    },
    /// End the turn of a scheduler of this host whose process has died, so that another leads at once instead of after the
    /// TTL: for ExecStopPost
    Release {
        /// Which cluster
        #[command(flatten)]
        of: NamedCluster,
        /// As the scheduler has it [default: the host's name and port 8888]
        #[arg(long, value_name = "HOST:PORT")]
        cluster_address: Option<String>,
        /// Though something still answers at that address
        #[arg(long)]
        force: bool,
    },
}

/// A cluster of schedulers.
#[derive(Debug, Args)]
pub(crate) struct NamedCluster {
    /// The cluster's name
    #[arg(long, value_name = "NAME", required = true, requires = "etcd", value_parser = parse_name)]
    pub(crate) cluster: String,
    /// Where etcd is
    #[command(flatten)]
    pub(crate) etcd: EtcdFlags,
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

/// A name that can be part of a key of etcd.
fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("expected up to 64 letters, digits, '-', '_' and '.'".to_owned()),
    }
}

#[cfg(feature = "etcd")]
mod config {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::time::Duration;

    use anyhow::Context as _;
    use ciao_etcd::{EtcdConfig, Tls, User};
    use ciao_scheduler::cluster::{ClusterConfig, MIN_TTL};

    use super::{ClusterFlags, EtcdFlags};

    impl ClusterFlags {
        /// What the scheduler takes part with, where it is one of several; `here`: where it listens first.
        pub(crate) fn config(&self, here: SocketAddr) -> anyhow::Result<Option<ClusterConfig>> {
            let Some(name) = self.cluster.clone() else {
                return Ok(None);
            };
            let ttl: Duration = self.etcd_ttl.into();
            anyhow::ensure!(ttl >= MIN_TTL, "--etcd-ttl is below {MIN_TTL:?}");
            let address = self.cluster_address.clone();
            Ok(Some(ClusterConfig {
                name,
                etcd: self.etcd.config(ttl)?,
                ttl,
                is_compacting: self.etcd_compact,
                address: address.unwrap_or_else(|| reachable(here)),
            }))
        }
    }

    impl EtcdFlags {
        /// How etcd is reached, with this deadline for a call.
        pub(crate) fn config(&self, deadline: Duration) -> anyhow::Result<EtcdConfig> {
            let tls = match &self.etcd_cacert {
                Some(ca) => Some(Tls {
                    ca: read(ca)?,
                    identity: match (&self.etcd_cert, &self.etcd_key) {
                        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
                        _ => None,
                    },
                }),
                None => None,
            };
            let user = match (&self.etcd_user, &self.etcd_password_file) {
                (Some(name), Some(file)) => Some(User {
                    name: name.clone(),
                    password: String::from_utf8(read(file)?)
                        .with_context(|| file.display().to_string())?
                        .trim_end_matches(['\r', '\n'])
                        .to_owned(),
                }),
                _ => None,
            };
            Ok(EtcdConfig {
                endpoints: self.etcd.clone(),
                tls,
                user,
                deadline,
            })
        }
    }

    /// An address that others can dial: the host's name where it is every address.
    pub(crate) fn reachable(here: SocketAddr) -> String {
        if !here.ip().is_unspecified() {
            return here.to_string();
        }
        let uname = rustix::system::uname();
        format!("{}:{}", uname.nodename().to_string_lossy(), here.port())
    }

    fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    }
}

#[cfg(feature = "etcd")]
pub(crate) use config::reachable;
