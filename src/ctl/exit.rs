//! What `ciaoctl` tells its caller by its exit code: one documented table, shown by `ciaoctl --help`.
//!
//! `From<Exit>` makes the process's exit code. Which error has which code is decided in `commands::CommandError`;
//! commands that end without an error return an [`Exit`] of their own.

use std::process::ExitCode;

/// How a command ended, as scripts see it. The numbers are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    ///
    /// Also for a reader that has closed the pipe.
    Done = 0,
    /// The cluster said no: `StartFailure`, `DeleteFailure`, `CommandFailure`, a refused command, a drain that left
    /// something behind.
    Refused = 1,
    /// The command line or a START file cannot be used.
    Usage = 2,
    /// No usable connection: no process listens, a certificate is not accepted, the connection was lost.
    Connection = 3,
    /// An answer, or what is waited for, did not come in time; or a move or drain ran out of its own.
    Timeout = 4,
    /// No node or instance has that name, or several have.
    NotFound = 5,
    /// With `--wait`: a workload ended with a non-zero exit status.
    Workload = 6,
    /// The output could not be written (a reader that stops reading is no failure).
    Output = 7,
    /// With `--wait`: a workload ended, or is gone, and its exit status is not known. It may have succeeded or failed.
    Unknown = 8,
    /// `status`: something is not well.
    Unwell = 9,
    /// Ctrl-C; the number that shells have for a program that SIGINT has ended.
    Interrupted = 130,
}

impl Exit {
    /// Every exit code with what it means.
    pub const TABLE: [(Self, &'static str); 11] = [
        (Self::Done, "everything asked for was done"),
        (
            Self::Refused,
            "the cluster said no (StartFailure, DeleteFailure, CommandFailure, refused command, incomplete drain)",
        ),
        (
            Self::Usage,
            "the command line or a START file cannot be used",
        ),
        (
            Self::Connection,
            "cannot connect, not accepted, or the connection was lost",
        ),
        (
            Self::Timeout,
            "an answer, or what is waited for, did not come in time",
        ),
        (
            Self::NotFound,
            "no node or instance has that name, or several have",
        ),
        (
            Self::Workload,
            "with --wait: a workload ended with a non-zero exit status",
        ),
        (Self::Output, "the output could not be written"),
        (
            Self::Unknown,
            "with --wait: how a workload ended is unknown; it may have succeeded or failed",
        ),
        (Self::Unwell, "status: something is not well; it says what"),
        (
            Self::Interrupted,
            "interrupted (Ctrl-C); what goes on all the same is told",
        ),
    ];

    /// The number.
    ///
    /// What `$?` has in a shell.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The exit code of a command that did several things which ended as `self` and `other`: the one that a caller has
    /// to act on first (connection, timeout, usage, name, refusal, unknown outcome, workload, in this order).
    ///
    /// Order of precedence for several instances or START files. [`Exit::Done`] loses against everything.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        const ORDER: [Exit; 10] = [
            Exit::Interrupted,
            Exit::Output,
            Exit::Connection,
            Exit::Timeout,
            Exit::Usage,
            Exit::NotFound,
            Exit::Refused,
            Exit::Unknown,
            Exit::Workload,
            Exit::Unwell,
        ];
        ORDER
            .into_iter()
            .find(|exit| [self, other].contains(exit))
            .unwrap_or(Self::Done)
    }

    /// [`Exit::TABLE`] as the end of the help text.
    #[must_use]
    pub fn help() -> String {
        let lines = Self::TABLE.map(|(exit, meaning)| format!("  {}  {meaning}", exit.code()));
        format!("Exit codes:\n{}", lines.join("\n"))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn the_table_names_every_code_once_and_in_order() {
        let codes: Vec<u8> = Exit::TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 130]);
    }

    #[test]
    fn the_more_urgent_of_two_exit_codes_wins() {
        assert_eq!(Exit::Done.and(Exit::Done), Exit::Done);
        assert_eq!(Exit::Workload.and(Exit::Refused), Exit::Refused);
        assert_eq!(Exit::Refused.and(Exit::Timeout), Exit::Timeout);
        assert_eq!(Exit::Timeout.and(Exit::Connection), Exit::Connection);
        assert_eq!(Exit::Workload.and(Exit::Done), Exit::Workload);
        assert_eq!(Exit::Workload.and(Exit::Unknown), Exit::Unknown);
    }
}
