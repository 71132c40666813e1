//! The tokens that are let in: a file with one a line, of which only digests are kept, so that no debug line can show a
//! token. The file is read when the daemon starts, where a mistake ends the start, and again when it has changed or all
//! files are read again, where a mistake changes nothing. One without a token is a mistake at the start alone: later it
//! withdraws the last one.
//!
//! ```text
//! # for nova
//! 6c1f0a…   (any visible ASCII; `openssl rand -hex 32` makes one)
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::limits::{MAX_TOKENS, MAX_TOKENS_LEN};
use crate::net::tls::KeyFiles;
use crate::private;
use crate::server::credentials::Live;
use crate::server::watch::Watched;

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

impl TokensError {
    /// The line of the mistake, from 1, where there is one.
    pub(in crate::server) fn line(&self) -> Option<usize> {
        match self {
            Self::Sign(line) => Some(*line),
            _ => None,
        }
    }
}

/// SHA-256 of each token, in the order of the file. Its debug form shows how many there are.
pub(in crate::server) struct Digests(Vec<[u8; SHA256_OUTPUT_LEN]>);

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Digests").field(&self.0.len()).finish()
    }
}

/// Puts what is in a file of tokens into force whenever it has changed, if it can be used. A task of the daemon, which
/// never returns.
pub(in crate::server) async fn follow(
    (path, mut watched): (PathBuf, Watched),
    key_files: KeyFiles,
    live: Arc<Live>,
) {
    loop {
        watched.changed().await;
        let (path, live) = (path.clone(), Arc::clone(&live));
        // A panic there would be logged, and changes nothing. Files may be on a disk that is slow to answer.
        let _ = spawn_blocking(move || read_again(&path, key_files, &live)).await;
    }
}

/// Puts what is in the file now into force, if it can be used.
fn read_again(path: &Path, key_files: KeyFiles, live: &Live) {
    match Digests::load(path, key_files) {
        Ok(digests) => {
            let count = digests.len();
            live.take_tokens(digests);
            info!(
                event = "tokens_read",
                "tokens of the Placement API: {count}"
            );
        }
        Err(error) => {
            let path = path.display();
            warn!(
                event = "tokens_unreadable",
                "the tokens of the Placement API stay as they were: {path}: {error}"
            );
        }
    }
}

impl Digests {
    /// Reads a file of tokens. Empty lines and such that begin with `#` are passed over; spaces around a token are not
    /// part of it. That others can read it is an error where files are strict, and else logged.
    ///
    /// # Errors
    /// [`TokensError`]; that there is none in it is no error.
    pub(in crate::server) fn load(path: &Path, key_files: KeyFiles) -> Result<Self, TokensError> {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(MAX_TOKENS_LEN + 1).read_to_string(&mut text)?;
        if text.len() as u64 > MAX_TOKENS_LEN {
            return Err(TokensError::TooLong);
        }
        match private::open_to_others(path) {
            Some(mode) if key_files == KeyFiles::Strict => return Err(TokensError::Exposed(mode)),
            Some(mode) => {
                let path = path.display();
                warn!(
                    event = "token_file_open_to_others",
                    "{path}: the tokens in it can be read by others (mode {mode:04o}); chmod 600 {path}"
                );
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

    /// How many there are.
    pub(in crate::server) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a token is among them. Digests are compared in constant time, and all of them, so that how long it takes
    /// says nothing about how much of a token is right, or which one it is.
    pub(in crate::server) fn admit(&self, token: &[u8]) -> bool {
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
