//! `--cpuprofile`: where the daemon spends its time, as a file that pprof reads.

mod format;

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use prost::Message as _;

/// Samples a second, as Go's profiler.
const FREQUENCY_HZ: i32 = 100;

/// A profile that is to be taken, or being taken.
pub struct Profile {
    path: PathBuf,
    file: File,
    sampler: Option<JoinHandle<io::Result<ProfilerGuard<'static>>>>,
}

impl Profile {
    /// Makes the file at once, so that a bad path is known before anything runs.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::create(path)?,
            path: path.to_owned(),
            sampler: None,
        })
    }

    /// Begins to take samples, beside everything else: the profiler reads the program's debugging information first, which
    /// takes seconds.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(&mut self) -> io::Result<()> {
        let sampler = thread::Builder::new().name("profile".to_owned());
        self.sampler = Some(sampler.spawn(sample)?);
        Ok(())
    }

    /// Writes what was sampled, if anything was.
    ///
    /// # Errors
    /// The profiler could not be started, or the profile cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(sampler) = self.sampler.take() else {
            return Ok(());
        };
        let panicked = |_| io::Error::other("the profiler has panicked");
        let guard = sampler.join().map_err(panicked)??;
        let report = guard.report().build().map_err(io::Error::other)?;
        let profile = format::Profile::new(&report);
        self.file.write_all(&profile.encode_to_vec())?;
        self.file.sync_all()?;
        tracing::info!(
            event = "profile_written",
            "CPU profile written to {}",
            self.path.display()
        );
        Ok(())
    }
}

fn sample() -> io::Result<ProfilerGuard<'static>> {
    let guard = ProfilerGuardBuilder::default()
        .frequency(FREQUENCY_HZ)
        .blocklist(&["libc", "libgcc", "pthread", "vdso"])
        .build()
        .map_err(io::Error::other)?;
    tracing::info!(event = "profile_begun", "CPU profile is taken from now on");
    Ok(guard)
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
