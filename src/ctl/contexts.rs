//! Contexts: where schedulers are and which certificates to show them, under names, in a file of the user's own.
//!
//! ```toml
//! current = "prod"
//!
//! [contexts.prod]
//! server = "sched.example:8888"
//! certs = "/etc/ciao/prod"
//! ```
//! What is given by flags and `CIAO_` variables counts over what a context says.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ctl::args::GlobalArgs;
use crate::private;

/// Bytes of the file that are read: a thousand contexts fit.
///
/// A larger file is an error, not cut.
const MAX_FILE_LEN: u64 = 256 * 1024;

/// Bytes of a context's name.
///
/// Names are also arguments of commands: they are short and plain.
const MAX_NAME_LEN: usize = 63;

/// What the file holds.
///
/// Unknown keys in the file are an error: writing it would lose them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The name of the one that counts unless another is named.
    ///
    /// May name a context that is not there, if the file was edited by hand: commands then end with
    /// [`ContextError::Unknown`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// All of them.
    #[serde(default)]
    pub contexts: BTreeMap<String, NamedContext>,
}

/// One context.
///
/// Each value is optional, so that a context can say only what differs from the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedContext {
    /// As `--server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// As `--server-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// As `--cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// As `--cacert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    /// As `--certs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certs: Option<PathBuf>,
    /// As `--crl`, which may be given several times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crl: Vec<PathBuf>,
}

/// Why contexts cannot be used.
///
/// All of them are errors of usage for `ciaoctl`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// There is no place for the file.
    #[error(
        "cannot find the file of contexts: neither HOME nor XDG_CONFIG_HOME is set; set one of them"
    )]
    NoPlace,
    /// The file cannot be read or written.
    #[error("cannot read or write the contexts in {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("the file of contexts {} cannot be used: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// There is no context of this name.
    #[error("no context is called '{name}'; {}", those(.known))]
    Unknown {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A context cannot be called so.
    #[error("'{0}' is no name of a context: 1 to {MAX_NAME_LEN} letters, digits and . _ -")]
    BadName(String),
}

/// Ends the text of [`ContextError::Unknown`].
fn those(names: &[String]) -> String {
    match names {
        [] => "there are none, `ciaoctl context set NAME` makes one".to_owned(),
        names => format!("there are {}", names.join(", ")),
    }
}

