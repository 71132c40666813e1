//! Which arrays a controller learns of that did not send them: all there are when it becomes master, and what becomes of them.

use proto_frames::payload::{ArrayState, ArrayView};
use sched_core::{Message, SessionId};

use crate::support::world::{World, id, request};

const ARRAYS: [&str; 2] = [
    "67d86208-b46c-4465-9018-e14187d4010f",
    "67d86208-b46c-4465-9018-e14187d40110",
];

impl World {
    /// The arrays on the pages of the snapshot that a session was sent, and whether the last page was among them.
    fn arrays_shown(&mut self, session: SessionId) -> (Vec<ArrayView>, bool) {
        let pages = self.told_of(session, |message| match message {
            Message::Snapshot(page) => Some((page.payload.arrays, page.payload.last)),
            _ => None,
        });
        let is_whole = pages.last().is_some_and(|(_, last)| *last);
        let arrays = pages.into_iter().flat_map(|(arrays, _)| arrays);
        (arrays.collect(), is_whole)
    }

    fn states_of_arrays(&mut self, session: SessionId) -> Vec<(String, ArrayState)> {
        self.told_of(session, |message| match message {
            Message::ArrayState(view) => Some((view.array_uuid, view.state)),
            _ => None,
        })
    }
}

#[test]
fn a_controller_that_becomes_master_is_shown_all_arrays_and_hears_of_their_ends() {
    let (mut world, controller) = World::new().with_controller();
    for array in ARRAYS {
        world.start_array(controller, request(array, 10), (1, None));
    }
    let late = world.controller();
    world.look_away();
    world.cut(controller);
    let (shown, is_whole) = world.arrays_shown(late);
    let shown: Vec<_> = shown.into_iter().map(|it| it.array_uuid).collect();
    assert_eq!(shown, [ARRAYS[1], ARRAYS[0]]);
    assert!(is_whole);
    // Its sender has left: what becomes of it is for the master.
    world.delete_at(late, ARRAYS[0], world.uuid_of(late));
    let answered = world.told_of(late, |message| match message {
        Message::InstanceDeleted(it) => Some(id(&it.instance_uuid)),
        _ => None,
    });
    assert_eq!(answered, [id(ARRAYS[0])]);
}

#[test]
fn a_backup_is_sent_how_far_arrays_are_and_who_asked_is_answered_once() {
    let (mut world, controller) = World::new().with_controller();
    let (backup, original) = (world.controller(), world.original_controller());
    world.look_away();
    world.start_array(controller, request(ARRAYS[0], 10), (1, None));
    for session in [controller, backup] {
        let told = world.states_of_arrays(session);

        assert!(!told.is_empty(), "it is told");
        assert!(told.iter().all(|(array, _)| array == ARRAYS[0]));
    }
    assert_eq!(world.states_of_arrays(original), []);
}
