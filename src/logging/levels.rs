//! What is logged at all: `-v` and `-vmodule`, and over them a file (`--log-levels`) that is read again while the program
//! runs, on SIGHUP, and by the scheduler with all its other files.
//!
//! ```text
//! # a module's level counts over that of all
//! v=0
//! sched=2
//! server=1
//! ```
//!
//! Reading and putting into force are two steps, so that a mistake leaves what was logged before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::reload;

use super::{LogError, LogFlags};
use crate::printable::Printable;

/// This project's own crates, whose level `-v` sets.
const OWN_CRATES: &[&str] = &[
    "ciao_scheduler",
    "ciao_adapter",
    "ciao_funky",
    "ciao_rik",
    "sched_core",
    "proto_frames",
];

/// What stands for all modules in the file, as `-v` does on the command line.
const ALL: &str = "v";

/// Largest file that is read, in bytes: a line for each module there is, many times over.
const MAX_LEN: u64 = 64 * 1024;

/// Why a file of levels cannot be used. Who shows it names the file.
#[derive(Debug, thiserror::Error)]
pub enum LevelsError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is too long.
    #[error("more than {MAX_LEN} bytes")]
    TooLong,
    /// A line says nothing.
    #[error("line {line}: expected v=N or MODULE=N, with N from 0 to 255, found '{}'", Printable::new(.found))]
    Mistake {
        /// Which, from 1.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// A line says again what another does.
    #[error("line {line}: {} stands twice", Printable::new(.name))]
    Twice {
        /// The second, from 1.
        line: usize,
        /// The module.
        name: String,
    },
}

/// The levels in force, and how they are replaced. Clones are of the same ones.
#[derive(Debug, Clone)]
pub struct Levels {
    /// What the command line says, which counts where the file says nothing.
    flags: LogFlags,
    in_force: reload::Handle<Targets, Registry>,
    words: Arc<Mutex<String>>,
}

/// Levels that were read and found right; nothing changes before [`Levels::take`].
#[derive(Debug)]
pub struct NewLevels {
    targets: Targets,
    words: String,
}

impl LevelsError {
    /// The line of the mistake, from 1, where there is one.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Mistake { line, .. } | Self::Twice { line, .. } => Some(*line),
            Self::Read(_) | Self::TooLong => None,
        }
    }
}

impl Levels {
    /// Those of the flags and of their file, and the layer that lets through what they say.
    ///
    /// # Errors
    /// `-vmodule` or the file cannot be used.
    pub(super) fn new(
        flags: &LogFlags,
    ) -> Result<(reload::Layer<Targets, Registry>, Self), LogError> {
        let first = read(flags)?;
        let (layer, in_force) = reload::Layer::new(first.targets);
        let levels = Self {
            flags: flags.clone(),
            in_force,
            words: Arc::new(Mutex::new(first.words)),
        };
        Ok((layer, levels))
    }

    /// The file that they are read from; `None` where the command line says all.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.flags.log_levels.as_deref()
    }

    /// Those in force, in the file's words: `v=0, sched=2`.
    #[must_use]
    pub fn words(&self) -> String {
        self.words.lock().clone()
    }

    /// Reads the file again. Blocks for it.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn read(&self) -> Result<NewLevels, LevelsError> {
        match read(&self.flags) {
            Ok(levels) => Ok(levels),
            Err(LogError::Levels { source, .. }) => Err(source),
            // The command line, which was read at the start, has not changed since.
            Err(other) => Err(io::Error::other(other).into()),
        }
    }

    /// Puts levels into force. Those of a process whose log has ended change nothing.
    pub fn take(&self, new: NewLevels) {
        if self.in_force.reload(new.targets).is_ok() {
            *self.words.lock() = new.words;
        }
    }

    /// Reads the file again, if there is one, and puts it into force; at a mistake all stays as it was, and the log says so.
    /// Blocks for the file.
    pub fn read_again(&self) {
        let Some(path) = self.path() else { return };
        match self.read() {
            Ok(new) => {
                self.take(new);
                let words = self.words();
                tracing::info!(event = "log_levels_changed", "log levels: {words}");
            }
            Err(mistake) => tracing::error!(
                event = "log_levels_unusable",
                "cannot use the log levels in {}: {mistake}; what is logged stays as it was",
                path.display()
            ),
        }
    }
}

