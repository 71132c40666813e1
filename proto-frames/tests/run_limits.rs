//! `time_limit`, `stop`, `restart`, `retry` and `after` of `start.scheduling`: in which words what makes no sense is refused.

use proto_frames::payload::{Payload, PayloadErrorKind, Start, peek};

#[test]
fn what_a_launcher_is_to_do_while_it_runs_is_checked() {
    for (lines, words) in [
        (
            "time_limit: 0",
            "time_limit, line 4 column 17: shorter than 1s",
        ),
        (
            "time_limit: 8761h",
            "time_limit, line 4 column 17: longer than 8760h",
        ),
        (
            "stop: {signal: KILL}",
            "stop.signal, line 4 column 20: `KILL` is none of TERM, INT, HUP, QUIT, USR1, USR2, WINCH",
        ),
        (
            "stop: {grace: 2h}",
            "stop.grace, line 4 column 19: longer than 1h",
        ),
        (
            "restart: {max: 3}",
            "restart.when, line 4 column 14: missing or empty",
        ),
        (
            "restart: {when: unless-stopped}",
            "restart.when, line 4 column 21: `unless-stopped` is none of on-failure, always, never",
        ),
        (
            "restart: {when: never, max: 3}",
            "restart, line 4 column 14: makes sense only with when: on-failure or when: always beside it",
        ),
        (
            "restart: {when: always, max: 101}",
            "restart.max, line 4 column 34: 101 is outside 1 to 100",
        ),
        (
            "restart: {when: always, window: 1h}",
            "restart.window, line 4 column 37: makes sense only with max",
        ),
        (
            "restart: {when: always, backoff: 10ms}",
            "restart.backoff, line 4 column 38: shorter than 100ms",
        ),
    ] {
        refused(lines, words);
    }
}

#[test]
fn what_is_to_follow_an_end_and_what_is_to_come_first_is_checked() {
    for (lines, words) in [
        (
            "retry: {max: 3}",
            "retry.on, line 4 column 12: missing or empty",
        ),
        (
            "retry: {on: [75], max: 101}",
            "retry.max, line 4 column 28: 101 is outside 1 to 100",
        ),
        (
            "on_node_loss: restart\n    retry: {on: [node_failure]}",
            "retry.on, line 5 column 17: not together with on_node_loss: restart, which is the same without a limit",
        ),
        (
            "after: [{end: ok}]",
            "after[0].instance, line 4 column 13: missing or empty",
        ),
        (
            "after: [{instance: a, end: never}]",
            "after[0].end, line 4 column 32: `never` is none of ok, any, failed",
        ),
    ] {
        refused(lines, words);
    }
}

/// These lines are refused in these words, by both readers, but not by a launcher.
fn refused(lines: &str, words: &str) {
    let text = format!("start:\n  instance_uuid: a\n  scheduling:\n    {lines}\n");
    let Err(error) = Start::decode(text.as_bytes()) else {
        panic!("{lines} is taken")
    };
    assert_eq!(error.to_string(), format!("start.scheduling.{words}"));
    assert_eq!(error.kind(), PayloadErrorKind::InvalidData);
    assert_eq!(peek::start(text.as_bytes()), Err(error));
    // The launcher that runs it leaves that to the scheduler.
    let placed = Start::decode_placed(text.as_bytes());
    assert!(placed.is_ok(), "{placed:?}");
}

#[test]
fn an_end_that_there_is_not_is_refused_with_those_that_there_are() {
    let text = "start:\n  instance_uuid: a\n  scheduling:\n    retry: {on: [75, 0]}\n";
    let error = Start::decode(text.as_bytes()).unwrap_err();
    let words = "retry.on[1], line 4 column 22: expected an exit status from 1 to 255, a range of these such as 100-120, \
                 signal or node_failure, found `0`";
    assert_eq!(error.to_string(), format!("start.scheduling.{words}"));
    assert_eq!(peek::start(text.as_bytes()), Err(error));
}
