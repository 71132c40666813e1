//! The state directory: what is found in it again, and what becomes of what is broken.

use super::super::agent::{Demand, InstanceRecord, Removal, Stage};
use super::{DeletedLog, StateDir, StateError, Surplus, Why};

fn record(instance: &str, stage: Stage) -> InstanceRecord {
    let demand = Demand {
        mem_mb: 64,
        vcpus: 1,
        ..Demand::default()
    };
    InstanceRecord::new(instance, demand, stage)
}

#[test]
fn a_node_keeps_its_uuid_and_its_evacuation() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let mut state = StateDir::open(&root, None).unwrap();
    let uuid = state.uuid();
    state.set_maintenance(true);
    state.save_node().unwrap();
    drop(state);
    let state = StateDir::open(&root, None).unwrap();
    assert_eq!((state.uuid(), state.maintenance()), (uuid, true));
    drop(state);
    let other = proto_frames::Uuid::new_v4();
    assert_eq!(StateDir::open(&root, Some(other)).unwrap().uuid(), other);
    assert_eq!(StateDir::open(&root, None).unwrap().uuid(), other);
}

#[test]
fn every_file_is_its_owners_alone_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = StateDir::open(dir.path(), None).unwrap();
    state.set_maintenance(true);
    state.save_node().unwrap();
    // What is open to others is closed at the next start, and warned of.
    let remarks = crate::private::open_directory(dir.path(), |_| true).unwrap();
    assert_eq!(remarks, Vec::<String>::new());
}

#[test]
fn no_two_launchers_number_ends_alike() {
    let dir = tempfile::tempdir().unwrap();
    let numbering = || StateDir::open(dir.path(), None).unwrap().numbering();
    let (first, second) = (numbering(), numbering());
    assert_eq!(first.incarnation, second.incarnation);
    assert!(second.after > first.after + u64::from(u32::MAX) - 1);
    std::fs::remove_file(dir.path().join("node.json")).unwrap();
    assert_ne!(numbering().incarnation, first.incarnation);
}

#[test]
fn a_second_launcher_changes_no_mode_of_what_another_has() {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let _first = StateDir::open(dir.path(), None).unwrap();
    set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(
        StateDir::open(dir.path(), None),
        Err(StateError::InUse { .. })
    ));
    let mode = metadata(dir.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_second_launcher_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _first = StateDir::open(dir.path(), None).unwrap();
    assert!(matches!(
        StateDir::open(dir.path(), None),
        Err(StateError::InUse { .. })
    ));
}

#[test]
fn an_instance_that_is_being_started_keeps_its_files_when_its_record_changes() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let launch = state.instance("a").launch();
    for stage in [Stage::Exited(Some(1)), Stage::Starting] {
        state.save(&record("a", stage)).unwrap();
    }
    assert!(!launch.exists());
    std::fs::write(&launch, "").unwrap();
    state.save(&record("a", Stage::Starting)).unwrap();
    assert!(launch.exists());
}

#[test]
fn records_come_back_in_order_and_a_broken_one_harms_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let records = [
        record("a", Stage::Running),
        record("b", Stage::Exited(Some(3))),
    ];
    state.save(&records[1]).unwrap();
    state.save(&records[0]).unwrap();
    state.save(&record("c", Stage::Running)).unwrap();
    std::fs::write(state.instance("c").record(), "{").unwrap();
    let other = dir.path().join("running/c.json");
    assert_eq!(
        state.records().len(),
        3,
        "of one that may run there is another"
    );
    std::fs::write(other, "{").unwrap();
    assert_eq!(state.records(), records);
    state.forget("a").unwrap();
    state.forget("a").unwrap();
    assert_eq!(state.records(), records[1..]);
}

#[test]
fn a_record_from_before_groups_and_further_resources_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let old = record("a", Stage::Running);
    state.save(&old).unwrap();
    let text = "{\"instance\":\"a\",\"demand\":{\"mem_mb\":64,\"vcpus\":1,\"disk_mb\":0},\
        \"restart\":false,\"stage\":\"Running\",\"unheard\":false}";
    let written = std::fs::read_to_string(state.instance("a").record()).unwrap();
    assert_eq!(written, text, "what has neither is written as before");
    assert_eq!(state.records(), std::slice::from_ref(&old));
    let mut new = old;
    new.demand.resources.insert("gpu".to_owned(), 2);
    new.group = "web".to_owned();
    state.save(&new).unwrap();
    assert_eq!(state.records(), [new]);
}

#[test]
fn nothing_but_the_record_stays_of_a_gone_instance() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    state.save(&record("a", Stage::Running)).unwrap();
    std::fs::write(state.instance("a").output(), "text").unwrap();
    let gone = record("a", Stage::Gone(Removal::Deleted, Some(0)));
    state.save(&gone).unwrap();
    assert!(!state.instance("a").output().exists());
    assert_eq!(state.records(), [gone]);
    let kept = dir.path().join("kept/a.1/output.log");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "text");
}

