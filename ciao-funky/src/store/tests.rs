//! Tests of what stands in the file: one that an earlier version has written is read, and numbers are not given twice.

use redb::Database;

use super::*;
use crate::command::Priority;

#[test]
fn a_file_of_an_earlier_version_is_read() {
    let state = tempfile::tempdir().unwrap();
    {
        let database = Database::create(state.path().join("tasks.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            const TASKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tasks");
            const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");
            const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
            let task = r#"{"id":7,"instance":"5f0c1e2a-1","priority":"High","files":[{"name":"/bin/a","sha256":"9f86","bytes":1024}],"frequencies":[],"args":"-x 1","outcome":null}"#;
            let mut tasks = transaction.open_table(TASKS).unwrap();
            tasks.insert(7, task.as_bytes()).unwrap();
            let mut nodes = transaction.open_table(NODES).unwrap();
            nodes.insert(2, "c161398f").unwrap();
            let mut numbers = transaction.open_table(NUMBERS).unwrap();
            numbers.insert("next_task", 9).unwrap();
            numbers.insert("family", 0x5f0c_1e2a).unwrap();
        }
        transaction.commit().unwrap();
    }
    let (_, kept) = Store::open(state.path()).unwrap();
    assert_eq!(kept.family, Family::new(0x5f0c_1e2a));
    assert_eq!(kept.next_task, 9);
    assert_eq!(kept.nodes, [(2, "c161398f".to_owned())]);
    let [task] = &*kept.tasks else {
        panic!("{:?}", kept.tasks);
    };
    assert_eq!((task.id, &*task.instance), (7, "5f0c1e2a-1"));
    assert_eq!((task.priority, &*task.args), (Priority::High, "-x 1"));
    assert_eq!(task.files[0].bytes, 1024);
    assert_eq!(task.outcome, None);
    // It may have been sent.
    assert_eq!(task.sent_ms, ciao_adapter::sent::at_any_time());
}

#[test]
fn the_number_of_a_forgotten_task_is_not_given_again() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, kept) = Store::open(state.path()).unwrap();
    assert_eq!(kept.next_task, 1);
    let task = TaskRecord {
        id: 5,
        instance: String::new(),
        priority: Priority::Low,
        files: Vec::new(),
        frequencies: Vec::new(),
        args: String::new(),
        outcome: None,
        sent_ms: None,
    };
    store.write(&[Change::Task(Arc::new(task))]).unwrap();
    store.write(&[Change::Forget(5)]).unwrap();
    drop(store);
    let (_, kept) = Store::open(state.path()).unwrap();
    assert_eq!((kept.tasks.len(), kept.next_task), (0, 6));
}

#[test]
fn a_state_directory_that_is_open_to_others_is_closed() {
    use std::fs::{Permissions, create_dir, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt as _;

    let state = tempfile::tempdir().unwrap();
    drop(Store::open(state.path()).unwrap());
    create_dir(state.path().join("binaries")).unwrap();
    set_permissions(state.path(), Permissions::from_mode(0o755)).unwrap();
    drop(Store::open(state.path()).unwrap());
    let mode = metadata(state.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
