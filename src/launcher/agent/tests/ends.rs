//! Ends are told until they are on record, whatever happens to connections, launchers and schedulers in between.

use proto_frames::payload::{
    EndFacts, EndKind, EndWhy, EndsRecorded, InstanceDeleted, InstanceStopped,
};

use super::super::{MAX_ENDS_PER_STATS, MAX_UNRECORDED_ENDS, Why};
use super::*;

/// A node whose scheduler records ends.
pub(super) fn recorded() -> World {
    let mut world = World::disconnected();
    world.records_ends = true;
    world.connect();
    world.sent.clear();
    world
}

impl World {
    /// The ends that a report made now tells: which instance, how, with which code.
    fn ended(&mut self) -> Vec<(String, EndKind, Option<i64>)> {
        let ended = self.stats().ended.into_iter();
        ended
            .map(|end| (end.instance_uuid, end.how, end.exit_code))
            .collect()
    }

    /// The scheduler has everything on record that the latest report told.
    pub(super) fn record(&mut self) {
        let stats = self.stats();
        let told = stats.ended.last().map(|end| end.seq);
        self.record_as(
            &stats.ends_incarnation,
            told.or(stats.ends_seq).unwrap_or(0),
        );
    }

    fn record_as(&mut self, incarnation: &str, seq: u64) {
        let recorded = EndsRecorded {
            incarnation: incarnation.to_owned(),
            seq,
        };
        self.handle(Input::Command(Command::EndsRecorded(Ok(recorded))));
    }

    fn reconnect(&mut self) {
        self.handle(Input::Disconnected);
        self.sent.clear();
        self.connect();
    }

    /// So many ends, of a few instances that run again and again, before anything is reported.
    fn many_ends(&mut self, count: usize) {
        for number in 0..count {
            let id = format!("{:02}", number % 64);
            self.start(process(&id, 0));
            self.handle(Input::Started {
                instance: id.clone(),
            });
            self.exits(&id, 0);
        }
        self.forget_what_happened();
    }

    /// The ends in the only report since the last look.
    fn told(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let stats = sent.into_iter().find_map(|message| match message {
            Message::Stats(stats) => Some(stats),
            _ => None,
        });
        let ended = stats.unwrap().ended.into_iter();
        ended.map(|end| end.instance_uuid).collect()
    }
}

fn exited(id: &str, code: i64) -> (String, EndKind, Option<i64>) {
    (id.to_owned(), EndKind::Exited, Some(code))
}

#[test]
fn images_are_fetched_and_output_is_read_where_ends_are_recorded() {
    let mut world = World::connected();
    let capabilities = world.stats().capabilities;
    assert!(
        !capabilities.iter().any(|it| it.ends_with("images")),
        "{capabilities:?}"
    );
    let capabilities = recorded().stats().capabilities;
    for name in ["ends", "output", "images", "more-images"] {
        assert!(capabilities.iter().any(|it| it == name), "{capabilities:?}");
    }
}

#[test]
fn an_end_is_told_in_every_report_until_it_is_on_record() {
    let mut world = recorded();
    world.running("a", 1);
    world.exits("a", 3);
    let Message::InstanceStopped(InstanceStopped { seq: Some(1), .. }) = world.answer() else {
        panic!()
    };
    for _ in 0..5 {
        assert_eq!(world.ended(), [exited("a", 3)]);
    }
    world.reconnect();
    assert_eq!(
        world.told(),
        ["a"],
        "beside what runs, and in no other frame"
    );
    world.restart(|_| ProcessFate::Ended(None));
    world.connect();
    assert_eq!(world.told(), ["a"]);
    assert_eq!(world.ended(), [exited("a", 3)]);
    world.record();
    assert_eq!(world.ended(), []);
    world.restart(|_| ProcessFate::Ended(None));
    world.connect();
    assert_eq!(world.told(), [""; 0]);
}