/// What the flags and their file say: `-v` for this project's own modules, `-vmodule` for single ones; of other crates
/// only warnings. Modules are named as glog's users do: `sched=2`, `server.go=1` and `*server*=1` are understood.
///
/// # Errors
/// [`LogError::Vmodule`] with the part that cannot be read, [`LogError::Levels`] with the file.
fn read(flags: &LogFlags) -> Result<NewLevels, LogError> {
    let mut all = flags.verbosity;
    let mut modules = Vec::new();
    for part in flags.vmodule.split(',').filter(|part| !part.is_empty()) {
        let module = module_level(part).ok_or_else(|| LogError::Vmodule(part.to_owned()))?;
        modules.push(module);
    }
    if let Some(path) = &flags.log_levels {
        let in_file = |source| LogError::Levels {
            path: path.clone(),
            source,
        };
        let (said, of_file) = read_file(path).map_err(in_file)?;
        all = said.unwrap_or(all);
        modules.retain(|(name, _)| of_file.iter().all(|(other, _)| other != name));
        modules.extend(of_file);
    }
    let own = OWN_CRATES.iter().map(|it| (*it, level(all)));
    let mut targets = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_targets(own);
    let mut words = format!("{ALL}={all}");
    for (name, verbosity) in modules {
        words.push_str(&format!(", {name}={verbosity}"));
        let target = match &*name {
            // The core is a crate of its own.
            "sched" => "sched_core".to_owned(),
            own if OWN_CRATES.contains(&own) => name,
            module => format!("ciao_scheduler::{module}"),
        };
        targets = targets.with_target(target, level(verbosity));
    }
    Ok(NewLevels { targets, words })
}

/// What a file says for all modules, and for single ones.
type InFile = (Option<u8>, Vec<(String, u8)>);

fn read_file(path: &PathBuf) -> Result<InFile, LevelsError> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_LEN + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        return Err(LevelsError::TooLong);
    }
    parse(&String::from_utf8_lossy(&text))
}

fn parse(text: &str) -> Result<InFile, LevelsError> {
    let mut all = None;
    let mut modules = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        let said = line.split('#').next().unwrap_or_default().trim();
        if said.is_empty() {
            continue;
        }
        let line = at + 1;
        let Some((name, verbosity)) = module_level(said) else {
            let found = said.chars().take(64).collect();
            return Err(LevelsError::Mistake { line, found });
        };
        if !seen.insert(name.clone()) {
            return Err(LevelsError::Twice { line, name });
        }
        match &*name {
            ALL => all = Some(verbosity),
            _ => modules.push((name, verbosity)),
        }
    }
    Ok((all, modules))
}

/// Reads `MODULE=N`; `None` where it is something else.
fn module_level(text: &str) -> Option<(String, u8)> {
    let (module, verbosity) = text.split_once('=')?;
    let module = module.trim().trim_end_matches(".go").trim_matches('*');
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let is_module = !module.is_empty() && module.chars().all(is_path);
    let verbosity = verbosity.trim().parse().ok();
    verbosity
        .filter(|_| is_module)
        .map(|it| (module.to_owned(), it))
}

/// `-v` as a level: 0 is INFO, 1 DEBUG, 2 and more TRACE.
fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmodule_is_read_as_glog_does() {
        let with = |vmodule: &str| {
            read(&LogFlags {
                vmodule: vmodule.to_owned(),
                ..LogFlags::default()
            })
        };
        let levels = with("sched=2,server=1,*net*=0").unwrap();
        let text = levels.targets.to_string();
        assert!(text.contains("sched_core=trace"), "{text}");
        assert!(text.contains("ciao_scheduler::server=debug"), "{text}");
        assert_eq!(levels.words, "v=0, sched=2, server=1, net=0");
        for wrong in ["sched", "=1", "sched=x", "sched=256", "a b=1", "**=1"] {
            assert_eq!(
                with(wrong).unwrap_err().to_string(),
                format!("-vmodule '{wrong}': expected MODULE=N, separated by commas")
            );
        }
    }

    #[test]
    fn what_the_file_says_counts_over_the_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("levels");
        std::fs::write(&path, "# for now\n\n v = 1 # all\nserver=2\nnet=0\n").unwrap();
        let flags = LogFlags {
            vmodule: "server=0,sched=1".to_owned(),
            log_levels: Some(path.clone()),
            ..LogFlags::default()
        };
        let levels = read(&flags).unwrap();
        assert_eq!(levels.words, "v=1, sched=1, server=2, net=0");
        let text = levels.targets.to_string();
        assert!(text.contains("ciao_scheduler::server=trace"), "{text}");
        assert!(text.contains("ciao_scheduler::net=info"), "{text}");
        assert!(text.contains("proto_frames=debug"), "{text}");
        std::fs::write(&path, "").unwrap();
        assert_eq!(read(&flags).unwrap().words, "v=0, server=0, sched=1");
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        for (text, said) in [
            (
                "v=1\nserver\n",
                "line 2: expected v=N or MODULE=N, with N from 0 to 255, found 'server'",
            ),
            (
                "v=300",
                "line 1: expected v=N or MODULE=N, with N from 0 to 255, found 'v=300'",
            ),
            (
                "a\u{1b}[2J=1",
                "line 1: expected v=N or MODULE=N, with N from 0 to 255, found 'a\\u{1b}[2J=1'",
            ),
            ("net=1\n# x\nnet=2", "line 3: net stands twice"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), said, "{text}");
        }
    }
}
