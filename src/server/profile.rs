//! `--cpuprofile`: where the daemon spends its time, as a file that pprof reads. The profiler is built in with the feature
//! `cpuprofile`, which packages have; without it the flag is taken, and a warning says what it needs.

#[cfg(feature = "cpuprofile")]
mod format;
#[cfg(feature = "cpuprofile")]
mod sampler;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why there will be no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The program has no profiler.
    #[error(
        "this program is built without the feature 'cpuprofile'; build it with 'cargo build --release --features cpuprofile', \
         or use the packaged one"
    )]
    NotBuilt,
    /// The file cannot be made.
    #[error("cannot write {path}: {error}; name a file in a directory that can be written", path = crate::printable::Printable::new(.path.display()))]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// A profile that is to be taken, or being taken.
#[derive(Debug)]
pub struct Profile {
    #[cfg_attr(
        not(feature = "cpuprofile"),
        expect(dead_code, reason = "none is made without the profiler")
    )]
    path: PathBuf,
    #[cfg_attr(
        not(feature = "cpuprofile"),
        expect(dead_code, reason = "none is made without the profiler")
    )]
    file: File,
    #[cfg(feature = "cpuprofile")]
    sampler: Option<sampler::Sampler>,
}

impl Profile {
    /// Makes the file at once, so that a bad path is known before anything runs.
    ///
    /// # Errors
    /// The file cannot be made, or the program has no profiler; nothing is made then.
    pub fn create(path: &Path) -> Result<Self, ProfileError> {
        if !cfg!(feature = "cpuprofile") {
            return Err(ProfileError::NotBuilt);
        }
        let path = path.to_owned();
        match File::create(&path) {
            Ok(file) => Ok(Self {
                path,
                file,
                #[cfg(feature = "cpuprofile")]
                sampler: None,
            }),
            Err(error) => Err(ProfileError::File { path, error }),
        }
    }
}

/// Without the profiler there is no profile to begin or to finish.
#[cfg(not(feature = "cpuprofile"))]
impl Profile {
    /// Begins to take samples.
    ///
    /// # Errors
    /// There is no profiler.
    pub fn begin(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Writes what was sampled.
    ///
    /// # Errors
    /// None: nothing was.
    pub fn finish(self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_profiler_says_which_feature_it_needs_and_where_it_is() {
        let said = ProfileError::NotBuilt.to_string();
        for part in ["'cpuprofile'", "--features cpuprofile", "packaged"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn a_file_is_made_only_where_there_is_a_profiler() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cpu.pprof");
        let made = Profile::create(&path);
        assert_eq!(made.is_ok(), cfg!(feature = "cpuprofile"));
        assert_eq!(path.exists(), made.is_ok());
        let missing = Profile::create(&directory.path().join("none/cpu.pprof"));
        assert!(missing.is_err());
    }
}
