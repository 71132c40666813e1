//! Who is answered about the cluster configuration, and how another one comes into force: it is kept first, and then
//! given to the core.
//!
//! ```text
//! peer ── READ_CONFIGURATION, WRITE_CONFIGURATION ──▶ core: may it ask? ── Action::Configuration ──▶ Keeper::ask
//! peer ── CONFIGURE ──▶ core: in force ─────────────────────────────────── Action::Configured ────▶ Keeper::configured
//!                                                      thread: Versions, on disk ◀──────────────────────┘
//! peer ◀── CONFIGURATION ◀── Hub::send_behind ◀──────────┘
//! ```
//!
//! A thread of its own does what is asked, one after the other, so that neither the core's lock nor a task waits for the
//! disk. CONFIGURE is in force at once, as it always was, and becomes a version behind that. Of one that came while a
//! command was carried out, the command's version is the older one: it is kept, and not given to the core any more.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use proto_frames::payload::configuration::{
    MAX_AFFECTED, MAX_CONFIGURATION_NOTE_LEN, MAX_CONFIGURATION_VERSIONS,
};
use proto_frames::payload::{
    AffectedInstance, ConfigurationAnswer, ConfigurationFailure, ConfigurationPart,
    ConfigurationSource, ConfigurationWrite, Payload, ReadConfiguration,
};
use proto_frames::{Frame, Kind, Uuid};
use tracing::{error, info};

use super::merge::with_sections_of;
use super::nodes::InForce;
use super::opening::{said_by, text};
use super::versions::{Author, Version, Versions};
use super::{DEFAULT_URI, Document, Originals, Warning, parse, read_file};
use crate::printable::Printable;
use crate::server::hub::Hub;
use crate::server::restore::unix_ms;
use crate::server::tasks::said;
use crate::server::{sentences, wire};
use sched_core::{Affected, ClusterConfiguration, Input, Parcel, SessionId, Trial};

/// Requests that may wait; further ones are answered with `busy`. Each may have a whole configuration.
const MAX_ASKS: usize = 16;

/// The way to the versions, held by the hub. Dropping it ends the thread.
#[derive(Debug)]
pub(in crate::server) struct Keeper {
    pub(super) shared: Arc<Shared>,
}

/// What the thread shares with those who ask.
#[derive(Debug)]
pub(super) struct Shared {
    hub: Weak<Hub>,
    /// Where the scheduler's own file is, if that was said.
    pub(super) uri: Option<String>,
    /// Held while one of them comes into force, the file's writing included.
    pub(super) versions: Mutex<Versions>,
    /// The node file, where there is one.
    pub(super) nodes: Mutex<Option<InForce>>,
    inbox: Mutex<Inbox>,
    /// Signalled when something is in the inbox, or it is closed.
    changed: Condvar,
}

/// What waits for the thread. Locked for moments, also under the core's lock.
#[derive(Debug, Default)]
struct Inbox {
    asks: VecDeque<(SessionId, Parcel)>,
    /// CONFIGUREs that are in force and no versions yet, oldest first; no more than there are versions.
    configured: VecDeque<(String, Bytes)>,
    is_closed: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.inbox.lock().is_closed = true;
        self.shared.changed.notify_all();
    }
}

