//! Tokens: who may call which service.
//!
//! They are in `tokens.json` in the state directory, by their SHA-256 alone: who reads the file has no token. `ciao-rik
//! token` changes the file, and a server with `-tokens` reads it again within a second or so. A token is random, so
//! that a plain hash of it is enough; there is nothing to guess. Commands take turns by a lock on `tokens.lock` beside
//! it; servers only read, and need none.
//!
//! ```json
//! [{"name": "rack-1", "role": "worker", "sha256": "9f86d081…", "banned": false}]
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{digest, rand};
use ciao_adapter::store::make_private;
use ciao_scheduler::private::JsonFault;
use clap::ValueEnum;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tracing::{info, warn};

/// The files in the state directory: the tokens, those that are about to take their place, and what is locked.
pub(crate) const FILES: &[&str] = &[TOKENS, NEXT, LOCK];

const TOKENS: &str = "tokens.json";

const NEXT: &str = "tokens.json.new";

const LOCK: &str = "tokens.lock";

/// Pause between two looks at the file's metadata.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Random bytes of a token: 256 bits.
const RANDOM: usize = 32;

/// What a token begins with, so that it is recognized as one where it has leaked.
const PREFIX: &str = "rik_";

/// Most tokens. Each call walks through all of them.
const MAX_TOKENS: usize = 10_000;

/// Longest name of a token, in bytes.
const MAX_NAME: usize = 64;

/// Which service a token opens; there is none for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// To register, and to tell how things are.
    Worker,
    /// To schedule, and to hear how things are.
    Controller,
}

/// One token, without the token itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// What it is called. It owns what is made with it: a controller sees the instances of its own token's name.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: Role,
    /// SHA-256 of the whole token with its prefix, in hex.
    sha256: String,
    /// Whether it is refused. Entries are kept, so that the name is not given a second time.
    #[serde(default)]
    pub(crate) banned: bool,
}

/// Why tokens cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not the JSON above. Nothing of it is shown.
    #[error(
        "{}: {source}; expected the list of tokens as `ciao-rik token` writes it: name, role, sha256 and banned of each",
        path.display()
    )]
    Contents {
        /// Which.
        path: PathBuf,
        /// Why.
        source: JsonFault,
    },
    /// It is empty, too long, or has other characters.
    #[error("{0:?} cannot be a token's name: 1 to {MAX_NAME} letters, digits, '-', '_' or '.'")]
    Name(String),
    /// A token has this name, maybe a banned one.
    #[error("there is a token {0:?} already")]
    Exists(String),
    /// No token has this name.
    #[error("there is no token {0:?}")]
    Unknown(String),
    /// There are [`MAX_TOKENS`], banned ones included.
    #[error("there are {MAX_TOKENS} tokens already")]
    TooMany,
    /// The system's random generator has failed.
    #[error("the system gives no random bytes")]
    Random,
}

/// The tokens of a running server; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    /// `None` without `-tokens`: then every call is let in, with an empty name.
    known: Option<Arc<RwLock<Vec<Token>>>>,
    /// Names of all banned tokens, as they change.
    bans: watch::Receiver<Vec<String>>,
}

/// Makes a token, adds it to the file, and returns it. It is kept nowhere and cannot be shown a second time.
///
/// # Errors
/// [`TokenError`]; the file is as before then.
pub(crate) fn issue(state: &Path, name: &str, role: Role) -> Result<String, TokenError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(is_plain) {
        return Err(TokenError::Name(name.to_owned()));
    }
    let _turn = lock(state)?;
    let mut all = list(state)?;
    if all.iter().any(|it| it.name == name) {
        return Err(TokenError::Exists(name.to_owned()));
    }
    if all.len() >= MAX_TOKENS {
        return Err(TokenError::TooMany);
    }
    let mut random = [0; RANDOM];
    rand::fill(&mut random).map_err(|_| TokenError::Random)?;
    let token = format!("{PREFIX}{}", hex(&random));
    all.push(Token {
        name: name.to_owned(),
        role,
        sha256: sha256(&token),
        banned: false,
    });
    write(state, &all)?;
    Ok(token)
}