#[test]
fn what_a_run_used_is_told_with_its_end_in_every_frame_and_after_a_restart() {
    let ran = Ran {
        counted_ms: None,
        time_used_ms: None,
        ran_ms: Some(1500),
        why: Some(Why::TimeLimit),
        peak_kib: Some(2048),
        cpu_ms: Some(30),
        output_bytes: Some(7),
        restarts: 2,
    };
    let told = Some(Box::new(EndFacts {
        time_used_ms: None,
        ran_ms: Some(1500),
        why: EndWhy::TimeLimit,
        peak_kib: Some(2048),
        cpu_ms: Some(30),
        output_bytes: Some(7),
        restarts: 2,
        program: String::new(),
        labels: BTreeMap::new(),
    }));
    let mut world = recorded();
    world.running("a", 1);
    world.running("b", 1);
    world.handle(Input::Exited {
        instance: "a".to_owned(),
        code: Some(0),
        by_itself: true,
        ran,
    });
    let Message::InstanceStopped(stopped) = world.answer() else {
        panic!()
    };
    assert_eq!(stopped.facts, told);
    assert_eq!(world.stats().ended[0].facts, told);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(world.stats().ended[0].facts, told);
    world.exits("b", 0);
    let ended = world.stats().ended;
    assert_eq!(ended[1].facts, None, "those of no other run");
}

#[test]
fn what_is_gone_is_forgotten_only_once_its_end_is_on_record() {
    let mut world = recorded();
    world.running("a", 1);
    world.delete("a", false);
    world.sent.clear();
    world.exits("a", 0);
    let Message::InstanceDeleted(InstanceDeleted { seq: Some(1), .. }) = world.answer() else {
        panic!()
    };
    world.advance(INTERVAL * 100);
    assert!(world.records.contains_key("a"));
    world.record();
    assert!(world.records.is_empty());
}

#[test]
fn numbers_go_on_after_a_restart_and_those_of_others_acknowledge_nothing() {
    let mut world = recorded();
    world.running("a", 1);
    world.running("b", 1);
    world.exits("a", 0);
    let first = world.stats();
    assert_eq!(first.ends_seq, Some(1));
    world.record_as(&Uuid::from_u128(9).to_string(), 1);
    world.record_as(&first.ends_incarnation, 0);
    assert_eq!(world.ended(), [exited("a", 0)]);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    world.exits("b", 1);
    let second = world.stats();
    assert_eq!(second.ends_incarnation, first.ends_incarnation);
    let numbers: Vec<u64> = second.ended.iter().map(|end| end.seq).collect();
    assert_eq!(numbers, [1, (1 << 32) + 1]);
    // What the scheduler says of the earlier one holds, though it was told by another launcher.
    world.record_as(&first.ends_incarnation, 1);
    assert_eq!(world.ended(), [exited("b", 1)]);
}

#[test]
fn an_end_in_a_frame_of_its_own_says_that_all_before_it_were_told() {
    let mut world = recorded();
    for id in ["a", "b", "c"] {
        world.running(id, 1);
    }
    world.exits("a", 0);
    world.handle(Input::Disconnected);
    world.sent.clear();
    let sample = Input::Connected {
        configuration: Bytes::new(),
        records_ends: true,
    };
    world.agent.handle(world.now, sample);
    // The machine has not been looked at, so that nothing is reported yet.
    let looked = std::iter::from_fn(|| world.agent.poll_action()).collect::<Vec<_>>();
    assert_eq!(looked, [Action::Machine(AgentAction::Sample)]);
    world.exits("b", 0);
    assert_eq!(
        world.kinds(),
        [],
        "it would go before the one that was lost"
    );
    let (host, usage) = (world.host.clone(), world.usage.clone());
    world.handle(Input::Sampled { host, usage });
    assert_eq!(world.told(), ["a", "b"]);
    world.exits("c", 0);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
}