impl Keeper {
    /// Starts the thread that serves the hub's peers. `uri` is where the scheduler's own file is, if that was said.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(super) fn start(
        uri: Option<String>,
        versions: Versions,
        hub: Weak<Hub>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            hub,
            uri,
            versions: Mutex::new(versions),
            nodes: Mutex::default(),
            inbox: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("configuration".to_owned())
            .spawn(move || thread.watched())?;
        Ok(Self { shared })
    }

    /// Hands a request to the thread, whose answer comes by [`Hub::send_behind`]. Called under the core's lock, so it
    /// never waits.
    ///
    /// # Errors
    /// The answer to send instead, where as many wait as may.
    pub(in crate::server) fn ask(&self, session: SessionId, parcel: Parcel) -> Result<(), Frame> {
        let mut inbox = self.shared.inbox.lock();
        if inbox.asks.len() >= MAX_ASKS {
            let detail = "as much is asked about the configuration as may be at a time; try again";
            let failure = ConfigurationFailure::Busy;
            return Err(answer(
                ConfigurationPart::fail(number_of(&parcel), failure, detail),
                Bytes::new(),
            ));
        }
        inbox.asks.push_back((session, parcel));
        drop(inbox);
        self.shared.changed.notify_all();
        Ok(())
    }

    /// A CONFIGURE of this sender is in force. Called under the core's lock.
    pub(in crate::server) fn configured(&self, by: String, payload: Bytes) {
        let mut inbox = self.shared.inbox.lock();
        if inbox.configured.len() >= MAX_CONFIGURATION_VERSIONS {
            // As a version it would be dropped before anybody could see it.
            inbox.configured.pop_front();
        }
        inbox.configured.push_back((by, payload));
        drop(inbox);
        self.shared.changed.notify_all();
    }

    /// Whether a CONFIGURE is in force that is newer than every version. Asked under the core's lock, where it stays so.
    fn is_superseded(shared: &Shared) -> bool {
        !shared.inbox.lock().configured.is_empty()
    }

    /// The number of the version in force; 0 while there is none.
    #[cfg(test)]
    fn version(&self) -> u64 {
        self.shared.versions.lock().number()
    }
}

