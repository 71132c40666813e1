//! No instance of a lower priority is resumed before a waiting one of a higher.

use std::collections::BTreeMap;

use super::Check;
use crate::facts::Fact;
use crate::work::Amounts;
use crate::world::World;

/// Who waits for room, with priority and demand. Only those that may run anywhere: of others nobody but the core can say
/// whether this room was theirs.
#[derive(Default)]
pub(super) struct Order {
    waiting: BTreeMap<u32, (i64, Amounts)>,
}

impl Check for Order {
    fn name(&self) -> &'static str {
        "no lower priority is resumed before a waiting higher one"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        self.learn(fact)
    }
}

impl Order {
    fn learn(&mut self, fact: &Fact) -> Result<(), String> {
        match *fact {
            Fact::Waits {
                instance,
                priority,
                asked,
            } => {
                self.waiting.insert(instance, (priority, asked));
            }
            // Whatever else becomes of it, it waits no longer, or is said to wait anew.
            Fact::Placed { instance, .. }
            | Fact::Failed { instance, .. }
            | Fact::Began { instance, .. } => {
                self.waiting.remove(&instance);
            }
            Fact::SchedulerCrashed => self.waiting.clear(),
            Fact::Resumed {
                instance,
                priority,
                room,
            } => return self.may_resume(instance, priority, room),
            _ => {}
        }
        Ok(())
    }

    fn may_resume(&self, instance: u32, priority: i64, room: Amounts) -> Result<(), String> {
        let mut waiting = self.waiting.iter();
        let ahead =
            waiting.find(|(_, (higher, asked))| *higher > priority && asked.fits_into(room));
        match ahead {
            Some((first, (higher, _))) => Err(format!(
                "{instance} ({priority}) was resumed in {room:?} while {first} ({higher}) waits"
            )),
            None => Ok(()),
        }
    }
}

#[test]
fn a_resumed_instance_is_held_against_who_waits() {
    let room = Amounts {
        mem: 10,
        vcpus: 2,
        ..Amounts::default()
    };
    let resumed = |priority| Fact::Resumed {
        instance: 1,
        priority,
        room,
    };
    let waits = |instance, priority, asked| Fact::Waits {
        instance,
        priority,
        asked,
    };
    let mut order = Order::default();
    let too_much = Amounts { mem: 11, ..room };
    for fact in [waits(2, 50, room), waits(3, 90, too_much)] {
        order.learn(&fact).expect("waiting is no fault");
    }
    assert_eq!(order.learn(&resumed(50)), Ok(()));
    assert!(order.learn(&resumed(49)).is_err());
    let placed = Fact::Placed {
        instance: 2,
        machine: 0,
    };
    order.learn(&placed).expect("being placed is no fault");
    assert_eq!(order.learn(&resumed(49)), Ok(()));
}