#[test]
fn what_had_ended_by_itself_is_deleted_with_its_output_and_kept_when_it_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    for id in ["deleted", "again"] {
        state.save(&record(id, Stage::Running)).unwrap();
        std::fs::write(state.instance(id).output(), "text").unwrap();
        state.save(&record(id, Stage::Exited(Some(1)))).unwrap();
    }
    assert_eq!(state.ended()().len(), 2);
    drop(state);
    let state = StateDir::open(dir.path(), None).unwrap();
    let gone = Stage::Gone(Removal::Deleted, Some(1));
    state.save(&record("deleted", gone)).unwrap();
    state.save(&record("again", Stage::Starting)).unwrap();
    assert_eq!(
        state.ended()(),
        [dir.path().canonicalize().unwrap().join("kept/again.1")]
    );
}

#[test]
fn a_replacement_that_was_interrupted_loses_neither_record() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let gone = record("a", Stage::Gone(Removal::Deleted, Some(0)));
    state.save(&record("a", Stage::Running)).unwrap();
    std::fs::write(state.instance("a").output(), "text").unwrap();
    let (place, new) = (state.instance("a").0, dir.path().join("new/a"));
    // As it is before the old directory is set aside, and after.
    std::fs::create_dir_all(&new).unwrap();
    super::write_json(&new.join("record.json"), &gone).unwrap();
    drop(state);
    let state = StateDir::open(dir.path(), None).unwrap();
    assert_eq!(state.records(), [record("a", Stage::Running)]);
    assert!(!new.exists());
    std::fs::rename(&place, &new).unwrap();
    drop(state);
    let state = StateDir::open(dir.path(), None).unwrap();
    assert_eq!(state.records(), [record("a", Stage::Running)]);
    assert!(!new.exists() && place.exists());
}

#[test]
fn what_has_no_record_is_deleted_and_what_is_broken_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    for id in ["left", "broken"] {
        state.save(&record(id, Stage::Running)).unwrap();
    }
    std::fs::remove_file(state.instance("left").record()).unwrap();
    std::fs::write(state.instance("broken").record(), "{").unwrap();
    std::fs::remove_dir_all(dir.path().join("running")).unwrap();
    drop(state);
    let state = StateDir::open(dir.path(), None).unwrap();
    assert!(!state.instance("left").0.exists());
    assert!(state.instance("broken").0.exists());
}

#[test]
fn an_instance_that_may_run_is_known_without_its_directory_and_one_that_has_ended_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let running = record("a", Stage::Running);
    for known in [
        &running,
        &record("b", Stage::Running),
        &record("c", Stage::Running),
    ] {
        state.save(known).unwrap();
        std::fs::remove_dir_all(state.instance(&known.instance).0).unwrap();
    }
    state.forget("b").unwrap();
    state.save(&record("c", Stage::Exited(Some(0)))).unwrap();
    std::fs::remove_dir_all(state.instance("c").0).unwrap();
    drop(state);
    let state = StateDir::open(dir.path(), None).unwrap();
    assert_eq!(state.records(), [running]);
    assert!(state.instance("a").record().exists(), "it is put back");
    // All of it, as a cleaner of temporary files would.
    std::fs::remove_dir_all(dir.path().join("running")).unwrap();
    state.save(&record("a", Stage::Suspended)).unwrap();
    std::fs::remove_dir_all(state.instance("a").0).unwrap();
    assert_eq!(state.records(), [record("a", Stage::Suspended)]);
}

#[test]
fn what_is_deleted_of_ended_instances_is_noted_and_those_that_ended_by_themselves_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let state = StateDir::open(dir.path(), None).unwrap();
    let write = |id: &str| std::fs::write(state.instance(id).output(), "text").unwrap();
    for id in ["by-itself", "removed", "deleted", "silent"] {
        state.save(&record(id, Stage::Running)).unwrap();
        if id != "silent" {
            write(id);
        }
    }
    state
        .save(&record("by-itself", Stage::Exited(Some(0))))
        .unwrap();
    state
        .save(&record("deleted", Stage::Exited(Some(0))))
        .unwrap();
    for (id, removal) in [
        ("removed", Removal::Stopped),
        ("deleted", Removal::Deleted),
        ("silent", Removal::Deleted),
    ] {
        state.save(&record(id, Stage::Gone(removal, None))).unwrap();
    }
    let mut ended = state.ended()();
    ended.sort_unstable();
    let kept = dir.path().canonicalize().unwrap().join("kept/removed.1");
    assert_eq!(ended, [state.instance("by-itself").0, kept]);
    let whole = ended
        .into_iter()
        .map(|it| (it, Why::Age(3_600_000)))
        .collect();
    let surplus = Surplus {
        whole,
        ..Surplus::default()
    };
    assert_eq!(state.delete_surplus(&surplus), ["by-itself"]);
    // Again, as long as it is remembered: what is noted stays as it was.
    let log = DeletedLog::of(dir.path());
    let before = log.what_of("by-itself");
    assert_eq!(state.delete_surplus(&surplus), ["by-itself"]);
    assert_eq!(log.what_of("by-itself"), before);
    for (id, why) in [
        ("by-itself", "kept for 1h"),
        ("removed", "kept for 1h"),
        ("deleted", "deleted after it had ended"),
        ("silent", "had written nothing"),
    ] {
        let said = log.what_of(id).unwrap();
        assert!(said.contains(why), "{id}: {said}");
    }
}
