//! A node that is short of memory takes no more work, and says so, until it is well below the limit again.

use super::*;

impl World {
    /// The next report, of a node this short of memory: why it takes no work, and whether that is for want of memory.
    fn under(&mut self, stalled_percent: i64, swap_percent: i64) -> (String, bool) {
        self.host.pressure = Pressure {
            stalled_percent,
            swap_percent,
        };
        let stats = self.stats();
        let status = if stats.fault.is_empty() {
            "READY"
        } else {
            "FULL"
        };
        assert_eq!(stats.status, status);
        (stats.fault, stats.pressure)
    }
}

#[test]
fn a_node_takes_no_work_from_a_limit_on_until_it_is_well_below_it() {
    let mut world = World::connected();
    let none = (String::new(), false);
    assert_eq!(world.under(49, 0), none);
    let (fault, is_pressure) = world.under(50, 0);
    assert!(
        fault.starts_with("short of memory: for 50% of the time"),
        "{fault}"
    );
    assert!(is_pressure);
    assert_eq!(
        world.under(25, 0),
        (fault, true),
        "it is told in the same words"
    );
    assert_eq!(world.under(24, 0), none);
    let (fault, is_pressure) = world.under(0, 95);
    assert!(fault.contains("90% or more of the swap space"), "{fault}");
    assert!(is_pressure);
    assert_eq!(world.under(0, 44), none);
}

#[test]
fn what_cannot_be_kept_goes_before_a_lack_of_memory() {
    let mut world = World::connected();
    world.host.pressure.stalled_percent = 100;
    world.handle(Input::Storage {
        fault: Some("the disk is gone".to_owned()),
    });
    let stats = world.stats();
    assert_eq!(
        (stats.fault.as_str(), stats.pressure),
        ("the disk is gone", false)
    );
}