/// Where contexts are kept: `ciao/config.toml` in `XDG_CONFIG_HOME`, or in `~/.config`.
///
/// The file need not exist.
///
/// # Errors
/// Neither is known.
pub fn place() -> Result<PathBuf, ContextError> {
    let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // One that is not absolute counts for nothing, as the specification has it.
    let config = said("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|path| path.is_absolute());
    let home = || said("HOME").map(|home| Path::new(&home).join(".config"));
    let config = config.or_else(home).ok_or(ContextError::NoPlace)?;
    Ok(config.join("ciao").join("config.toml"))
}

impl Contexts {
    /// Reads the file; none where there is none.
    ///
    /// A file that is too long, no UTF-8 or no TOML is an error that names the line where it can.
    ///
    /// # Errors
    /// It cannot be read, or is not what it should be.
    pub fn read(path: &Path) -> Result<Self, ContextError> {
        let failed = |source| ContextError::File {
            path: path.to_owned(),
            source,
        };
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut text = String::new();
        file.take(MAX_FILE_LEN + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
        let wrong = |reason: String| ContextError::Content {
            path: path.to_owned(),
            reason,
        };
        if text.len() as u64 > MAX_FILE_LEN {
            return Err(wrong(format!("longer than {MAX_FILE_LEN} bytes")));
        }
        toml::from_str(&text).map_err(|error| wrong(reason(&error, &text)))
    }

    /// Writes the file, whole or not at all, for its owner alone.
    ///
    /// Written under a temporary name with mode 0600 and renamed. The directory is made if it is not there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), ContextError> {
        let text = toml::to_string(self).map_err(|error| ContextError::Content {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        let write = || {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
            // Of an earlier process of this number that was killed; it may have any mode.
            let _ = fs::remove_file(&temporary);
            let mut file = private::create(&temporary)?;
            let written = file
                .write_all(text.as_bytes())
                .and_then(|()| fs::rename(&temporary, path));
            written.inspect_err(|_| drop(fs::remove_file(&temporary)))
        };
        write().map_err(|source| ContextError::File {
            path: path.to_owned(),
            source,
        })
    }

    /// The context of this name.
    ///
    /// The error lists the names that there are.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<&NamedContext, ContextError> {
        self.contexts
            .get(name)
            .ok_or_else(|| ContextError::Unknown {
                name: name.to_owned(),
                known: self.contexts.keys().cloned().collect(),
            })
    }

    /// Makes this the context of a name; the current one if there is none.
    ///
    /// # Errors
    /// None can be called so.
    pub fn set(&mut self, name: &str, context: NamedContext) -> Result<(), ContextError> {
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=MAX_NAME_LEN).contains(&name.len()) && name.bytes().all(is_allowed);
        if !is_name || name.starts_with(['.', '-']) {
            return Err(ContextError::BadName(name.to_owned()));
        }
        self.contexts.insert(name.to_owned(), context);
        self.current.get_or_insert_with(|| name.to_owned());
        Ok(())
    }

    /// Forgets a context; then none is current if it was.
    ///
    /// The next current context has to be chosen with `use`.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn delete(&mut self, name: &str) -> Result<(), ContextError> {
        self.named(name)?;
        self.contexts.remove(name);
        self.current.take_if(|current| current == name);
        Ok(())
    }
}

/// What is wrong with the file, in a line.
///
/// TOML errors span several lines; this is the message behind the number of the line.
fn reason(error: &toml::de::Error, text: &str) -> String {
    let at = error.span().map(|span| {
        let before = text.get(..span.start).unwrap_or_default();
        format!("line {}: ", before.matches('\n').count() + 1)
    });
    let message = error.message().replace('\n', " ");
    format!("{}{message}", at.unwrap_or_default())
}

impl NamedContext {
    /// What flags and variables say, with whole paths; what they do not is as before.
    ///
    /// Paths become absolute, because the context is used from other directories.
    #[must_use]
    pub fn with(self, global: &GlobalArgs) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let whole = |path: &Option<PathBuf>| path.as_ref().map(absolute);
        // The name that is expected belongs to the server, and a directory that is named has all the files.
        let server_name = self.server_name.filter(|_| global.server.is_none());
        let is_in_files = global.certs.is_none();
        Self {
            server: global.server.clone().or(self.server),
            server_name: global.server_name.clone().or(server_name),
            cert: whole(&global.cert).or(self.cert.filter(|_| is_in_files)),
            cacert: whole(&global.cacert).or(self.cacert.filter(|_| is_in_files)),
            certs: whole(&global.certs).or(self.certs),
            crl: match &*global.crl {
                [] => self.crl,
                given => given.iter().map(absolute).collect(),
            },
        }
    }
}

/// The options of every command, with what the named or the current context says where they say nothing.
///
/// Called before every command but `context` and `completions`. Cost: one small file is read.
///
/// # Errors
/// The named context is not there, or the file cannot be used.
pub fn apply(global: GlobalArgs) -> Result<GlobalArgs, ContextError> {
    let path = match place() {
        Ok(path) => path,
        // A user without a home has no contexts.
        Err(_) if global.context.is_none() => return Ok(global),
        Err(error) => return Err(error),
    };
    let all = Contexts::read(&path)?;
    let Some(name) = global.context.as_deref().or(all.current.as_deref()) else {
        return Ok(global);
    };
    let context = all.named(name)?.clone();
    Ok(over(global, context))
}

