//! Tests of what stands in the file: one that an earlier version has written is read.

use redb::Database;

use super::*;
use crate::instance::Fate;

#[test]
fn a_file_of_an_earlier_version_is_read() {
    let state = tempfile::tempdir().unwrap();
    {
        let database = Database::create(state.path().join("instances.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        {
            const INSTANCES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("instances");
            const SETS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sets");
            const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
            let mut instances = transaction.open_table(INSTANCES).unwrap();
            let instance = r#"{"id":"a","instance":"5f0c1e2a-1","workload":"w","definition":"{}","owner":"me"}"#;
            instances.insert("5f0c1e2a-1", instance.as_bytes()).unwrap();
            let member = r#"{"id":"b","instance":"5f0c1e2a-2","workload":"w","definition":"{}","owner":"me","set":{"generation":3},"fate":{"Failed":"why"}}"#;
            instances.insert("5f0c1e2a-2", member.as_bytes()).unwrap();
            let set =
                r#"{"workload":"w","owner":"me","definition":"{}","generation":3,"replicas":2}"#;
            let mut sets = transaction.open_table(SETS).unwrap();
            sets.insert("me\nw", set.as_bytes()).unwrap();
            let mut numbers = transaction.open_table(NUMBERS).unwrap();
            numbers.insert("family", 0x5f0c_1e2a).unwrap();
        }
        transaction.commit().unwrap();
    }
    let (_, kept) = Store::open(state.path()).unwrap();
    assert_eq!(kept.family, Family::new(0x5f0c_1e2a));
    let [instance, member] = &*kept.instances else {
        panic!("{:?}", kept.instances);
    };
    assert_eq!((&*instance.id, &*instance.instance), ("a", "5f0c1e2a-1"));
    assert_eq!((&instance.set, &instance.fate), (&None, &Fate::Run));
    // It may have been sent.
    assert_eq!(instance.sent_ms, ciao_adapter::sent::at_any_time());
    assert_eq!(member.set.as_ref().unwrap().generation, 3);
    assert_eq!(member.fate, Fate::Failed("why".to_owned()));
    let [(key, set)] = &*kept.sets else {
        panic!("{:?}", kept.sets);
    };
    assert_eq!((&**key, set.generation, set.replicas), ("me\nw", 3, 2));
}
