//! The tokens that are let in: a file with one a line, of which only digests are kept, so that no debug line can show a
//! token. The file is read when the daemon starts, where a mistake ends the start, and again when it has changed, where a
//! mistake changes nothing. One without a token is a mistake at the start alone: later it withdraws the last one.
//!
//! ```text
//! # for nova
//! 6c1f0a…   (any visible ASCII; `openssl rand -hex 32` makes one)
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use parking_lot::RwLock;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use super::limits::{MAX_TOKENS, MAX_TOKENS_LEN};
use crate::private;

/// Why a file of tokens cannot be used. None of what is in it is shown: a line number at most.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read, or is not UTF-8.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// Others could read it, and files are strict. The mode is that of the file.
    #[error("others can read it (mode {0:04o}); close it to them with chmod 600")]
    Exposed(u32),
    /// It is longer than any list of tokens.
    #[error("it has more than {MAX_TOKENS_LEN} bytes; expected one token a line")]
    TooLong,
    /// There is no token in it, so that no request could be let in.
    #[error("there is no token in it; write one a line, e.g. by openssl rand -hex 32")]
    Empty,
    /// There are more tokens in it than are taken.
    #[error("there are more than {MAX_TOKENS} tokens in it")]
    TooMany,
    /// A token that no header can carry, in the line with this number, from 1.
    #[error("line {0}: a token has visible ASCII signs alone, without spaces")]
    Sign(usize),
}

/// Pause between two looks at the file. It is read once it has stayed the same from one to the next, so that one that
/// is written in place is mostly read whole.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tokens of a running daemon.
#[derive(Debug)]
pub(in crate::server) struct Tokens {
    known: RwLock<Digests>,
    path: PathBuf,
    /// The setting for key files: whether a file that others can read is an error.
    is_strict: bool,
    /// What the file was when it was read.
    seen: Option<Stamp>,
}

/// SHA-256 of each token, in the order of the file. Its debug form shows how many there are.
struct Digests(Vec<[u8; SHA256_OUTPUT_LEN]>);

/// What tells one version of a file from another, whether it was replaced or written again, and one mode of it from
/// another. `ctime` changes with each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file; `None` while it cannot be looked at.
    fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            len: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Digests").field(&self.0.len()).finish()
    }
}

impl Tokens {
    /// Reads a file of tokens. `is_strict` is the setting for key files: whether one that others can read is an error.
    ///
    /// # Errors
    /// [`TokensError`]; that others can read it is one where files are strict, and else told to `say`.
    pub(in crate::server) fn load(
        path: &Path,
        is_strict: bool,
        say: impl FnOnce(String),
    ) -> Result<Self, TokensError> {
        // Before it is read: what changes from now on is seen.
        let seen = Stamp::of(path);
        let digests = Digests::load(path, is_strict, say)?;
        if digests.0.is_empty() {
            return Err(TokensError::Empty);
        }
        Ok(Self {
            known: RwLock::new(digests),
            path: path.to_owned(),
            is_strict,
            seen,
        })
    }

    /// Whether a token is among them.
    pub(super) fn admit(&self, token: &[u8]) -> bool {
        self.known.read().admit(token)
    }

    /// Reads the file again whenever it has changed. A task of the daemon, which never returns.
    pub(in crate::server) async fn follow(self: Arc<Self>) {
        let mut read = self.seen;
        let mut last = read;
        loop {
            sleep(LOOK_EVERY).await;
            let this = Arc::clone(&self);
            // Files may be on a disk that is slow to answer.
            let Ok(now) = spawn_blocking(move || Stamp::of(&this.path)).await else {
                continue;
            };
            if now != read && now == last {
                read = now;
                let this = Arc::clone(&self);
                // A panic there would be logged, and changes nothing.
                let _ = spawn_blocking(move || this.read_again()).await;
            }
            last = now;
        }
    }

    /// Puts what is in the file now into force, if it can be used.
    fn read_again(&self) {
        let warn = |said| warn!(event = "token_file_open_to_others", "{said}");
        match Digests::load(&self.path, self.is_strict, warn) {
            Ok(digests) => {
                let count = digests.0.len();
                *self.known.write() = digests;
                info!(
                    event = "tokens_read",
                    "tokens of the Placement API: {count}"
                );
            }
            Err(error) => {
                let path = self.path.display();
                warn!(
                    event = "tokens_unreadable",
                    "the tokens of the Placement API stay as they were: {path}: {error}"
                );
            }
        }
    }
}

impl Digests {
    /// Reads a file of tokens. Empty lines and such that begin with `#` are passed over; spaces around a token are not
    /// part of it.
    fn load(path: &Path, is_strict: bool, say: impl FnOnce(String)) -> Result<Self, TokensError> {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(MAX_TOKENS_LEN + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_TOKENS_LEN {
            return Err(TokensError::TooLong);
        }
        match private::open_to_others(path) {
            Some(mode) if is_strict => return Err(TokensError::Exposed(mode)),
            Some(mode) => {
                let path = path.display();
                say(format!(
                    "{path}: the tokens in it can be read by others (mode {mode:04o}); chmod 600 {path}"
                ));
            }
            None => {}
        }
        Self::read(&text)
    }

    /// The tokens in a text, which may be none.
    fn read(text: &str) -> Result<Self, TokensError> {
        let mut digests = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if !line.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokensError::Sign(number));
            }
            digests.push(hash(line.as_bytes()));
        }
        if digests.len() > MAX_TOKENS {
            return Err(TokensError::TooMany);
        }
        Ok(Self(digests))
    }

    /// Whether a token is among them. Digests are compared in constant time, and all of them, so that how long it takes
    /// says nothing about how much of a token is right, or which one it is.
    fn admit(&self, token: &[u8]) -> bool {
        let presented = hash(token);
        // Counted rather than found: a search would end with the first that is it.
        let matching = self.0.iter().filter(|it| {
            let compared = verify_slices_are_equal(&presented[..], &it[..]);
            compared.is_ok()
        });
        matching.count() > 0
    }
}

/// SHA-256 of a token.
fn hash(token: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::{Digests, MAX_TOKENS, TokensError};

    #[test]
    fn tokens_are_read_a_line_each() {
        let tokens = Digests::read("# for nova\n\n  first \nsecond\r\n").unwrap();
        assert!(tokens.admit(b"first") && tokens.admit(b"second"));
        for wrong in ["", "firs", "first ", "First", "# for nova", "firstsecond"] {
            assert!(!tokens.admit(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(format!("{tokens:?}"), "Digests(2)");
    }

    #[test]
    fn a_file_with_what_cannot_be_sent_or_is_too_much_is_refused() {
        let read = |text: &str| Digests::read(text).unwrap_err();
        assert!(matches!(read("good\nnot good\n"), TokensError::Sign(2)));
        let many = "token\n".repeat(MAX_TOKENS + 1);
        assert!(matches!(read(&many), TokensError::TooMany));
    }
}
