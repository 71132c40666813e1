//! The commands of `ciaoctl`, each over a [`Client`], writing to what it is given.
//!
//! ```text
//! run ─▶ read and check files and options ─▶ connect ─▶ one command ─▶ Exit or CommandError
//!  └──── Ctrl-C at any moment: CommandError::Interrupted, with what goes on at the scheduler
//! ```
//!
//! A command gets a [`Context`] and returns how it ended. It prints results itself; errors are printed by the caller,
//! from [`CommandError::lines`]. Nothing here ends the process.

pub mod arrays;
pub mod collect;
pub mod configure;
mod confirm;
pub mod context;
pub mod describe;
pub mod drain;
mod ends;
pub mod explain;
mod files;
pub mod history;
pub mod images;
pub mod instances;
pub mod leader;
pub mod lifecycle;
pub mod listing;
pub mod logs;
pub mod nodes;
pub mod reload;
pub mod results;
pub mod sections;
pub mod set;
pub mod start;
pub mod status;
pub mod top;
pub mod wait;
pub mod watch;

use std::io;
use std::path::Path;
use std::time::Duration;

use proto_frames::payload::{ConfigurationFailure, ImageFailure, OutputFailure, OutputPart};
use tokio::signal::unix::{SignalKind, signal};

use self::instances::{Ending, delete};
use crate::ctl::aftermath::Aftermath;
use crate::ctl::args::{GlobalArgs, InstanceCommand, NodeCommand, SessionCommand};
use crate::ctl::client::{
    Client, ClientConfig, ClientError, ConfigurationError, ConnectError, ImageError,
};
use crate::ctl::exit::Exit;
use crate::ctl::output::Output;
use crate::ctl::resolve::ResolveError;
use crate::ctl::start_file::{StartFileError, StartRequest};
use crate::net::directory::{ca_file, cert_file};
use crate::net::link::LinkClosed;
use crate::net::tls::LastRead;
use crate::printable::{Lines, Printable};

/// Longest time until a connection stands, unless `--timeout` says otherwise.
///
/// For the name, TCP, TLS and the handshake together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time until an answer, unless `--timeout` says otherwise: above a scheduler's in-doubt time of 15 s.
///
/// A START that is in doubt is answered at the end of that time.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time that `--wait` waits, unless `--timeout` says otherwise.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Where the original's deployment puts certificates.
///
/// Used if neither files nor a directory are given.
const PKI: &str = "/etc/pki/ciao";

/// Why a command was not done.
///
/// The text of each is one line for people; [`CommandError::exit`] is for scripts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No connection.
    ///
    /// The text names the address or the file.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// No answer, or a refusal.
    ///
    /// The scheduler's own words, if it was a refusal.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// A name means nothing or too much.
    #[error("{0}")]
    Resolve(#[from] ResolveError),
    /// A START file cannot be used.
    #[error("{0}")]
    StartFile(#[from] StartFileError),
    /// The command line makes no sense as a whole.
    ///
    /// Also for what is found out only with the scheduler's help, such as a set that does not exist.
    #[error("{0}")]
    Usage(String),
    /// What `--wait` waits for did not happen in time.
    ///
    /// The scheduler goes on with what was asked.
    #[error("{what} not within {}", humantime::format_duration(*.waited))]
    NotInTime {
        /// What was waited for.
        what: String,
        /// For how long.
        waited: Duration,
    },
    /// The connection was lost, and there is no other.
    ///
    /// `--reconnect` was given and has passed.
    #[error(
        "{lost}; no new connection within {}: what was started goes on, `ciaoctl wait INSTANCE` waits for it again",
        humantime::format_duration(*.waited)
    )]
    NotBack {
        /// How it was lost.
        lost: LinkClosed,
        /// How long was tried.
        waited: Duration,
    },
    /// There is no output of an instance.
    ///
    /// The part says which instance and why; the reason decides the exit code.
    #[error("no output of {}: {} ({})", .0.instance_uuid, .0.detail, .0.failure)]
    NoOutput(Box<OutputPart>),
    /// An image cannot be read, or the store of images refuses something.
    #[error("{0}")]
    Image(Box<ImageError>),
    /// The scheduler refuses something about the cluster configuration.
    #[error("{0}")]
    Configuration(Box<ConfigurationError>),
    /// Ctrl-C: what goes on all the same.
    ///
    /// Nothing was undone. The lines say how to.
    #[error("interrupted")]
    Interrupted(Lines),
    /// The output cannot be written.
    ///
    /// A closed pipe is among them, and is no failure: see [`CommandError::exit`].
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The exit code it stands for.
    ///
    /// The only place that maps errors to exit codes.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Connect(ConnectError::Address(_)) => Exit::Usage,
            Self::Connect(_) | Self::Client(ClientError::Closed(_)) | Self::NotBack { .. } => {
                Exit::Connection
            }
            Self::Client(ClientError::NoAnswer { .. }) | Self::NotInTime { .. } => Exit::Timeout,
            Self::Client(ClientError::Refused(_) | ClientError::Query { .. }) => Exit::Refused,
            Self::Client(ClientError::NoName { .. }) | Self::Resolve(_) => Exit::NotFound,
            Self::StartFile(_) | Self::Usage(_) => Exit::Usage,
            Self::NoOutput(part) => match part.failure {
                OutputFailure::NoInstance | OutputFailure::NoFile => Exit::NotFound,
                OutputFailure::Timeout => Exit::Timeout,
                _ => Exit::Refused,
            },
            Self::Image(error) => match &**error {
                ImageError::File { .. } => Exit::Usage,
                ImageError::Refused { failure, .. } if *failure == ImageFailure::NoImage => {
                    Exit::NotFound
                }
                _ => Exit::Refused,
            },
            Self::Configuration(error) => match &**error {
                ConfigurationError::Refused { failure, .. } => match failure {
                    ConfigurationFailure::InvalidData => Exit::Usage,
                    ConfigurationFailure::NotFound => Exit::NotFound,
                    _ => Exit::Refused,
                },
                ConfigurationError::Client(_) => Exit::Refused,
            },
            Self::Interrupted(_) => Exit::Interrupted,
            // The reader has closed its end: nothing went wrong.
            Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Output,
        }
    }

    /// What it says, for people: one line, and one more for each of the things that a name can mean or
    /// that are wrong with a file.
    ///
    /// Empty for an interruption of a command that has started nothing.
    #[must_use]
    pub fn lines(&self) -> Lines {
        if let Self::Interrupted(lines) = self {
            return lines.clone();
        }
        let mut lines: Lines = [Printable::new(self)].into_iter().collect();
        match self {
            Self::Resolve(error) => lines.append(error.candidates()),
            Self::StartFile(error) => lines.append(error.details()),
            _ => {}
        }
        lines
    }
}