/// Marks a token as banned. A running server refuses it, and ends its streams, once it has read the file.
///
/// # Errors
/// [`TokenError`].
pub(crate) fn ban(state: &Path, name: &str) -> Result<(), TokenError> {
    let is_it = |it: &Token| it.name == name;
    let unknown = || TokenError::Unknown(name.to_owned());
    // Looked for before the lock, which makes the directory if there is none.
    if !list(state)?.iter().any(is_it) {
        return Err(unknown());
    }
    let _turn = lock(state)?;
    let mut all = list(state)?;
    let token = all.iter_mut().find(|it| is_it(it));
    token.ok_or_else(unknown)?.banned = true;
    write(state, &all)
}

/// All tokens of the file, banned ones included; none without a file.
///
/// # Errors
/// [`TokenError::File`] or [`TokenError::Contents`].
pub(crate) fn list(state: &Path) -> Result<Vec<Token>, TokenError> {
    let path = file(state);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| TokenError::Contents {
            path,
            source: source.into(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(TokenError::File { path, source }),
    }
}

fn file(state: &Path) -> PathBuf {
    state.join(TOKENS)
}

/// Waits until no other command changes the file. Until the returned file is dropped, or its process ends, no other
/// command does: each reads the file and replaces it, and two at once would lose one's change.
///
/// The lock is on a file of its own, because the file of tokens is another one after each change.
///
/// # Errors
/// [`TokenError::File`]: there is no lock file and it cannot be made, or the file system has no locks.
fn lock(state: &Path) -> Result<File, TokenError> {
    let path = state.join(LOCK);
    let locked = || {
        make_private(state)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path)?;
        file.lock()?;
        Ok(file)
    };
    locked().map_err(|source| TokenError::File {
        path: path.clone(),
        source,
    })
}

/// Replaces the file as a whole, so that a reader sees the earlier or the later one. Called with the lock held.
///
/// # Errors
/// [`TokenError::File`].
fn write(state: &Path, all: &[Token]) -> Result<(), TokenError> {
    let path = file(state);
    let replace = || {
        let next = state.join(NEXT);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut open = options.open(&next)?;
        open.write_all(&serde_json::to_vec_pretty(all).map_err(io::Error::other)?)?;
        open.sync_all()?;
        fs::rename(next, &path)
    };
    replace().map_err(|source| TokenError::File {
        path: path.clone(),
        source,
    })
}

impl Tokens {
    /// Lets all calls in.
    pub(crate) fn none() -> Self {
        let (_, bans) = watch::channel(Vec::new());
        Self { known: None, bans }
    }

    /// Reads the file, and spawns a task that reads it again when it has changed. After each change `banned` gets the
    /// names of all banned tokens. A file that has become unreadable changes nothing, and is tried again.
    ///
    /// # Errors
    /// The file cannot be read at the start.
    pub(crate) fn of(
        state: &Path,
        mut banned: impl FnMut(Vec<String>) + Send + 'static,
    ) -> Result<Self, TokenError> {
        // Before it is read: what changes from now on is seen.
        let mut seen = stamp(state);
        let known = Arc::new(RwLock::new(list(state)?));
        let (bans, watched) = watch::channel(names_of_banned(&known.read()));
        let (state, shared) = (state.to_owned(), Arc::clone(&known));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let now = stamp(&state);
                if now == seen {
                    continue;
                }
                match list(&state) {
                    Ok(all) => {
                        info!(event = "tokens_read", "{} tokens are known", all.len());
                        seen = now;
                        let names = names_of_banned(&all);
                        *shared.write() = all;
                        banned(names.clone());
                        if bans.send(names).is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        warn!(
                            event = "tokens_unreadable",
                            "the tokens stay as they were: {error}"
                        );
                    }
                }
            }
        });
        Ok(Self {
            known: Some(known),
            bans: watched,
        })
    }

    /// Who calls, by the metadata `authorization: Bearer TOKEN`: the token's name, or an empty one where none are asked
    /// for.
    ///
    /// The digest is compared, not the token: how long the comparison takes says nothing that helps to guess one.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` without a known token; `PERMISSION_DENIED` with one that is banned or for the other service.
    pub(crate) fn check(&self, metadata: &MetadataMap, role: Role) -> Result<Arc<str>, Status> {
        let Some(known) = &self.known else {
            return Ok("".into());
        };
        let given = metadata
            .get("authorization")
            .and_then(|it| it.to_str().ok());
        let Some(given) = given.and_then(|it| it.strip_prefix("Bearer ")) else {
            let text = "a token is needed, as metadata 'authorization: Bearer TOKEN' (ciao-rik token issue)";
            return Err(Status::unauthenticated(text));
        };
        let sha256 = sha256(given.trim());
        let known = known.read();
        match known.iter().find(|it| it.sha256 == sha256) {
            None => Err(Status::unauthenticated("the token is not known")),
            Some(token) if token.banned => Err(Status::permission_denied("the token is banned")),
            Some(token) if token.role != role => Err(Status::permission_denied(
                "the token is not for this service",
            )),
            Some(token) => Ok(token.name.as_str().into()),
        }
    }

    /// A receiver of the names of banned tokens, for those whose calls last.
    pub(crate) fn bans(&self) -> watch::Receiver<Vec<String>> {
        self.bans.clone()
    }
}

