//! WATCH: which events an operator wants to be sent from now on (added by this project).

use sched_model::{Topic, record};

use super::document::payload;
use super::guard::SMALL;

record! {
    /// `watch: {topics: […]}`; an empty list ends it.
    pub struct Watch {
        /// The topics; those of an earlier WATCH no longer count.
        topics: Vec<Topic> as "topics",
    }
}

payload!(Watch under "watch", SMALL);
