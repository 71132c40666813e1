//! `--cpuprofile`: where the daemon spends its time, as a file that pprof reads.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pprof::protos::Message as _;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

/// Samples a second, as Go's profiler.
const FREQUENCY_HZ: i32 = 100;

/// A profile being taken.
pub struct Profile {
    guard: ProfilerGuard<'static>,
    path: PathBuf,
    file: File,
}

impl Profile {
    /// Starts taking samples; the file is made at once, so that a bad path is known before anything runs.
    ///
    /// # Errors
    /// The file cannot be made, or the profiler not started.
    pub fn start(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let guard = ProfilerGuardBuilder::default()
            .frequency(FREQUENCY_HZ)
            .blocklist(&["libc", "libgcc", "pthread", "vdso"])
            .build()
            .map_err(io::Error::other)?;
        Ok(Self {
            guard,
            path: path.to_owned(),
            file,
        })
    }

    /// Writes what was sampled.
    ///
    /// # Errors
    /// The profile cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        let report = self.guard.report().build().map_err(io::Error::other)?;
        let mut profile = report.pprof().map_err(io::Error::other)?;
        for location in &mut profile.location {
            // Without one of its own, pprof takes all of them for the same place when it is also given the program.
            location.address = location.id;
        }
        self.file
            .write_all(&profile.write_to_bytes().map_err(io::Error::other)?)?;
        self.file.sync_all()?;
        tracing::info!("CPU profile written to {}", self.path.display());
        Ok(())
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
