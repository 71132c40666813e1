//! How a process ended, in words.
//!
//! For lines about instances that have ended. The number is the one that launchers send: an exit status from 0, or
//! minus the number of the signal.

/// Names of the signals that end programs, without `SIG`.
///
/// Linux numbers. Signals that do not end a process by default are not here.
const SIGNALS: [(u64, &str); 17] = [
    (1, "HUP"),
    (2, "INT"),
    (3, "QUIT"),
    (4, "ILL"),
    (5, "TRAP"),
    (6, "ABRT"),
    (7, "BUS"),
    (8, "FPE"),
    (9, "KILL"),
    (10, "USR1"),
    (11, "SEGV"),
    (12, "USR2"),
    (13, "PIPE"),
    (14, "ALRM"),
    (15, "TERM"),
    (24, "XCPU"),
    (31, "SYS"),
];

/// `exit status 3`, `killed by SIGKILL`, `exit status unknown`. A launcher tells a signal as its negative number.
///
/// A signal without a name in the table is shown by its number.
#[must_use]
pub fn exit_status(code: Option<i64>) -> String {
    let Some(code) = code else {
        return "exit status unknown".to_owned();
    };
    if code >= 0 {
        return format!("exit status {code}");
    }
    let signal = code.unsigned_abs();
    let name = SIGNALS.iter().find(|(number, _)| *number == signal);
    match name {
        Some((_, name)) => format!("killed by SIG{name}"),
        None => format!("killed by signal {signal}"),
    }
}

/// The same of an instance that has ended, which has no exit status if it was on no node then: it never ran, or waited
/// to run again.
#[must_use]
pub fn exit_of(code: Option<i64>, node: Option<&str>) -> String {
    let is_on_node = node.is_some_and(|node| !node.is_empty());
    match code {
        None if !is_on_node => "was not running".to_owned(),
        code => exit_status(code),
    }
}

/// The same of one that is known to have ended: `exited, status 7`, `killed by SIGKILL`, `exited, status unknown`.
///
/// `ciaoctl history` shows it as the detail of an end.
#[must_use]
pub fn how_it_exited(code: Option<i64>) -> String {
    let status = exit_status(code);
    match status.strip_prefix("exit ") {
        Some(status) => format!("exited, {status}"),
        None => status,
    }
}

#[cfg(test)]
mod tests {
    use super::exit_status;

    #[test]
    fn a_signal_has_its_name_and_what_is_unknown_says_so() {
        for (code, words) in [
            (Some(0), "exit status 0"),
            (Some(137), "exit status 137"),
            (Some(-9), "killed by SIGKILL"),
            (Some(-64), "killed by signal 64"),
            (Some(i64::MIN), "killed by signal 9223372036854775808"),
            (None, "exit status unknown"),
        ] {
            assert_eq!(exit_status(code), words);
        }
    }
}
