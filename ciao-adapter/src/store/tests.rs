//! Tests of the store with a schema of one table.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

const WORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("words");

#[derive(Debug)]
struct Words;

impl Schema for Words {
    const FILE: &'static str = "words.redb";
    const BESIDE: &'static [&'static str] = &["pictures"];
    const PROGRAM: &'static str = "ciao-words";
    type Change = (&'static str, &'static str);
    type Kept = (Family, Vec<(String, String)>);

    fn create(transaction: &WriteTransaction) -> Result<(), redb::Error> {
        transaction.open_table(WORDS)?;
        Ok(())
    }

    fn apply(transaction: &WriteTransaction, changes: &[Self::Change]) -> Result<(), redb::Error> {
        let mut words = transaction.open_table(WORDS)?;
        for (key, word) in changes {
            match *word {
                // In its bare form it is no JSON.
                "broken" => words.insert(key, word.as_bytes())?,
                word => words.insert(key, &*json(&word)?)?,
            };
        }
        Ok(())
    }

    fn read(transaction: &ReadTransaction, family: Family) -> Result<Self::Kept, ReadError> {
        let words = rows(transaction, WORDS, |key, bytes| {
            Ok((key.to_owned(), record(format_args!("word {key}"), bytes)?))
        })?;
        Ok((family, words))
    }
}

type Opened = (Store<Words>, (Family, Vec<(String, String)>));

fn open(state: &TempDir) -> Result<Opened, StoreError> {
    Store::open(state.path())
}

#[test]
fn what_is_written_is_there_when_the_file_is_opened_again() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, (family, words)) = open(&state).unwrap();
    assert_eq!(words, []);
    store.write(&[("b", "two"), ("a", "one")]).unwrap();
    store.write(&[]).unwrap();
    store.write(&[("b", "second")]).unwrap();
    drop(store);
    let (_, (again, words)) = open(&state).unwrap();
    assert_eq!(again, family);
    let word = |key: &str, word: &str| (key.to_owned(), word.to_owned());
    assert_eq!(words, [word("a", "one"), word("b", "second")]);
}

#[test]
fn a_file_that_is_open_is_refused_with_the_name_of_the_program() {
    let state = tempfile::tempdir().unwrap();
    let _open = open(&state).unwrap();
    let error = open(&state).map(drop).unwrap_err().to_string();
    let file = state.path().join("words.redb");
    assert_eq!(
        error,
        format!(
            "{}: another ciao-words uses it: give -state-dir a directory of its own",
            file.display()
        )
    );
}

#[test]
fn a_value_that_is_no_record_is_named() {
    let state = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&state).unwrap();
    store.write(&[("a", "one"), ("b", "broken")]).unwrap();
    drop(store);
    let error = open(&state).map(drop).unwrap_err().to_string();
    let named = "words.redb: the record word b cannot be read: ";
    assert!(error.contains(named), "{error}");
}

#[test]
fn a_directory_that_cannot_be_made_is_named_with_its_flag() {
    let state = tempfile::tempdir().unwrap();
    let file = state.path().join("file");
    std::fs::write(&file, "").unwrap();
    let directory = file.join("below");
    let error = Store::<Words>::open(&directory).map(drop).unwrap_err();
    let error = error.to_string();
    let named = format!("cannot make the state directory {}: ", directory.display());
    assert!(error.starts_with(&named), "{error}");
    assert!(error.ends_with("give another with -state-dir"), "{error}");
}

#[test]
fn after_a_failure_the_next_write_opens_the_file_again() {
    let state = tempfile::tempdir().unwrap();
    let (file, aside) = (state.path().join("words.redb"), state.path().join("aside"));
    let (mut store, _) = open(&state).unwrap();
    store.database = None;
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    let failed = store.write(&[("a", "one")]);
    assert!(matches!(failed, Err(StoreError::Database { .. })));
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    store.write(&[("a", "one")]).unwrap();
}

#[test]
fn a_directory_that_is_open_to_others_is_closed_unless_it_holds_what_is_not_the_adapters() {
    let state = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    drop(open(&state).unwrap());
    let file = state.path().join("words.redb");
    std::fs::create_dir(state.path().join("pictures")).unwrap();
    set(state.path(), 0o755).unwrap();
    set(&file, 0o644).unwrap();
    drop(open(&state).unwrap());
    assert_eq!((mode(state.path()), mode(&file)), (0o700, 0o600));
    std::fs::write(state.path().join("another's"), "").unwrap();
    set(state.path(), 0o755).unwrap();
    set(&file, 0o644).unwrap();
    drop(open(&state).unwrap());
    assert_eq!((mode(state.path()), mode(&file)), (0o755, 0o600));
    // A new file is closed to others from the beginning.
    std::fs::remove_file(&file).unwrap();
    drop(open(&state).unwrap());
    assert_eq!((mode(state.path()), mode(&file)), (0o755, 0o600));
}
