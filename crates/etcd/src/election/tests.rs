//! The election against a model of etcd that loses, delays and doubles, with schedulers that are stopped, restarted and
//! cut off, from a seed: never two that may send at the same time, terms ascend, and one leads once etcd answers.

mod world;

use std::time::Duration;

use super::{Answer, Call, Election, LeaderKey, Output, Term, Why};
use world::{Found, Settings, World};

const TTL: Duration = Duration::from_secs(3);

/// Seeds tried; `ELECTION_SEEDS` for more.
fn seeds() -> std::ops::Range<u64> {
    let count = std::env::var("ELECTION_SEEDS");
    0..count.ok().and_then(|it| it.parse().ok()).unwrap_or(500)
}

/// As the world is in earnest.
fn settings() -> Settings {
    Settings {
        ttl: TTL,
        lease: TTL,
        schedulers: 3,
    }
}

#[test]
fn two_never_send_at_the_same_time_and_one_leads_in_the_end() {
    let mut leaders = 0;
    let mut pauses = 0;
    for seed in seeds() {
        let found = World::new(seed, settings()).run();
        let found = found.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        leaders += found.leaders;
        pauses += found.pauses;
    }
    // The faults reach what they are for.
    let count = seeds().end;
    assert!(leaders > count * 3, "{leaders} leaders");
    assert!(pauses > count, "{pauses} pauses");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| World::new(seed, settings()).run();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// That the model can find the fault: here etcd ends leases sooner than schedulers believe.
#[test]
fn a_fence_that_outlasts_the_lease_is_found() {
    let short = Settings {
        lease: TTL / 2,
        ..settings()
    };
    let finds = |seed| World::new(seed, short).run();
    assert!((0..200).any(|seed| finds(seed).is_err()));
}

#[test]
fn without_faults_one_leads_and_goes_on() {
    let found = World::calm(3, settings()).run();
    let expected = Found {
        leaders: 1,
        pauses: 0,
        ..found.clone().unwrap()
    };
    assert_eq!(found, Ok(expected));
}

/// An election that leads since second 10, with lease 7 and this term.
fn leader() -> (Election, Term) {
    let at = Duration::from_secs(10);
    let mut election = Election::new(TTL, at);
    answer(&mut election, at, |call| match call {
        Call::Grant => Answer::Granted(7),
        _ => Answer::Key(None, 0),
    });
    let term = Term {
        generation: 0,
        create_revision: 42,
    };
    answer(&mut election, at, |call| match call {
        Call::Campaign(7) => Answer::Won(term),
        _ => Answer::Key(None, 0),
    });
    assert_eq!(election.term(), Some(term));
    (election, term)
}

/// Answers all calls that are put out; the other outputs.
fn answer(election: &mut Election, now: Duration, by: impl Fn(Call) -> Answer) -> Vec<Output> {
    let mut others = Vec::new();
    let mut calls = Vec::new();
    while let Some(output) = election.poll_output() {
        match output {
            Output::Call(number, call) => calls.push((number, call)),
            other => others.push(other),
        }
    }
    for (number, call) in calls {
        election.answered(now, number, by(call));
    }
    others
}

fn key(create_revision: i64) -> LeaderKey {
    LeaderKey {
        create_revision,
        lease: 7,
        value: Vec::new(),
    }
}

fn alive(call: Call, create_revision: i64) -> Answer {
    match call {
        Call::KeepAlive(_) => Answer::Alive,
        _ => Answer::Key(Some(key(create_revision)), 0),
    }
}

#[test]
fn a_leader_pauses_at_two_thirds_of_its_ttl_and_goes_on_once_its_key_is_read_again() {
    let (mut election, term) = leader();
    let ms = |ms| Duration::from_secs(10) + Duration::from_millis(ms);
    answer(&mut election, ms(0), |_| Answer::Unknown);
    assert_eq!(election.sends_until(), Some(ms(2000)));
    election.tick(ms(1999));
    assert_eq!(answer(&mut election, ms(1999), |_| Answer::Unknown), []);
    election.tick(ms(2000));
    assert_eq!(
        answer(&mut election, ms(2000), |_| Answer::Unknown),
        [Output::Pauses]
    );
    election.tick(ms(4000));
    // The fence counts from when the calls were sent.
    answer(&mut election, ms(4300), |call| alive(call, 42));
    assert_eq!(
        answer(&mut election, ms(4300), |_| Answer::Unknown),
        [Output::GoesOn]
    );
    assert_eq!(election.sends_until(), Some(ms(6000)));
    assert_eq!(election.term(), Some(term));
}

#[test]
fn a_read_alone_or_a_keep_alive_alone_moves_no_fence() {
    for is_read in [true, false] {
        let (mut election, _) = leader();
        let at = Duration::from_secs(11);
        election.tick(at);
        answer(&mut election, at, |call| match (call, is_read) {
            (Call::Read, true) | (Call::KeepAlive(_), false) => alive(call, 42),
            _ => Answer::Unknown,
        });
        assert_eq!(election.sends_until(), Some(Duration::from_secs(12)));
    }
}

#[test]
fn a_leader_steps_down_on_evidence() {
    let at = Duration::from_secs(11);
    type Evidence = fn(&mut Election, Duration);
    let cases: [(Evidence, Why); 6] = [
        (|it, at| it.changed(at, None, 43), Why::KeyGone),
        (
            |it, at| it.changed(at, Some(key(44)), 44),
            Why::AnotherLeads,
        ),
        (
            |it, at| {
                it.tick(at);
                answer(it, at, |call| match call {
                    Call::Read => Answer::Key(Some(key(42)), 1),
                    _ => Answer::Unknown,
                });
            },
            Why::NewGeneration,
        ),
        (Election::refused, Why::WriteRefused),
        (Election::resign, Why::Requested),
        (
            |it, at| {
                it.tick(at);
                answer(it, at, |call| match call {
                    Call::KeepAlive(_) => Answer::NoSuchLease,
                    _ => Answer::Unknown,
                });
            },
            Why::LeaseEnded,
        ),
    ];
    for (evidence, why) in cases {
        let (mut election, _) = leader();
        answer(&mut election, at, |_| Answer::Unknown);
        evidence(&mut election, at);
        assert_eq!(election.sends_until(), None);
        let outputs = answer(&mut election, at, |_| Answer::Unknown);
        assert_eq!(outputs, [Output::StepsDown(why)]);
        assert_eq!(election.next_due(), None);
    }
}

#[test]
fn what_is_older_than_the_term_is_no_evidence() {
    let (mut election, term) = leader();
    election.changed(Duration::from_secs(11), None, 41);
    assert_eq!(election.term(), Some(term));
}

#[test]
fn a_leader_without_etcd_steps_down_after_its_ttl_and_five_seconds() {
    let (mut election, _) = leader();
    let mut now = Duration::from_secs(10);
    let mut outputs = Vec::new();
    while let Some(due) = election.next_due() {
        now = due;
        election.tick(now);
        outputs.extend(answer(&mut election, now, |_| Answer::Unknown));
    }
    assert_eq!(now, Duration::from_secs(18));
    let last = Output::StepsDown(Why::Silence(Duration::from_secs(8)));
    assert_eq!(outputs.last(), Some(&last));
}

#[test]
fn a_process_that_was_stopped_learns_at_once_that_it_may_not_send() {
    let (mut election, _) = leader();
    let at = Duration::from_secs(60);
    assert!(election.sends_until() < Some(at));
    election.tick(at);
    assert_eq!(election.sends_until(), None);
}
