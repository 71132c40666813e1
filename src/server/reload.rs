//! Reading files again while the daemon runs, without a session being lost by it.
//!
//! ```text
//! SIGHUP ───────────────────┐
//! RELOAD, POST /v1/reload ──┼─▶ Fresh::read ─ all can be used ──▶ Fresh::take   what begins now begins with it
//! a file has changed ───────┘      └ a mistake ─▶ all stays as it is; the answer says file, line and reason
//! ```
//!
//! Everything is read and checked with each other before any of it is taken, and all of it is taken in one step.
//! Sessions stay, but for those of certificates that a list revokes by then. One reload runs at a time; requests that come
//! meanwhile share the next.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use proto_frames::payload::{Payload as _, Reload, ReloadState, Reloaded};
use proto_frames::{Frame, Kind, Uuid};
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinError, spawn_blocking};
use tracing::{error, info};

use super::configuration::again::{Force, NewFile};
use super::configuration::{self, DEFAULT_URI};
use super::credentials::{Credentials, Live, Moment};
use super::hub::Hub;
use super::node_file::{NodeFile, NodeFileError};
use super::placement::{PlacementError, follow_tokens};
use super::restore::unix_ms;
use super::start::{ServerConfig, StartError, load_nodes};
use super::watch::Watched;
use crate::logging::{Levels, NewLevels, Reopen};
use crate::shutdown::Hangups;
use sched_core::{Input, Reread, SessionId};

/// What has files read again, and what beside the daemon's own parts follows them.
#[derive(Debug, Clone, Default)]
pub struct ReloadConfig {
    /// SIGHUP, of which each has all files read again.
    pub hangups: Hangups,
    /// Whether a change of a file has them read again as well.
    pub watch_files: bool,
    /// What is logged; `None` where the process has no say in that.
    pub levels: Option<Levels>,
    /// The log file, which a reload opens again; `None` where none is written.
    pub log: Option<Reopen>,
}

/// Who asked for a reload. Where several did, the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// SIGHUP.
    Signal,
    /// RELOAD or `POST /v1/reload`.
    Command,
    /// A file has changed.
    Files,
}

impl By {
    /// For the log.
    fn words(self) -> &'static str {
        match self {
            Self::Signal => "SIGHUP",
            Self::Command => "a reload was asked for",
            Self::Files => "a file has changed",
        }
    }

    /// For programs.
    fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Command => "command",
            Self::Files => "files",
        }
    }
}

/// Who waits for what comes of a reload.
#[derive(Debug)]
enum Asker {
    /// A peer, with the number of its question.
    Session(SessionId, u64),
    /// A request over HTTP.
    Request(oneshot::Sender<Reloaded>),
}

/// Most who wait for the next reload, which takes a moment: far more than there are operators.
const MAX_ASKERS: usize = 256;

/// How reloads went, for metrics, and who waits for the next.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    /// At most [`MAX_ASKERS`].
    askers: Mutex<Vec<(Asker, Force)>>,
    /// Told of each that is added.
    asked: Notify,
    taken: AtomicU64,
    refused: AtomicU64,
    /// When the latest was taken, seconds of Unix time; that of the start where none was.
    last_taken_s: AtomicU64,
}

impl Reloads {
    /// Files were read and taken at this time, in seconds of Unix time; the start is no reload.
    pub(super) fn note_start(&self, unix_s: u64) {
        self.last_taken_s.store(unix_s, Ordering::Relaxed);
    }

    fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.note_start(unix_ms() / 1000);
    }

    fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one who waits; `false` where there are too many.
    fn ask(&self, asker: Asker, force: Force) -> bool {
        let mut askers = self.askers.lock();
        if askers.len() >= MAX_ASKERS {
            return false;
        }
        askers.push((asker, force));
        drop(askers);
        self.asked.notify_one();
        true
    }

    /// Asks for a reload; what comes of it. `None` where too many ask.
    pub(super) async fn request(&self, force: Force) -> Option<Reloaded> {
        let (sender, answer) = oneshot::channel();
        match self.ask(Asker::Request(sender), force) {
            true => answer.await.ok(),
            false => None,
        }
    }

    /// Asks for a reload for a peer, which is sent what comes of it; `false` where too many ask.
    pub(super) fn ask_for(&self, session: SessionId, reload: &Reload) -> bool {
        let force = if reload.force { Force::Yes } else { Force::No };
        self.ask(Asker::Session(session, reload.id), force)
    }

    /// How many were taken, and how many refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.taken), read(&self.refused))
    }

    /// When files were read and taken last, seconds of Unix time.
    pub(super) fn last_taken_s(&self) -> u64 {
        self.last_taken_s.load(Ordering::Relaxed)
    }
}

/// Everything that is read from files and can change while the daemon runs: read and checked, and not taken yet. What
/// is added to the daemon and comes from a file belongs in here: a field, a line in [`Fresh::read`], one in
/// [`Fresh::take`], and its path in [`files`].
struct Fresh {
    /// Certificates, keys, anchors, tokens.
    credentials: Credentials,
    /// The cluster configuration, if its file has changed and counts.
    configuration: Option<NewFile>,
    /// What the node file says; `None` where there is none.
    nodes: Option<NodeFile>,
    /// What is to be logged; `None` where the process has no say in that.
    levels: Option<NewLevels>,
}

