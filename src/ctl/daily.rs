//! What is told a user at most once a day: a warning with every command is read by none.
//!
//! A file stands for each thing that was told, in `ciao/told` of `XDG_STATE_HOME`, or of `~/.local/state`: its name is a
//! digest, and the time of its change is when. Where none can be written, the thing is told each time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};

/// How long something counts as told.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether this is to be told now; if so, it counts as told from now on.
pub(super) fn is_due(what: &str) -> bool {
    place().is_none_or(|place| is_due_in(&place, what, SystemTime::now()))
}

/// `None` if neither variable is set. One that is not absolute counts for nothing, as the specification has it.
fn place() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| home.join(".local").join("state"));
    let state = state.or_else(home).filter(|path| path.is_absolute())?;
    Some(state.join("ciao").join("told"))
}

fn is_due_in(place: &Path, what: &str, now: SystemTime) -> bool {
    let digest = digest(&SHA256, what.as_bytes());
    let name: String = digest
        .as_ref()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    let path = place.join(name);
    let told = fs::metadata(&path).and_then(|file| file.modified());
    if told.is_ok_and(|at| is_within_a_day(at, now)) {
        return false;
    }
    // What cannot be noted is told again.
    let _ = note(place, &path, now);
    true
}

/// A time in the future is of a clock that was wrong.
fn is_within_a_day(at: SystemTime, now: SystemTime) -> bool {
    now.duration_since(at).is_ok_and(|age| age < DAY)
}

/// Notes that something was told, and forgets what counts no more.
fn note(place: &Path, path: &Path, now: SystemTime) -> io::Result<()> {
    fs::create_dir_all(place)?;
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        if !is_within_a_day(entry.metadata()?.modified()?, now) {
            fs::remove_file(entry.path())?;
        }
    }
    File::create(path)?.set_modified(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_told_once_a_day_and_another_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("a").join("b");
        let now = SystemTime::now();
        assert!(is_due_in(&place, "key.pem", now));
        assert!(!is_due_in(&place, "key.pem", now + DAY / 2));
        assert!(is_due_in(&place, "other.pem", now + DAY / 2));
        assert!(is_due_in(&place, "key.pem", now + DAY));
        assert!(is_due_in(&place, "key.pem", now), "told in the future");
        assert_eq!(
            fs::read_dir(&place).unwrap().count(),
            1,
            "and the old forgotten"
        );
    }

    #[test]
    fn what_cannot_be_noted_is_told_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        for _ in 0..2 {
            assert!(is_due_in(&file, "key.pem", SystemTime::now()));
        }
    }
}