impl Shared {
    /// Does the work of the thread. A panic takes the daemon down: otherwise no request would be answered any more.
    fn watched(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run()))
            && let Some(hub) = self.hub.upgrade()
        {
            let why = said(&*panic);
            hub.fail(format!(
                "the keeper of the configuration has panicked: {why}"
            ));
        }
    }

    fn run(&self) {
        loop {
            let mut inbox = self.inbox.lock();
            while inbox.asks.is_empty() && inbox.configured.is_empty() {
                if inbox.is_closed {
                    return;
                }
                self.changed.wait(&mut inbox);
            }
            let ask = inbox.asks.pop_front();
            drop(inbox);
            let mut versions = self.versions.lock();
            self.take_configured(&mut versions);
            drop(versions);
            let Some((session, parcel)) = ask else {
                continue;
            };
            let Some(hub) = self.hub.upgrade() else {
                return;
            };
            let answer = self.answer(&hub, session, &parcel);
            hub.send_behind(session, answer);
        }
    }

    /// Makes versions of what is in force already. One that cannot be written is one all the same, and lost with the
    /// process.
    pub(super) fn take_configured(&self, versions: &mut Versions) {
        let configured = std::mem::take(&mut self.inbox.lock().configured);
        if configured.is_empty() {
            return;
        }
        for (by, payload) in configured {
            let before = versions.current().map_or("", |it| &*it.document);
            let document = with_sections_of(&payload, before.as_bytes());
            let author = Author {
                source: ConfigurationSource::Controller,
                by,
                note: String::new(),
            };
            versions.push(author, text(&document), unix_ms());
        }
        self.tell(versions);
        if let Err(error) = versions.write() {
            error!(
                event = "configuration_not_kept",
                "the configuration that a controller sent is in force and cannot be kept: {error}; after a restart an \
                 earlier one is"
            );
        }
    }

    fn answer(&self, hub: &Hub, session: SessionId, parcel: &Parcel) -> Frame {
        let frame = wire::frame_of(parcel);
        let done = match frame.kind {
            Kind::READ_CONFIGURATION => ReadConfiguration::decode(&frame.payload)
                .map_err(|error| error.to_string())
                .map(|read| match read.nodes {
                    true => self.read_nodes(&read),
                    false => self.read(&read),
                }),
            _ => ConfigurationWrite::decode(&frame.payload)
                .map_err(|error| error.to_string())
                .map(|write| match write.part.nodes {
                    true => Self::check_nodes(hub, &write.part, &write.data),
                    false => self.write(hub, session, write),
                }),
        };
        let (part, data) = done.unwrap_or_else(|why| {
            let failure = ConfigurationFailure::InvalidData;
            let part = ConfigurationPart::fail(number_of(parcel), failure, why);
            (part, Bytes::new())
        });
        answer(part, data)
    }

    fn read(&self, read: &ReadConfiguration) -> (ConfigurationPart, Bytes) {
        let versions = self.versions.lock();
        let given = self.uri.as_deref();
        let mut part = ConfigurationPart {
            id: read.id,
            current: versions.number(),
            versions: versions.iter().map(Version::view).collect(),
            file: given.unwrap_or(DEFAULT_URI).to_owned(),
            kept: versions.are_kept(),
            ..ConfigurationPart::default()
        };
        let fail = |part: ConfigurationPart, failure, detail: String| {
            let failed = ConfigurationPart {
                failure,
                detail,
                ..part
            };
            (failed, Bytes::new())
        };
        if read.file {
            return match read_file(given) {
                Ok(Some(payload)) => (part, payload),
                Ok(None) => {
                    let detail = format!("there is no file {}", part.file);
                    fail(part, ConfigurationFailure::NotFound, detail)
                }
                Err(why) => {
                    let detail = format!("{}: {why}", part.file);
                    fail(part, ConfigurationFailure::Failed, detail)
                }
            };
        }
        let found = match read.version {
            Some(number) => versions.find(number),
            None => versions.current(),
        };
        match (found, read.version) {
            (Some(version), _) => {
                part.version = version.version;
                let document = version.document.clone().into();
                (part, document)
            }
            (None, None) => (part, Bytes::new()),
            (None, Some(number)) => {
                let detail = format!(
                    "there is no version {number}; the latest {MAX_CONFIGURATION_VERSIONS} are kept"
                );
                fail(part, ConfigurationFailure::NotFound, detail)
            }
        }
    }

    fn write(
        &self,
        hub: &Hub,
        session: SessionId,
        write: ConfigurationWrite,
    ) -> (ConfigurationPart, Bytes) {
        let ConfigurationWrite { part: asked, data } = write;
        let fail = |failure, detail: String| {
            let part = ConfigurationPart::fail(asked.id, failure, detail);
            let current = self.versions.lock().number();
            (ConfigurationPart { current, ..part }, Bytes::new())
        };
        let invalid = |why: String| fail(ConfigurationFailure::InvalidData, why);
        if asked.note.len() > MAX_CONFIGURATION_NOTE_LEN {
            return invalid(format!(
                "write_configuration.note: at most {MAX_CONFIGURATION_NOTE_LEN} bytes are taken"
            ));
        }
        if std::str::from_utf8(&data).is_err() {
            return invalid("the configuration is not UTF-8".to_owned());
        }
        let document = match parse(data, Originals::WhereComplete) {
            Ok(document) => document,
            Err(mistake) => return invalid(mistake.to_string()),
        };
        let mut part = ConfigurationPart {
            id: asked.id,
            warnings: self.new_warnings(&document),
            ..ConfigurationPart::default()
        };
        if asked.check {
            return match affected(hub, &document.cluster) {
                Ok(affected) => {
                    part.current = self.versions.lock().number();
                    note_affected(&mut part, affected);
                    (part, Bytes::new())
                }
                Err(why) => invalid(why),
            };
        }
        let mut versions = self.versions.lock();
        self.take_configured(&mut versions);
        let current = versions.number();
        if let Some(expected) = asked.if_version.filter(|expected| *expected != current) {
            let by = versions.current().map(said_by).unwrap_or_default();
            drop(versions);
            return fail(
                ConfigurationFailure::Conflict,
                format!("version {current} of {by} is in force, not version {expected}"),
            );
        }
        let author = Author {
            source: ConfigurationSource::Command,
            by: hub.subject_of(session).unwrap_or_default(),
            note: asked.note.clone(),
        };
        let next = versions.clone();
        part.kept = versions.are_kept();
        let put = self.put(&mut versions, next, author, document.cluster);
        drop(versions);
        match put {
            Ok(version) => {
                part.version = version;
                part.current = version;
                (part, Bytes::new())
            }
            Err(error) => fail(
                ConfigurationFailure::Failed,
                format!("it cannot be kept: {error}; nothing is changed"),
            ),
        }
    }

    /// What counts for nothing in a configuration, for who sends it. That the original's peers are sent nothing of it is
    /// news only where they were sent the one before.
    fn new_warnings(&self, document: &Document) -> Vec<String> {
        let versions = self.versions.lock();
        let before = versions.current().map(|version| {
            let originals = version.originals();
            parse(version.document.clone().into(), originals)
        });
        drop(versions);
        let was_for_none = match before {
            Some(Ok(before)) => before.cluster.original.is_empty(),
            // There was none, which originals were not sent either, or one that counts no more.
            _ => false,
        };
        let is_news = |it: &&Warning| !(was_for_none && matches!(it, Warning::NotForOriginals(_)));
        let news = document.warnings.iter().filter(is_news);
        news.map(ToString::to_string).collect()
    }

    /// Keeps a configuration as the newest version, and gives it to the core.
    ///
    /// # Errors
    /// It cannot be written: `versions` is as it was.
    pub(super) fn put(
        &self,
        versions: &mut Versions,
        mut next: Versions,
        author: Author,
        cluster: ClusterConfiguration,
    ) -> io::Result<u64> {
        let by = format!("{} ({})", Printable::new(&author.by), author.source);
        let version = next.push(author, text(&cluster.payload), unix_ms());
        next.write()?;
        *versions = next;
        info!(
            event = "configuration_changed",
            "cluster configuration: version {version} of {by} is in force"
        );
        if let Some(hub) = self.hub.upgrade() {
            hub.configure(cluster, || Keeper::is_superseded(self));
        }
        self.tell(versions);
        Ok(version)
    }

    /// Has who asks how the scheduler is know which version is in force. Called with the versions locked, so that the
    /// latest word is of the latest version.
    fn tell(&self, versions: &Versions) {
        if let (Some(hub), Some(current)) = (self.hub.upgrade(), versions.current()) {
            let version = Box::new(current.view());
            hub.handle([Input::ConfigurationVersion(version)], None);
        }
    }
}

