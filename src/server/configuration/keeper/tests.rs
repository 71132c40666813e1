//! Versions with a hub behind them: the file read again, the start, and a disk that takes nothing.

use std::path::Path;
use std::sync::Arc;

use proto_frames::payload::ConfigurationSource;

use super::super::again::{FileRefused, Force};
use super::super::opening::{Opened, open};
use super::super::versions::{Author, Versions};
use crate::server::hub::Hub;
use crate::server::hub::tests::hub;

/// A state directory, and the scheduler's own file in it.
struct Site(tempfile::TempDir);

impl Site {
    fn new(text: &str) -> Self {
        let site = Self(tempfile::tempdir().unwrap());
        site.write(text);
        site
    }

    fn file(&self) -> String {
        self.0.path().join("file.yaml").display().to_string()
    }

    fn write(&self, text: &str) {
        std::fs::write(Path::new(&self.file()), text).unwrap();
    }

    fn versions(&self) -> Versions {
        Versions::open(Some(self.0.path())).unwrap()
    }

    fn open(&self) -> Opened {
        open(Some(self.file()), self.versions()).unwrap().0
    }

    fn hub(&self) -> Arc<Hub> {
        let hub = Arc::new(hub());
        hub.keep_configuration_in(self.open()).unwrap();
        hub
    }

    /// Sets a version as a command does.
    fn command(&self, hub: &Hub, text: &str) {
        let keeper = hub.configuration().unwrap();
        let author = Author {
            source: ConfigurationSource::Command,
            by: "O=ciao".to_owned(),
            note: String::new(),
        };
        let cluster = sched_core::ClusterConfiguration {
            payload: text.to_owned().into(),
            ..sched_core::ClusterConfiguration::default()
        };
        let mut versions = keeper.shared.versions.lock();
        let next = versions.clone();
        let put = keeper.shared.put(&mut versions, next, author, cluster);
        put.unwrap();
    }
}

const ONE: &str = "configure:\n  scheduler: {policy: {preset: pack}}\n";
const TWO: &str = "configure:\n  scheduler: {policy: {preset: spread}}\n";

#[test]
fn a_file_that_has_changed_is_a_new_version_and_one_that_has_not_is_none() {
    let site = Site::new(ONE);
    let hub = site.hub();
    let keeper = hub.configuration().unwrap();
    assert_eq!(keeper.version(), 1);
    assert!(keeper.read_again(Force::No).unwrap().is_none());
    site.write(TWO);
    let file = keeper
        .read_again(Force::No)
        .unwrap()
        .expect("it has changed");
    assert_eq!(keeper.version(), 1, "nothing is changed by a look");
    assert_eq!(keeper.take(file).unwrap(), 2);
    assert!(keeper.read_again(Force::No).unwrap().is_none());
    assert_eq!(site.open().versions.number(), 2, "it is on disk");
}

#[test]
fn a_file_does_not_undo_what_was_set_by_command_unless_it_is_forced() {
    let site = Site::new(ONE);
    let hub = site.hub();
    let keeper = hub.configuration().unwrap();
    site.command(&hub, TWO);
    // It is as it was when it was taken: no reason to refuse anything else that is read again.
    assert!(keeper.read_again(Force::No).unwrap().is_none());
    site.write(&format!("{ONE}# changed\n"));
    let refused = keeper.read_again(Force::No).unwrap_err();
    assert!(matches!(refused, FileRefused::Newer { version: 2, .. }));
    let said = refused.to_string();
    for part in ["file.yaml", "version 2", "O=ciao", "--diff", "--force"] {
        assert!(said.contains(part), "{said}");
    }
    let file = keeper.read_again(Force::Yes).unwrap().expect("it differs");
    assert_eq!(keeper.take(file).unwrap(), 3);
    // What is in force already is nothing to be taken, wherever it is from.
    site.command(&hub, TWO);
    site.write(TWO);
    assert!(keeper.read_again(Force::No).unwrap().is_none());
    assert!(keeper.read_again(Force::Yes).unwrap().is_none());
}

#[test]
fn a_version_that_is_set_between_reading_the_file_and_taking_it_is_not_undone() {
    let site = Site::new(ONE);
    let hub = site.hub();
    let keeper = hub.configuration().unwrap();
    site.write(TWO);
    for force in [Force::No, Force::Yes] {
        let file = keeper.read_again(force).unwrap().expect("it differs");
        site.command(&hub, &format!("{ONE}# {force:?}\n"));
        let version = keeper.version();
        let refused = keeper.take(file).unwrap_err();
        assert!(matches!(refused, FileRefused::Newer { version: it, .. } if it == version));
        assert_eq!(keeper.version(), version);
    }
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_the_place_is_named() {
    let site = Site::new(ONE);
    let hub = site.hub();
    let keeper = hub.configuration().unwrap();
    site.write("configure:\n  scheduler: {policy: {prest: pack}}\n");
    let said = keeper.read_again(Force::Yes).unwrap_err().to_string();
    assert!(
        said.contains("file.yaml: configure.scheduler.policy.prest, line 2"),
        "{said}"
    );
    std::fs::remove_file(site.file()).unwrap();
    let said = keeper.read_again(Force::No).unwrap_err().to_string();
    assert!(said.contains("file.yaml: No such file"), "{said}");
    assert_eq!(keeper.version(), 1);
}

#[test]
fn what_cannot_be_kept_is_not_put_into_force() {
    let site = Site::new(ONE);
    let hub = site.hub();
    let keeper = hub.configuration().unwrap();
    site.write(TWO);
    let file = keeper
        .read_again(Force::No)
        .unwrap()
        .expect("it has changed");
    // Nothing can be made there any more.
    let path = site.0.path().join("configuration.new");
    std::fs::create_dir(&path).unwrap();
    let said = keeper.take(file).unwrap_err().to_string();
    assert!(
        said.contains("cannot keep the cluster configuration in "),
        "{said}"
    );
    assert_eq!(keeper.version(), 1);
    std::fs::remove_dir(&path).unwrap();
    let file = keeper.read_again(Force::No).unwrap().expect("it still is");
    assert_eq!(keeper.take(file).unwrap(), 2);
}

#[test]
fn a_version_that_is_kept_counts_over_the_file_at_start() {
    let site = Site::new(ONE);
    let hub = site.hub();
    site.command(&hub, TWO);
    drop(hub);
    let (opened, cluster) = open(Some(site.file()), site.versions()).unwrap();
    assert_eq!(opened.versions.number(), 2);
    assert_eq!(cluster.payload, TWO);
    // So it does where there is no file any more.
    std::fs::remove_file(site.file()).unwrap();
    let (_, cluster) = open(Some(site.file()), site.versions()).unwrap();
    assert_eq!(cluster.payload, TWO);
}