fn names_of_banned(all: &[Token]) -> Vec<String> {
    let banned = all.iter().filter(|it| it.banned);
    banned.map(|it| it.name.clone()).collect()
}

/// What tells one version of the file from another: it is replaced, never written again. `None` while there is none.
fn stamp(state: &Path) -> Option<(u64, i64, i64)> {
    let metadata = fs::metadata(file(state)).ok()?;
    Some((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()))
}

fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_counts_for_its_service_until_it_is_banned() {
        let state = tempfile::tempdir().unwrap();
        let token = issue(state.path(), "w1", Role::Worker).unwrap();
        assert!(issue(state.path(), "w1", Role::Worker).is_err());
        assert!(issue(state.path(), "a b", Role::Worker).is_err());
        let mut metadata = MetadataMap::new();
        let tokens = Tokens::of(state.path(), drop).unwrap();
        let code = |tokens: &Tokens, metadata: &MetadataMap, role| {
            tokens.check(metadata, role).unwrap_err().code()
        };
        assert_eq!(
            code(&tokens, &metadata, Role::Worker),
            tonic::Code::Unauthenticated
        );
        let text = fs::read_to_string(file(state.path())).unwrap();
        assert!(!text.contains(&token), "the token itself is kept nowhere");
        metadata.insert("authorization", format!("Bearer {token}").parse().unwrap());
        assert_eq!(&*tokens.check(&metadata, Role::Worker).unwrap(), "w1");
        assert_eq!(
            code(&tokens, &metadata, Role::Controller),
            tonic::Code::PermissionDenied
        );
        let mut bans = tokens.bans();
        ban(state.path(), "w1").unwrap();
        let wait = bans.wait_for(|it| it.contains(&"w1".to_owned()));
        drop(
            tokio::time::timeout(Duration::from_secs(60), wait)
                .await
                .unwrap()
                .unwrap(),
        );
        assert_eq!(
            code(&tokens, &metadata, Role::Worker),
            tonic::Code::PermissionDenied
        );
        assert!(ban(state.path(), "w2").is_err());
    }

    #[test]
    fn nothing_of_the_file_is_shown_where_it_cannot_be_read() {
        let state = tempfile::tempdir().unwrap();
        for text in [
            r#"["rik_secret"]"#,
            r#"[{"name": "w1", "role": "rik_secret", "sha256": "", "banned": false}]"#,
            r#"[{"name": "w1", "role": "worker", "sha256": "", "banned": "rik_secret"}]"#,
            "rik_secret\n",
            "{\"rik_secret\": 1}",
        ] {
            fs::write(file(state.path()), text).unwrap();
            let error = list(state.path()).unwrap_err();
            for shown in [error.to_string(), format!("{error:?}")] {
                assert!(!shown.contains("rik_secret"), "{shown}");
            }
            assert!(
                error.to_string().contains("tokens.json: line 1 column "),
                "{error}"
            );
        }
    }

    #[test]
    fn commands_at_the_same_time_lose_no_change_of_each_other() {
        const COMMANDS: usize = 8;
        const EACH: usize = 10;
        let state = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for command in 0..COMMANDS {
                let state = state.path();
                scope.spawn(move || {
                    for number in 0..EACH {
                        let name = format!("{command}-{number}");
                        issue(state, &name, Role::Worker).unwrap();
                        ban(state, &name).unwrap();
                    }
                });
            }
        });
        let all = list(state.path()).unwrap();
        assert_eq!(all.len(), COMMANDS * EACH);
        assert!(all.iter().all(|it| it.banned));
    }
}
