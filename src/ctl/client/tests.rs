//! Listings that were gathered in pages.

use proto_frames::payload::{InstanceView, NodeView, PlacementState};

use super::*;

#[test]
fn what_came_back_between_two_pages_is_listed_once() {
    use PlacementState::{Lost, Running, Waiting};
    let view = |(id, state): (&str, PlacementState)| InstanceView {
        instance_uuid: id.to_owned(),
        state,
        ..InstanceView::default()
    };
    let rows = [
        ("a", Lost),
        ("b", Lost),
        ("c", Waiting),
        ("a", Running),
        ("c", Running),
    ];
    let mut listing = Listing {
        instances: rows.map(view).into(),
        ..Listing::default()
    };
    listing.drop_superseded();
    let expected = [("b", Lost), ("a", Running), ("c", Running)];
    assert_eq!(listing.instances, expected.map(view));
}

#[test]
fn a_node_that_came_back_between_two_pages_is_listed_once_as_it_is_now() {
    let view = |(id, status): (&str, &str)| NodeView {
        node_uuid: id.to_owned(),
        status: status.to_owned(),
        ..NodeView::default()
    };
    let rows = [
        ("a", "EXPECTED"),
        ("b", "LOST"),
        ("c", "READY"),
        ("a", "READY"),
    ];
    let mut listing = Listing {
        nodes: rows.map(view).into(),
        ..Listing::default()
    };
    listing.drop_superseded();
    let expected = [("b", "LOST"), ("c", "READY"), ("a", "READY")];
    assert_eq!(listing.nodes, expected.map(view));
}