/// What a configuration would change. The core is held up for a copy alone.
fn affected(hub: &Hub, cluster: &ClusterConfiguration) -> Result<Affected, String> {
    let trial = hub.read_now(Trial::of);
    let tried = trial.with_rules(cluster.flags, cluster.rules.clone(), MAX_AFFECTED);
    tried.map_err(|error| error.to_string())
}

/// Names them in an answer.
pub(super) fn note_affected(part: &mut ConfigurationPart, affected: Affected) {
    part.checked = affected.checked as u64;
    part.more_affected = (affected.count - affected.first.len()) as u64;
    let rows = affected.first.into_iter().map(|it| AffectedInstance {
        instance_uuid: it.instance.to_string(),
        name: it.name.into(),
        node_uuid: it.node.to_string(),
        hostname: it.hostname.into(),
        reason: sentences::lacking(&it.lack),
    });
    part.affected = rows.collect();
}

/// The number of a request, as far as it can be read.
fn number_of(parcel: &Parcel) -> u64 {
    let frame = wire::frame_of(parcel);
    match frame.kind {
        Kind::READ_CONFIGURATION => ReadConfiguration::decode(&frame.payload).map(|it| it.id),
        _ => ConfigurationWrite::decode(&frame.payload).map(|it| it.part.id),
    }
    .unwrap_or_default()
}

/// An answer as the frame CONFIGURATION.
fn answer(part: ConfigurationPart, data: Bytes) -> Frame {
    let answer = ConfigurationAnswer::new(part, data);
    Frame::new(Kind::CONFIGURATION, Uuid::nil(), answer.encode())
}

#[cfg(test)]
mod tests;
