//! The clock of one process, which can be set at any time: what the system calls the time of day. Clocks that count since
//! the machine was started go on as they are, as they do on a machine whose clock is set.

use std::path::PathBuf;

use tokio::process::Command;

/// Where Debian and its relatives have the library, below `/usr/lib`.
const LIBRARY: &str = "faketime/libfaketime.so.1";

/// How far all of these clocks are ahead of the machine's before one is set, in seconds: certificates, which are made when
/// a test begins, are valid also by one that is set an hour back.
const AHEAD: i32 = 7200;

/// Whether there is no such library. It has to be there where etcd is required.
pub(crate) fn is_missing() -> bool {
    if library().is_some() {
        return false;
    }
    let is_required = std::env::var_os("CIAO_REQUIRE_ETCD").is_some_and(|value| value == "1");
    assert!(!is_required, "libfaketime is required");
    eprintln!("skipped: libfaketime is not installed");
    true
}

fn library() -> Option<PathBuf> {
    let usual = PathBuf::from("/usr/lib");
    let directories = std::fs::read_dir(&usual).ok()?;
    let directories = directories.filter_map(|it| Some(it.ok()?.path()));
    let mut places = directories.chain([usual]).map(|it| it.join(LIBRARY));
    places.find(|it| it.exists())
}

/// A clock.
pub(crate) struct Clock {
    /// What says how far it is from the machine's.
    file: PathBuf,
}

impl Clock {
    /// The one that this file sets.
    pub(crate) fn at(file: PathBuf) -> Self {
        Self { file }
    }

    /// Sets it so many seconds before or after the right time.
    pub(crate) fn set(&self, seconds: i32) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("{:+}s\n", AHEAD + seconds)).unwrap();
        std::fs::rename(next, &self.file).unwrap();
    }

    /// Gives it to a process, and sets it right unless it was set before.
    pub(crate) fn of(&self, command: &mut Command) {
        if !self.file.exists() {
            self.set(0);
        }
        command.env("LD_PRELOAD", library().unwrap());
        command.env("FAKETIME_TIMESTAMP_FILE", &self.file);
        // Read at each look at the clock.
        command.env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}
