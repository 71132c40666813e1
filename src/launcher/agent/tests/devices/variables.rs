//! Variables that libraries look at to see which devices a program may use.

use super::*;
use crate::launcher::agent::DeviceVariable;

#[test]
fn variables_that_libraries_look_at_list_units_and_are_empty_where_there_are_none() {
    let told = |resource: &str, units: &[&str]| DeviceVariable {
        name: "VISIBLE".to_owned(),
        resource: resource.to_owned(),
        units: units.iter().map(ToString::to_string).collect(),
    };
    let mut world = World::with_features(Features {
        resources: resources(&[("gpu", 4), ("mig", 2)]),
        device_variables: vec![told("gpu", &[]), told("mig", &["MIG-a", "MIG-b"])],
        ..Features::default()
    });
    let mut visible = |id: &str, amounts: &[(&str, i64)]| {
        let mut start = asks(id, amounts);
        start.env = [("VISIBLE".to_owned(), "all".to_owned())].into();
        world.environment(start)["VISIBLE"].clone()
    };
    assert_eq!(visible("a", &[("gpu", 2)]), "0,1");
    assert_eq!(
        [visible("b", &[]), visible("c", &[("mig", 1)])],
        ["", "MIG-a"]
    );
    assert_eq!(visible("d", &[("gpu", 1), ("mig", 1)]), "2,MIG-b");
}