/// What flags and variables say, and else what a context says.
///
/// Values of one source stay together: a server name belongs to its server, and files to the directory that is named.
fn over(global: GlobalArgs, context: NamedContext) -> GlobalArgs {
    // The name that is expected belongs to the server.
    let server_name = match global.server {
        Some(_) => global.server_name,
        None => global.server_name.or(context.server_name),
    };
    // Lists are a CA's: those of a context are for its files.
    let is_its_ca = global.certs.is_none() && global.cacert.is_none();
    let crl = match global.crl.is_empty() && is_its_ca {
        true => context.crl,
        false => global.crl,
    };
    // A directory that is named has all the files.
    let (cert, cacert, certs) = match global.certs {
        Some(_) => (global.cert, global.cacert, global.certs),
        None => (
            global.cert.or(context.cert),
            global.cacert.or(context.cacert),
            context.certs,
        ),
    };
    GlobalArgs {
        crl,
        server: global.server.or(context.server),
        server_name,
        cert,
        cacert,
        certs,
        ..global
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::{ContextError, Contexts, GlobalArgs, NamedContext, over};
    use crate::flags::CrlExpired;

    fn context(server: &str) -> NamedContext {
        NamedContext {
            server: Some(server.to_owned()),
            server_name: Some("name".to_owned()),
            cert: Some("/c/cert".into()),
            certs: Some("/c".into()),
            ..NamedContext::default()
        }
    }

    fn global() -> GlobalArgs {
        GlobalArgs {
            server: None,
            server_name: None,
            cert: None,
            cacert: None,
            certs: None,
            crl: Vec::new(),
            crl_expired: CrlExpired::default(),
            context: None,
            strict_files: false,
            timeout: None,
            json: false,
        }
    }

    #[test]
    fn what_is_written_is_read_again_by_its_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b/config.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        let mut all = Contexts::default();
        all.set("one", context("one:1")).unwrap();
        all.set("two.x", context("two:2")).unwrap();
        assert_eq!(all.current.as_deref(), Some("one"));
        all.write(&path).unwrap();
        all.write(&path).unwrap();
        assert_eq!(Contexts::read(&path).unwrap(), all);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
        all.delete("one").unwrap();
        assert_eq!(all.current, None);
        assert!(matches!(
            all.delete("one"),
            Err(ContextError::Unknown { .. })
        ));
        for name in ["", "a b", "../x", ".x", "-x", &"x".repeat(64)] {
            assert!(all.set(name, NamedContext::default()).is_err(), "{name}");
        }
    }

    #[test]
    fn a_file_that_is_wrong_is_named_with_the_place() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("config.toml");
        for (text, part) in [
            ("current = 1", "line 1"),
            (
                "\n[contexts.a]\nsevrer = 'x'",
                "line 3: unknown field `sevrer`",
            ),
            ("x\ny", "line 1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Contexts::read(&path).unwrap_err().to_string();
            assert!(
                error.contains("config.toml") && error.contains(part),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        std::fs::write(&path, "#".repeat(300_000)).unwrap();
        let error = Contexts::read(&path).unwrap_err().to_string();
        assert!(error.contains("longer than"), "{error}");
    }

    #[test]
    fn flags_count_over_a_context_and_belong_together() {
        let found = over(global(), context("one:1"));
        assert_eq!(found.server.as_deref(), Some("one:1"));
        assert_eq!(found.server_name.as_deref(), Some("name"));
        assert_eq!(found.certs, Some(PathBuf::from("/c")));
        let elsewhere = GlobalArgs {
            server: Some("other:2".to_owned()),
            certs: Some("/d".into()),
            ..global()
        };
        let found = over(elsewhere, context("one:1"));
        assert_eq!(found.server.as_deref(), Some("other:2"));
        assert_eq!((found.server_name, found.cert), (None, None));
        assert_eq!(found.certs, Some(PathBuf::from("/d")));
    }
}
