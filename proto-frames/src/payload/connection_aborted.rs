//! ConnectionAborted: a connection is refused for good, and why.

use sched_model::record;

use super::document::payload;
use super::guard::SMALL;

record! {
    /// `connection_aborted: {detail}`: why, and what to do. The original sends ConnectionAborted without a payload; this one
    /// goes to native peers alone (added by this project).
    pub struct ConnectionAborted {
        /// For people.
        detail: String as "detail",
    }
}

payload!(ConnectionAborted under "connection_aborted", SMALL);
