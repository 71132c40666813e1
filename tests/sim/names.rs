//! Who is who: machines, controllers and instances by small numbers, and the UUIDs they go by on the wire.

use proto_frames::Uuid;
use proto_frames::payload::array::element_uuid;

/// The scheduler.
pub(crate) const SCHEDULER: Uuid = Uuid::from_u128(0x5c << 96);

/// The operator that looks at the cluster when it is at rest.
pub(crate) const OBSERVER: Uuid = Uuid::from_u128(0x0b << 96);

const MACHINES: u128 = 0xa << 96;
const CONTROLLERS: u128 = 0xc << 96;
const LIARS: u128 = 0x11a << 96;
const INSTANCES: u128 = 0x1 << 96;

/// The first 32 bits of the UUIDs of arrays; those of their elements differ from them there.
const ARRAYS: u32 = 0xa77a_0000;

/// The number of the first instance that is an element.
const ELEMENTS: u32 = 1 << 24;

/// Most elements of an array here.
pub(crate) const MOST_ELEMENTS: u32 = 64;

/// The UUID of an array.
pub(crate) fn array_uuid(array: u32) -> Uuid {
    Uuid::from_u128((u128::from(ARRAYS) << 96) + u128::from(array))
}

/// The array with this UUID.
pub(crate) fn array_of(uuid: &str) -> Option<u32> {
    number(uuid, u128::from(ARRAYS) << 96)
}

/// The instance that an element of an array is.
pub(crate) fn element(array: u32, index: u32) -> u32 {
    ELEMENTS + array * MOST_ELEMENTS + index
}

/// The array and the index of an instance, if it is an element.
pub(crate) fn element_of(instance: u32) -> Option<(u32, u32)> {
    let number = instance.checked_sub(ELEMENTS)?;
    Some((number / MOST_ELEMENTS, number % MOST_ELEMENTS))
}

/// The UUID of a machine's launcher.
pub(crate) fn machine_uuid(machine: usize) -> Uuid {
    Uuid::from_u128(MACHINES + machine as u128)
}

/// A controller's UUID.
pub(crate) fn controller_uuid(controller: usize) -> Uuid {
    Uuid::from_u128(CONTROLLERS + controller as u128)
}

/// The UUID of a launcher that lies.
pub(crate) fn liar_uuid(liar: usize) -> Uuid {
    Uuid::from_u128(LIARS + liar as u128)
}

/// The launcher that lies with this UUID.
pub(crate) fn liar_of(uuid: &str) -> Option<usize> {
    number(uuid, LIARS).map(|number| number as usize)
}

/// An instance's UUID, as payloads write it.
pub(crate) fn instance_uuid(instance: u32) -> String {
    if let Some((array, index)) = element_of(instance) {
        return element_uuid(array_uuid(array), index).to_string();
    }
    Uuid::from_u128(INSTANCES + u128::from(instance)).to_string()
}

/// The machine whose launcher has this UUID.
pub(crate) fn machine_of(uuid: &str) -> Option<usize> {
    number(uuid, MACHINES).map(|number| number as usize)
}

/// The instance with this UUID.
pub(crate) fn instance_of(uuid: &str) -> Option<u32> {
    number(uuid, INSTANCES).or_else(|| element_with(uuid))
}

fn element_with(uuid: &str) -> Option<u32> {
    let number = Uuid::try_parse(uuid).ok()?.as_u128();
    let index = ((number >> 96) as u32 ^ ARRAYS).checked_sub(1)?;
    let array = u32::try_from(number & (u128::MAX >> 32)).ok()?;
    (index < MOST_ELEMENTS).then(|| element(array, index))
}

fn number(uuid: &str, base: u128) -> Option<u32> {
    let number = Uuid::try_parse(uuid).ok()?.as_u128().checked_sub(base)?;
    u32::try_from(number).ok()
}