#[test]
fn an_instance_that_runs_again_is_listed_beside_its_earlier_end() {
    let mut world = recorded();
    world.running("a", 1);
    world.exits("a", 3);
    world.running("a", 1);
    let stats = world.stats();
    assert_eq!(stats.instances.len(), 1);
    assert_eq!(stats.ended.len(), 1);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(world.ended(), [exited("a", 3)]);
    world.exits("a", 4);
    assert_eq!(world.ended(), [exited("a", 3), exited("a", 4)]);
    world.record();
    assert_eq!(world.ended(), []);
    assert!(world.records.contains_key("a"), "kept for a DELETE to come");
}

#[test]
fn a_start_that_failed_is_told_with_its_reason_until_that_is_on_record() {
    let mut world = recorded();
    world.start(process("a", 1));
    world.handle(Input::StartFailed {
        instance: "a".to_owned(),
        fault: LaunchFault::Image,
        detail: "é".repeat(1000),
    });
    let Message::StartFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.seq, Some(1));
    world.reconnect();
    world.restart(|_| ProcessFate::NeverRan);
    world.connect();
    let end = world.stats().ended.remove(0);
    assert_eq!(end.how, EndKind::Failed);
    assert_eq!(end.reason, StartFailureReason::ImageFailure);
    assert!(end.detail.starts_with('é') && end.detail.len() <= 256);
    world.record();
    assert!(world.records.is_empty());
}

#[test]
fn a_start_that_its_launcher_did_not_come_to_has_failed_so_that_it_may_be_tried_elsewhere() {
    let mut world = recorded();
    world.start(process("a", 1));
    world.restart(|_| ProcessFate::NeverRan);
    world.connect();
    let end = world.stats().ended.remove(0);
    assert_eq!(end.how, EndKind::Failed);
    assert_eq!(end.reason, StartFailureReason::LaunchFailure);
    assert_eq!(end.detail, "it had not begun when its launcher ended");
}

#[test]
fn one_report_tells_so_many_ends_and_the_next_the_others() {
    let mut world = recorded();
    world.many_ends(MAX_ENDS_PER_STATS + 1);
    world.reconnect();
    assert_eq!(world.told().len(), MAX_ENDS_PER_STATS);
    world.running("last", 0);
    world.exits("last", 0);
    assert!(
        world
            .kinds()
            .iter()
            .all(|kind| *kind != Kind::INSTANCE_STOPPED),
        "others come before it"
    );
    world.record();
    world.advance(MIN_REPORT_GAP);
    assert_eq!(world.told(), ["00", "last"], "at once");
}

#[test]
fn a_node_whose_ends_nobody_records_takes_no_more_work_and_drops_none() {
    let mut world = recorded();
    world.many_ends(MAX_UNRECORDED_ENDS);
    world.start(process("more", 0));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    assert_eq!(world.stats().status, "FULL");
    let mut told = 0;
    while world.agent.unrecorded_ends() > 0 {
        let rows = world.stats().ended;
        told += rows.len();
        let seq = rows.last().unwrap().seq;
        world.record_as(&NUMBERING.incarnation.to_string(), seq);
    }
    assert_eq!(told, MAX_UNRECORDED_ENDS);
    world.running("more", 0);
}

#[test]
fn a_scheduler_that_records_no_ends_has_been_told_once_the_socket_has_taken_that_and_a_report() {
    let mut world = World::connected();
    world.running("a", 1);
    world.is_stuck = true;
    world.exits("a", 3);
    let Message::InstanceStopped(stopped) = world.answer() else {
        panic!()
    };
    assert_eq!(stopped.seq, None);
    let frames = world.frames;
    world.advance(INTERVAL * 9);
    assert!(world.stats().ended.is_empty());
    // The frame has left, and no report after it.
    world.handle(Input::Written(frames));
    world.reconnect();
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
    world.is_stuck = false;
    world.advance(INTERVAL);
    world.reconnect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn an_end_that_an_older_launcher_kept_is_told() {
    let mut world = recorded();
    world.running("a", 1);
    world.exits("a", 3);
    let record = world.records.get_mut("a").unwrap();
    assert!(record.unheard);
    record.ends.clear();
    world.restart(|_| ProcessFate::Ended(None));
    world.connect();
    assert_eq!(world.ended(), [exited("a", 3)]);
}
