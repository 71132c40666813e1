//! Reload and Reloaded: files are to be read again, and what came of it.

use crate::{record, words};

record! {
    /// `reload: {id, force}`; answered by [`Reloaded`].
    pub struct Reload {
        /// The sender's number for it, given back in the answer.
        id: u64 as "id",
        /// Whether a configuration from the file is taken although a newer one was set by command.
        force: bool as "force" unless empty,
    }
}

record! {
    /// `reloaded: {id, state, by, file, line, reason}`: the answer to Reload, and an event where anybody asked.
    pub struct Reloaded {
        /// The number of what this answers; 0 in an event.
        id: u64 as "id" unless empty,
        /// What came of it.
        state: ReloadState as "state",
        /// Who asked: `signal`, `command`, `files` where one has changed.
        by: String as "by",
        /// The file with the mistake, where there is one.
        file: String as "file" unless empty,
        /// The line of the mistake, from 1, where there is one.
        line: Option<i64> as "line" unless empty,
        /// What the mistake is.
        reason: String as "reason" unless empty,
    }
}

words! {
    /// What came of a reload.
    pub enum ReloadState {
        /// All files were read, and what is in them is in force.
        Taken = "taken",
        /// There is a mistake in one, and all stays as it was.
        Refused = "refused",
    }
}