impl From<LinkClosed> for CommandError {
    fn from(closed: LinkClosed) -> Self {
        Self::Client(closed.into())
    }
}

/// What every command has: the session, the way to print, and how long to wait.
///
/// Made for each command by `carry_out`.
pub struct Context<'a> {
    /// The session.
    pub client: Client,
    /// How another one is made.
    ///
    /// Commands that wait connect again with it.
    pub config: ClientConfig,
    /// The way to standard output.
    pub out: Output<'a>,
    /// Whether output is for programs.
    ///
    /// From `--json`. Commands with `--output` look at that as well.
    pub json: bool,
    /// How long to wait for an answer.
    ///
    /// `--timeout`, or [`ANSWER_TIMEOUT`].
    pub answer: Duration,
    /// How long `--wait` waits.
    ///
    /// `--timeout`, or [`WAIT_TIMEOUT`].
    pub wait: Duration,
    /// What goes on when it is interrupted.
    ///
    /// Each command notes here what it has set going.
    pub aftermath: Aftermath,
}

/// Runs a command that needs a session, until it is done or interrupted.
///
/// An interruption drops the command where it is, with its connection: what was sent is not taken back.
///
/// # Errors
/// [`CommandError`].
pub async fn run(
    command: SessionCommand,
    global: &GlobalArgs,
    mut out: Output<'_>,
) -> Result<Exit, CommandError> {
    let requests = match &command {
        // Before connecting: a file or an option that cannot be used is not the scheduler's business.
        SessionCommand::Start(args) => start::read(args, &mut out)?,
        SessionCommand::Run(args) if args.array.is_any() => {
            arrays::make(args, "")?;
            Vec::new()
        }
        SessionCommand::Run(args) => start::make(args, "")?,
        SessionCommand::Explain(args) => explain::read(args, &mut out)?,
        _ => Vec::new(),
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let aftermath = Aftermath::default();
    tokio::select! {
        biased;
        done = carry_out(command, requests, global, out, aftermath.clone()) => done,
        _ = interrupt.recv() => Err(CommandError::Interrupted(aftermath.lines())),
    }
}

/// Connects, and dispatches. `requests` are the STARTs that were read before, empty for other commands.
async fn carry_out(
    command: SessionCommand,
    requests: Vec<StartRequest>,
    global: &GlobalArgs,
    out: Output<'_>,
    aftermath: Aftermath,
) -> Result<Exit, CommandError> {
    let config = client_config(global);
    let client = Client::connect(&config).await?;
    let answer = global.timeout.unwrap_or(ANSWER_TIMEOUT);
    let wait = global.timeout.unwrap_or(WAIT_TIMEOUT);
    let mut context = Context {
        client,
        config,
        out,
        json: global.json,
        answer,
        wait,
        aftermath,
    };
    match command {
        SessionCommand::Start(args) => start::submit(&mut context, requests, &args.submit).await,
        SessionCommand::Run(args) if args.array.is_any() => arrays::run(&mut context, &args).await,
        SessionCommand::Run(args) => start::run(&mut context, &args).await,
        SessionCommand::Arrays(args) => arrays::list(&mut context, &args).await,
        SessionCommand::Rerun(args) => arrays::rerun(&mut context, &args).await,
        SessionCommand::Explain(args) => explain::explain(&mut context, &requests, &args).await,
        SessionCommand::Set(what) => set::set(&mut context, &what).await,
        SessionCommand::Delete(args) => delete(&mut context, &args, Ending::Delete).await,
        SessionCommand::Stop(args) => delete(&mut context, &args, Ending::Stop).await,
        SessionCommand::Suspend(args) => lifecycle::suspend(&mut context, &args).await,
        SessionCommand::Resume(args) => lifecycle::resume(&mut context, &args).await,
        SessionCommand::Migrate(args) => lifecycle::migrate(&mut context, &args).await,
        SessionCommand::Update(args) => lifecycle::update(&mut context, &args).await,
        SessionCommand::Cordon(args) => drain::cordon(&mut context, &args).await,
        SessionCommand::Uncordon(args) => drain::uncordon(&mut context, &args).await,
        SessionCommand::Drain(args) => drain::drain(&mut context, &args).await,
        SessionCommand::Queue(args) => listing::queue(&mut context, &args).await,
        SessionCommand::History(args) => history::history(&mut context, &args).await,
        SessionCommand::Describe(what) => describe::describe(&mut context, &what).await,
        SessionCommand::Top(args) => top::top(&mut context, &args).await,
        SessionCommand::Status => status::status(&mut context).await,
        SessionCommand::Leader(args) => leader::leader(&mut context, &args).await,
        SessionCommand::Reload(args) => reload::reload(&mut context, &args).await,
        SessionCommand::Logs(args) => logs::logs(&mut context, &args).await,
        SessionCommand::Collect(args) => collect::collect(&mut context, &args).await,
        SessionCommand::Evacuate(args) => nodes::evacuate(&mut context, &args).await,
        SessionCommand::Restore(args) => nodes::restore(&mut context, &args).await,
        SessionCommand::Wait(args) => wait::wait(&mut context, &args).await,
        SessionCommand::Instance(InstanceCommand::Forget(args)) if args.data => {
            results::forget(&mut context, &args).await
        }
        SessionCommand::Instance(InstanceCommand::Forget(args)) => {
            instances::forget(&mut context, &args.instances).await
        }
        SessionCommand::Node(NodeCommand::Label(args)) => {
            sections::node(&mut context, "labels", &args).await
        }
        SessionCommand::Node(NodeCommand::Resource(args)) => {
            sections::node(&mut context, "resources", &args).await
        }
        SessionCommand::Aggregate(what) => sections::aggregate(&mut context, &what).await,
        SessionCommand::Tenant(what) => sections::tenant(&mut context, &what).await,
        SessionCommand::Node(NodeCommand::Forget { node }) => {
            nodes::forget(&mut context, &node).await
        }
        SessionCommand::Nodes(args) => listing::nodes(&mut context, &args).await,
        SessionCommand::Instances(args) => listing::instances(&mut context, &args).await,
        SessionCommand::Controllers(args) => listing::controllers(&mut context, &args).await,
        SessionCommand::Push(args) => images::push(&mut context, &args).await,
        SessionCommand::Images(args) => images::images(&mut context, &args).await,
        SessionCommand::Configure(args) => configure::configure(&mut context, &args).await,
        SessionCommand::Watch(args) => watch::watch(&mut context, &args).await,
    }
}

/// How the options say to connect.
///
/// A file that is named wins over the directory, and the directory over the default path. No file is opened here.
#[must_use]
pub fn client_config(global: &GlobalArgs) -> ClientConfig {
    let directory = global.certs.as_deref();
    ClientConfig {
        server: global.server().to_owned(),
        server_name: global.server_name.clone(),
        cert: match (&global.cert, directory) {
            (Some(named), _) => named.clone(),
            (None, Some(directory)) => cert_file(directory, "Controller"),
            (None, None) => Path::new(PKI).join("cert-Controller-localhost.pem"),
        },
        trust: global.trust(match (&global.cacert, directory) {
            (Some(named), _) => named.clone(),
            (None, Some(directory)) => ca_file(directory),
            (None, None) => Path::new(PKI).join("CAcert-localhost.pem"),
        }),
        last: LastRead::default(),
        connect_timeout: global.timeout.unwrap_or(CONNECT_TIMEOUT),
        answer_timeout: global.timeout.unwrap_or(ANSWER_TIMEOUT),
    }
}
