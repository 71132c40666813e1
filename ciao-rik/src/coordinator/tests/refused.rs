//! What RIK's own controller is told where a request cannot be done: it would end over an error.

use tonic::Code;

use super::{World, read, subscribe};
use crate::coordinator::MAX_DEFINITIONS;
use crate::rpc::common::ResourceStatus as Is;
use crate::updates::Updates;

impl World {
    /// A request of RIK's own controller in a round of its own; the notice beside the good answer.
    fn riks(&mut self, id: &str, create: Option<&str>) -> Option<String> {
        let mut answered = self.order_of(false, id, create);
        self.coordinator.end_round();
        let answer = answered.try_recv().expect("it is answered");
        answer.expect("RIK's own controller ends over an error")
    }
}

fn told(id: &str, status: Is) -> (String, Is) {
    (id.to_owned(), status)
}

/// What RIK's own controller is told first by a new stream, in the order of ids.
fn snapshot(world: &mut World) -> Vec<(String, Is)> {
    let mut all = read(&mut subscribe(world, "", false));
    all.sort();
    all
}

fn last(updates: &mut Updates) -> Option<(String, Is)> {
    read(updates).pop()
}

#[test]
fn what_the_disk_did_not_take_of_riks_own_controller_has_failed_in_its_stream() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    assert_eq!(world.riks("a", Some("{}")), None);
    assert_eq!(read(&mut updates), [told("a", Is::Pending)]);
    world.break_disk();
    let notice = world.riks("b", Some("{}")).unwrap();
    assert!(notice.contains("cannot be kept"), "{notice}");
    assert_eq!(read(&mut updates), [told("b", Is::Failed)]);
    assert_eq!(world.is(), (1, 1, 0, 0));
    // Who reads later hears the same.
    let both = [told("a", Is::Pending), told("b", Is::Failed)];
    assert_eq!(snapshot(&mut world), both);
    assert_eq!(read(&mut subscribe(&mut world, "anna", false)), []);
    world.mend_disk();
    assert_eq!(world.riks("b", None), None);
    assert_eq!(last(&mut updates), Some(told("b", Is::Terminated)));
    assert_eq!(snapshot(&mut world), both[..1]);
}

#[test]
fn what_was_refused_once_is_made_when_it_is_asked_for_again() {
    let mut world = World::new();
    world.break_disk();
    assert!(world.riks("a", Some("{}")).is_some());
    assert_eq!(snapshot(&mut world), [told("a", Is::Failed)]);
    world.mend_disk();
    assert_eq!(world.riks("a", Some("{}")), None);
    assert_eq!(snapshot(&mut world), [told("a", Is::Pending)]);
}

#[test]
fn what_is_refused_right_after_an_end_of_the_same_id_is_told_with_its_own_end() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.riks("a", Some("{}"));
    let instance = world.living().remove(0);
    world.coordinator.finish(&instance);
    assert_eq!(last(&mut updates), Some(told("a", Is::Terminated)));
    world.break_disk();
    world.riks("a", Some("{}"));
    assert_eq!(last(&mut updates), Some(told("a", Is::Failed)));
    world.riks("a", None);
    assert_eq!(last(&mut updates), Some(told("a", Is::Terminated)));
    assert_eq!(read(&mut updates), []);
}

#[test]
fn what_there_is_no_room_for_has_failed_in_the_stream() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.coordinator.definitions = MAX_DEFINITIONS;
    let notice = world.riks("a", Some("{}")).unwrap();
    assert!(notice.contains("at most"), "{notice}");
    assert_eq!(read(&mut updates), [told("a", Is::Failed)]);
    // Who knows more than RIK's own is refused.
    assert_eq!(world.ordered("b", Some("{}")), Err(Code::ResourceExhausted));
    assert_eq!(read(&mut updates), []);
}

#[test]
fn nothing_that_is_refused_changes_how_a_living_instance_is() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.riks("a", Some("{}"));
    assert_eq!(last(&mut updates), Some(told("a", Is::Pending)));
    let notice = world.riks("a", Some(r#"{"name": "other"}"#)).unwrap();
    assert!(notice.contains("with another definition"), "{notice}");
    assert_eq!(last(&mut updates), Some(told("a", Is::Pending)));
    assert_eq!(world.sent(), (1, 0));
    let instance = world.living().remove(0);
    world.coordinator.fail(&instance, "for a test".to_owned());
    assert_eq!(last(&mut updates), Some(told("a", Is::Failed)));
    let notice = world.riks("a", Some("{}")).unwrap();
    assert!(notice.contains("has failed"), "{notice}");
    assert_eq!(last(&mut updates), Some(told("a", Is::Failed)));
    assert_eq!(
        world.ordered("a", Some("{}")),
        Err(Code::FailedPrecondition)
    );
}

#[test]
fn a_set_is_refused_with_an_error_for_it_has_no_id_that_could_fail() {
    let mut world = World::new();
    world.break_disk();
    let answered = world.order_of(false, "", Some(&super::web(2, "1")));
    world.coordinator.end_round();
    assert_eq!(super::outcome(answered), Err(Code::Unavailable));
}

#[test]
fn what_riks_own_controller_wants_gone_goes_once_the_disk_takes_it() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.riks("a", Some("{}"));
    assert_eq!(world.sent(), (1, 0));
    world.break_disk();
    let notice = world.riks("a", None).unwrap();
    assert!(notice.contains("once that can be"), "{notice}");
    assert_eq!(last(&mut updates), Some(told("a", Is::Pending)));
    let mut look = |world: &mut World| {
        world.coordinator.is_unwritten = false;
        world.coordinator.tidy();
        world.coordinator.end_round();
        (world.sent(), read(&mut updates))
    };
    assert_eq!(look(&mut world), ((0, 0), vec![]));
    world.mend_disk();
    let destroying = vec![told("a", Is::Destroying)];
    assert_eq!(look(&mut world), ((0, 1), destroying));
    assert_eq!(look(&mut world), ((0, 0), vec![]));
}

#[test]
fn what_was_to_go_and_is_asked_for_again_stays() {
    let mut world = World::new();
    world.riks("a", Some("{}"));
    world.break_disk();
    assert!(world.riks("a", None).is_some());
    world.mend_disk();
    assert_eq!(world.riks("a", Some("{}")), None);
    world.coordinator.tidy();
    world.coordinator.end_round();
    assert_eq!(world.sent(), (1, 0));
    assert_eq!(snapshot(&mut world), [told("a", Is::Pending)]);
}

#[test]
fn what_is_destroyed_in_the_round_in_which_it_could_not_be_made_is_told_as_gone() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.break_disk();
    let made = world.order_of(false, "a", Some("{}"));
    let destroyed = world.order_of(false, "a", None);
    world.coordinator.end_round();
    assert_eq!(super::outcome(made), Ok(()));
    assert_eq!(super::outcome(destroyed), Ok(()));
    assert_eq!(last(&mut updates), Some(told("a", Is::Terminated)));
    assert_eq!(snapshot(&mut world), []);
}

#[test]
fn an_end_that_was_read_is_not_told_once_more() {
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", false);
    world.riks("a", Some("{}"));
    let instance = world.living().remove(0);
    world.coordinator.finish(&instance);
    assert_eq!(last(&mut updates), Some(told("a", Is::Terminated)));
    // As where the same round has another CREATE of it.
    world.coordinator.notify_again(&instance);
    assert_eq!(read(&mut updates), []);
}
