//! Floods of lines: what is written, what is summed up when, and that no flood hides who came and went.

use std::net::Ipv4Addr;

use super::*;

const NODE: Who = Who::Peer(Uuid::from_u128(7));

fn peer(number: u128) -> Who {
    Who::Peer(Uuid::from_u128(number))
}

/// A log with a clock of its own.
struct Log {
    limiter: Limiter,
    now: Instant,
    written: Vec<String>,
}

impl Log {
    fn new() -> Self {
        Self {
            limiter: Limiter::default(),
            now: Instant::now(),
            written: Vec::new(),
        }
    }

    fn say(&mut self, class: Class, who: Who, line: &str) {
        let admission = self
            .limiter
            .admit(class, who, Weight::Warning, &line, self.now);
        let sums = admission.sums.into_iter().map(|sum| sum.text);
        self.written.extend(sums.chain(admission.line));
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    fn close(&mut self) {
        let sums = self.limiter.close();
        self.written.extend(sums.into_iter().map(|sum| sum.text));
    }

    fn lines_with(&self, text: &str) -> usize {
        let has = |line: &&String| line.contains(text);
        self.written.iter().filter(has).count()
    }
}

#[test]
fn a_disconnection_is_not_left_out_between_hundreds_of_dropped_claims() {
    let mut log = Log::new();
    for number in 0..600 {
        log.say(Class::Dropped, NODE, &format!("claim {number} dropped"));
    }
    log.say(Class::Cut, peer(9), "CONTROLLER 9: disconnected");
    log.say(Class::Left, peer(9), "CONTROLLER 9 left");
    log.say(Class::Master, peer(8), "controller 8 is master");
    for line in ["9: disconnected", "9 left", "8 is master"] {
        assert_eq!(log.lines_with(line), 1, "{line}");
    }
    assert_eq!(log.written.len(), MAX_LINES as usize + 3);
}

#[test]
fn what_repeats_is_summed_up_at_the_end_of_the_window_with_its_node_and_its_first_line() {
    let mut log = Log::new();
    for number in 0..332 {
        log.say(Class::Dropped, NODE, &format!("claim {number} dropped"));
    }
    assert_eq!(log.written.len(), 20);
    assert_eq!(log.limiter.due(), Some(log.now + WINDOW));
    log.advance(WINDOW);
    log.say(Class::Dropped, NODE, "a later one");
    let sum = format!("312 more claims dropped ({NODE}), the first: claim 20 dropped");
    assert_eq!(log.written[20..], [sum, "a later one".to_owned()]);
    assert_eq!(log.limiter.due(), None, "nothing is left to be said");
    log.close();
    assert_eq!(log.written.len(), 22);
}

#[test]
fn what_was_counted_when_the_daemon_stops_is_said_all_the_same() {
    let mut log = Log::new();
    for _ in 0..25 {
        log.say(Class::Failed, Who::NoPeer, "START x failed");
    }
    log.close();
    let last = log.written.last().unwrap();
    assert_eq!(last, "5 more STARTs failed, the first: START x failed");
    assert_eq!(log.limiter.close(), []);
}

#[test]
fn everybody_who_leaves_is_named_however_many_they_are() {
    const PEERS: u128 = 10_000;
    let mut log = Log::new();
    for number in 0..PEERS {
        log.say(Class::Left, peer(number), &format!("{} left", peer(number)));
    }
    assert_eq!(log.written.len(), MAX_VITAL_LINES as usize);
    log.close();
    for number in 0..PEERS {
        assert_eq!(log.lines_with(&peer(number).to_string()), 1, "{number}");
    }
    assert!(log.written.len() < 600, "{}", log.written.len());
    assert!(log.written.iter().all(|line| line.len() <= MAX_LINE_LEN));
}

#[test]
fn peers_that_come_and_go_as_fast_as_they_can_hide_nobody() {
    let mut log = Log::new();
    for _ in 0..50_000 {
        log.say(Class::Left, peer(1), "the attacker left");
        log.say(
            Class::Refused,
            Who::Address(Ipv4Addr::LOCALHOST.into()),
            "no",
        );
    }
    log.say(Class::Left, NODE, "the victim left");
    let rest = 50_000 - u64::from(MAX_VITAL_LINES);
    log.close();
    let said = format!(
        "{} more departures of peers: {} ({rest} times), {NODE}",
        rest + 1,
        peer(1)
    );
    assert_eq!(log.lines_with(&said), 1, "{:?}", log.written.last());
    assert_eq!(log.lines_with("127.0.0.1 (49900 times)"), 1);
    assert_eq!(log.written.len(), 2 * MAX_VITAL_LINES as usize + 2);
}

#[test]
fn what_is_remembered_is_bounded_and_still_counted() {
    let mut log = Log::new();
    let peers = MAX_NAMED as u128 + 2 * u128::from(MAX_VITAL_LINES);
    for number in 0..peers {
        log.say(Class::Left, peer(number), "left");
        log.say(Class::Malformed, peer(number), "unusable");
    }
    let kept = |class| log.limiter.classes[&class].sums.len();
    assert_eq!(
        (kept(Class::Left), kept(Class::Malformed)),
        (MAX_NAMED, MAX_SUMS)
    );
    log.close();
    assert_eq!(log.lines_with("and 100 of further peers"), 1);
    let further = peers - u128::from(MAX_LINES) - MAX_SUMS as u128;
    let said = format!("{further} more unusable payloads (further peers), the first: unusable");
    assert_eq!(log.lines_with(&said), 1);
}

#[test]
fn what_peers_send_cannot_forge_or_flood_a_line() {
    assert_eq!(one_line(&"a \u{e9} b"), "a \u{e9} b");
    assert_eq!(one_line(&"a\nb\u{1b}[1m\u{9b}"), "a\\nb\\u{1b}[1m\\u{9b}");
    let long = one_line(&"x".repeat(200_000));
    assert_eq!(long, "x".repeat(MAX_LINE_LEN) + "…");
    assert!(one_line(&"\n\u{e9}".repeat(200_000)).len() < MAX_LINE_LEN + 16);
}