impl Fresh {
    /// Reads all of it as at the start.
    ///
    /// # Errors
    /// The first mistake. Nothing has changed then.
    fn read(
        config: &ServerConfig,
        in_force: &Credentials,
        hub: &Hub,
        force: Force,
    ) -> Result<Self, StartError> {
        let credentials = Credentials::load(config, Moment::Reload)?;
        credentials.anchors.check_follow(&in_force.anchors)?;
        let keeper = hub.configuration();
        let configuration = keeper.map(|keeper| keeper.read_again(force)).transpose()?;
        let nodes = config.node_file.as_deref().map(load_nodes);
        let levels = config.reload.levels.as_ref().map(|levels| {
            let path = levels.path().map(Path::to_owned).unwrap_or_default();
            let in_file = |source| StartError::LogLevels { path, source };
            levels.read().map_err(in_file)
        });
        Ok(Self {
            credentials,
            configuration: configuration.flatten(),
            nodes: nodes.transpose()?,
            levels: levels.transpose()?,
        })
    }

    /// Puts it in force, and ends the sessions of certificates that are revoked by it.
    ///
    /// # Errors
    /// The configuration cannot be kept, which comes first: nothing has changed then.
    fn take(self, config: &ServerConfig, live: &Live, hub: &Hub) -> Result<(), StartError> {
        if let (Some(file), Some(keeper)) = (self.configuration, hub.configuration()) {
            keeper.take(file)?;
        }
        let anchors = self.credentials.anchors.clone();
        live.take(self.credentials);
        hub.end_revoked(&anchors);
        if let Some(nodes) = self.nodes {
            hub.set_node_rules(nodes.rules);
            if let Some(keeper) = hub.configuration() {
                keeper.set_node_file(&nodes.path, nodes.document);
            }
        }
        if let (Some(new), Some(levels)) = (self.levels, &config.reload.levels) {
            levels.take(new);
        }
        Ok(())
    }
}

/// The files that [`Fresh::read`] reads.
fn files(config: &ServerConfig) -> Vec<PathBuf> {
    let mut files = vec![config.cert.clone(), config.trust.ca.clone()];
    files.extend(config.trust.crls.iter().cloned());
    let configuration = config.configuration_uri.as_deref();
    files.extend(configuration::file_of(configuration.unwrap_or(DEFAULT_URI)));
    files.extend(config.node_file.clone());
    files.extend(config.http_cert.clone());
    files.extend(config.placement.as_ref().map(|it| it.tokens.clone()));
    let levels = config.reload.levels.as_ref();
    files.extend(levels.and_then(Levels::path).map(Path::to_owned));
    files
}

/// Has files read again, one reload after the other.
#[derive(Debug)]
pub(super) struct Reloader {
    config: Arc<ServerConfig>,
    live: Arc<Live>,
    hub: Arc<Hub>,
    /// How the files were when they were read last; looked at with `--watch-files`.
    watched: Watched,
}

impl Reloader {
    /// `watched` are the [`files`] as they were before the start read them.
    pub(super) fn new(
        config: ServerConfig,
        live: &Arc<Live>,
        hub: &Arc<Hub>,
        watched: Watched,
    ) -> Self {
        Self {
            config: Arc::new(config),
            live: Arc::clone(live),
            hub: Arc::clone(hub),
            watched,
        }
    }

    /// The files as they are, for [`Reloader::new`].
    pub(super) fn look(config: &ServerConfig) -> Watched {
        Watched::new(files(config))
    }

    /// Keeps up with the file of tokens, which was always followed; `None` where the Placement API is not offered, or
    /// all files are followed. A task of the daemon, which never returns.
    pub(super) fn follow_tokens(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let offered = self.config.placement.as_ref();
        let path = &offered.filter(|_| !self.config.reload.watch_files)?.tokens;
        let file = (path.clone(), self.watched.only(path));
        let live = Arc::clone(&self.live);
        Some(follow_tokens(file, self.config.key_files, live))
    }

    /// Waits for reasons to reload, and does it. A task of the daemon, which never returns.
    pub(super) async fn run(mut self) {
        loop {
            let by = self.reason().await;
            self.reload(by).await;
        }
    }

    /// Waits until there is a reason.
    async fn reason(&mut self) -> By {
        let is_watching = self.config.reload.watch_files;
        tokio::select! {
            () = self.config.reload.hangups.next() => By::Signal,
            () = self.hub.reloads.asked.notified() => By::Command,
            () = self.watched.changed(), if is_watching => By::Files,
        }
    }

