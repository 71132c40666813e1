//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Raises the soft limit of open files to the hard one, for each connection takes one. Best effort: without it, fewer
/// are accepted.
pub fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(
            event = "file_limit_not_raised",
            "cannot raise the limit of open files: {error}"
        );
    }
}
