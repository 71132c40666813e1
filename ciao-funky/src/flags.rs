//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use ciao_adapter::flags::{self, NIL_TENANT};
use ciao_scheduler::flags::duration;
use clap::{Args, Parser, Subcommand};

/// Funky's socket and upload in front of a ciao-scheduler.
///
/// Takes what the programs of Funky send (tasks, migrations), runs it in the cluster of a ciao-scheduler, and prints what
/// Funky's primary prints. A client of the scheduler like ciaoctl, with a controller's certificate.
#[derive(Debug, Parser)]
#[command(name = "ciao-funky", version = ciao_scheduler::VERSION, propagate_version = true)]
pub(crate) struct Cli {
    /// Flags and subcommands.
    #[command(flatten)]
    pub(crate) line: CommandLine,
}

/// What the command line says.
pub(crate) type CommandLine = flags::CommandLine<ServeFlags, Command>;

/// What else it can do.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Command {
    /// List tasks and nodes with their numbers, of the ciao-funky that listens at the socket
    Ps,
}

/// What the adapter is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeFlags {
    /// The socket.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "/tmp/front.sock"
    )]
    pub(crate) socket: PathBuf,
    /// Where to keep tasks and their files; each ciao-funky needs its own
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ciao/funky")]
    pub(crate) state_dir: PathBuf,
    /// Where POST /upload is answered, such as 127.0.0.1:8080; off = nowhere
    #[arg(long, value_name = "ADDR", default_value = "off")]
    pub(crate) upload: String,
    /// Take uploads from every client that reaches -upload, rather than from this machine's users who may give commands
    /// alone: all of them may run programs then
    #[arg(long)]
    pub(crate) upload_any_user: bool,
    /// Take uploads also from pages that are opened as files, as the original's index.html is. A browser cannot tell
    /// them from any other site's: every page that it shows may run programs then
    #[arg(long)]
    pub(crate) allow_null_origin: bool,
    /// A user, by number, who may give commands and upload beside root and the user this program runs as; may be repeated
    #[arg(long, value_name = "UID")]
    pub(crate) allow_uid: Vec<u32>,
    /// Memory that each task asks for, in MiB; the original gives its guests 1024
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) mem: i64,
    /// Virtual CPUs that each task asks for
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) cpus: i64,
    /// Run at most one task on each node at a time, whatever its size
    #[arg(long)]
    pub(crate) one_task_per_node: bool,
    /// Tenant that tasks belong to
    #[arg(long, value_name = "UUID", default_value = NIL_TENANT)]
    pub(crate) tenant: String,
    /// Program that is given a task's file instead of running it, and its arguments; {} stands for the file, as in
    /// '/usr/bin/ukvm-bin --mem=1024 --disk={} {}'
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) monitor: String,
    /// Hand a task's arguments on as one, as the original does, rather than split at blanks
    #[arg(long)]
    pub(crate) one_argument: bool,
    /// Longest file of a task, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub(crate) max_binary: u64,
    /// Bytes that the files of all tasks may take together
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 30)]
    pub(crate) max_binaries: u64,
    /// How long after a new connection with the scheduler nodes may still bring back a task that it does not list; then the
    /// task is started again
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) return_time: Duration,
}