    /// Reads all files and takes what is in them, or nothing of it; says so to who asked and to who follows events.
    async fn reload(&mut self, by: By) {
        // Who asks from now on may have changed a file behind this reload.
        let askers = std::mem::take(&mut *self.hub.reloads.askers.lock());
        if by == By::Command && askers.is_empty() {
            // A reload for another reason has answered them.
            return;
        }
        // One who means it is enough: the others ask for no less.
        let is_forced = askers.iter().any(|(_, force)| *force == Force::Yes);
        let force = if is_forced { Force::Yes } else { Force::No };
        if by != By::Files {
            self.watched.are_read().await;
        }
        // SIGHUP has opened it already.
        if let Some(log) = &self.config.reload.log
            && by != By::Signal
        {
            log.reopen(by.words());
        }
        let (config, live) = (Arc::clone(&self.config), Arc::clone(&self.live));
        let hub = Arc::clone(&self.hub);
        // Files may be on a disk that is slow to answer.
        let read = spawn_blocking(move || {
            let fresh = Fresh::read(&config, &live.now(), &hub, force)?;
            fresh.take(&config, &live, &hub)
        });
        let read = read.await;
        let words = by.words();
        let mut news = Reloaded {
            state: ReloadState::Taken,
            by: by.name().to_owned(),
            ..Reloaded::default()
        };
        let mut reread = None;
        match read {
            Ok(Ok(())) => {
                reread = Some(Box::new(self.reread()));
                self.hub.reloads.note_taken();
                info!(
                    event = "files_reloaded",
                    "{words}: all files are read again"
                );
            }
            Ok(Err(mistake)) => {
                refuse(&mut news, &mistake);
                error!(
                    event = "reload_refused",
                    "{words}: all stays as it was: {mistake}"
                );
            }
            Err(panicked) => {
                refuse(&mut news, &panicked);
                error!(
                    event = "internal_error",
                    "internal error: {words}: all stays as it was: {panicked}"
                );
            }
        }
        if news.state == ReloadState::Refused {
            self.hub.reloads.note_refused();
        }
        for (asker, _) in askers {
            self.answer(asker, news.clone());
        }
        let news = Box::new(news);
        let input = Input::Reloaded { news, reread };
        self.hub.handle([input], None);
    }

    /// What is said of the files that are in force.
    fn reread(&self) -> Reread {
        let levels = self.config.reload.levels.as_ref();
        Reread {
            certificates: self.live.now().certificates.clone(),
            log_levels: levels.map(Levels::words).unwrap_or_default(),
        }
    }

    /// Says what came of it to one who asked; one that is gone is not missed.
    fn answer(&self, asker: Asker, news: Reloaded) {
        match asker {
            Asker::Session(session, id) => {
                self.hub
                    .send_behind(session, frame(self.hub.uuid, id, news));
            }
            Asker::Request(sender) => {
                let _ = sender.send(news);
            }
        }
    }
}

/// Says that nothing was taken, and where the mistake is.
fn refuse(news: &mut Reloaded, mistake: &(impl Mistaken + ?Sized)) {
    let (file, line) = mistake.place();
    news.state = ReloadState::Refused;
    news.file = file
        .map(|file| file.display().to_string())
        .unwrap_or_default();
    news.line = line.and_then(|line| i64::try_from(line).ok());
    news.reason = mistake.to_string();
}

/// The answer to a RELOAD with this number.
pub(super) fn frame(scheduler: Uuid, id: u64, news: Reloaded) -> Frame {
    let answer = Reloaded { id, ..news };
    Frame::new(Kind::RELOADED, scheduler, answer.encode())
}

/// The answer to one who asks while too many do.
pub(super) fn too_many() -> Reloaded {
    Reloaded {
        state: ReloadState::Refused,
        by: By::Command.name().to_owned(),
        reason: format!("{MAX_ASKERS} others wait for the next reload already; try again"),
        ..Reloaded::default()
    }
}

/// What keeps files from being taken.
trait Mistaken: std::fmt::Display {
    /// The file, and the line in it from 1, where there are such.
    fn place(&self) -> (Option<&Path>, Option<usize>);
}

impl Mistaken for JoinError {
    fn place(&self) -> (Option<&Path>, Option<usize>) {
        (None, None)
    }
}

impl Mistaken for StartError {
    fn place(&self) -> (Option<&Path>, Option<usize>) {
        match self {
            Self::Tls(error) => error.place(),
            Self::NotAScheduler { path, .. } => (Some(path), None),
            Self::Placement(PlacementError::Tokens { path, source }) => (Some(path), source.line()),
            Self::Configuration { uri, mistake } => {
                (Some(Path::new(uri)), mistake.position.map(|at| at.line))
            }
            Self::NodeFile { path, source } => {
                let line = match source {
                    NodeFileError::Mistake(mistake) => mistake.position.map(|at| at.line),
                    _ => None,
                };
                (Some(path), line)
            }
            Self::ConfigurationFile(refused) => refused.place(),
            Self::LogLevels { path, source } => (Some(path), source.line()),
            Self::StateDir { path, .. }
            | Self::BlobDir { path, .. }
            | Self::StoredConfiguration { path, .. } => (Some(path), None),
            Self::Listen { .. } => (None, None),
        }
    }
}
