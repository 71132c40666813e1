//! The private directory of a cluster on one machine.

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use proto_frames::Uuid;

/// Readable by its owner alone: it holds private keys.
const PRIVATE: u32 = 0o700;

/// A directory; removed in the end unless it was asked for by name.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Made here and removed when this is dropped.
    is_throw_away: bool,
}

impl Directory {
    /// The directory asked for, or a new one among the temporary files.
    ///
    /// The directory asked for may exist. One among the temporary files has a random name.
    pub(super) fn open(asked: Option<PathBuf>) -> io::Result<Self> {
        let is_throw_away = asked.is_none();
        let path = asked.unwrap_or_else(|| {
            std::env::temp_dir().join(format!("ciao-dev-{}", Uuid::new_v4().simple()))
        });
        // A throw-away directory must be new: another user may have made one of that name.
        DirBuilder::new()
            .mode(PRIVATE)
            .recursive(!is_throw_away)
            .create(&path)?;
        Ok(Self {
            path: std::path::absolute(path)?,
            is_throw_away,
        })
    }

    /// Where certificates and keys are.
    pub(super) fn certificates(&self) -> PathBuf {
        self.path.join("certs")
    }

    /// Where logs are.
    pub(super) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The state directory of the scheduler.
    pub(super) fn scheduler(&self) -> PathBuf {
        self.path.join("scheduler")
    }

    /// Where the scheduler keeps images.
    pub(super) fn images(&self) -> PathBuf {
        self.path.join("images")
    }

    /// The state directory of a launcher.
    pub(super) fn node(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The directory itself.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_throw_away
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            let path = self.path.display();
            // With standard error gone the failure cannot be reported.
            let _ = writeln!(
                io::stderr(),
                "ciao-scheduler: cannot remove {path}: {error}"
            );
        }
    }
}
