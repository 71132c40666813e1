//! The profiler: it interrupts the process a hundred times a second of its processor time, and notes where it is.

use std::io::{self, Write as _};
use std::thread::{self, JoinHandle};

use pprof::{ProfilerGuard, ProfilerGuardBuilder};
use prost::Message as _;

use super::{Profile, format};

/// Samples a second, as Go's profiler.
const FREQUENCY_HZ: i32 = 100;

/// A profiler that has begun, or is about to.
pub(super) struct Sampler(JoinHandle<io::Result<ProfilerGuard<'static>>>);

impl Profile {
    /// Begins to take samples, beside everything else: the profiler reads the program's debugging information first, which
    /// takes seconds.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(&mut self) -> io::Result<()> {
        let thread = thread::Builder::new().name("profile".to_owned());
        self.sampler = Some(Sampler(thread.spawn(sample)?));
        Ok(())
    }

    /// Writes what was sampled, if anything was.
    ///
    /// # Errors
    /// The profiler could not be started, or the profile cannot be written.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(Sampler(thread)) = self.sampler.take() else {
            return Ok(());
        };
        let panicked = |_| io::Error::other("the profiler has panicked");
        let guard = thread.join().map_err(panicked)??;
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

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sampler")
    }
}
