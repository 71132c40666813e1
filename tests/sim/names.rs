//! Who is who: machines, controllers and instances by small numbers, and the UUIDs they go by on the wire.

use proto_frames::Uuid;

/// The scheduler.
pub(crate) const SCHEDULER: Uuid = Uuid::from_u128(0x5c << 96);

/// The operator that looks at the cluster when it is at rest.
pub(crate) const OBSERVER: Uuid = Uuid::from_u128(0x0b << 96);

const MACHINES: u128 = 0xa << 96;
const CONTROLLERS: u128 = 0xc << 96;
const LIARS: u128 = 0x11a << 96;
const INSTANCES: u128 = 0x1 << 96;

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
    Uuid::from_u128(INSTANCES + u128::from(instance)).to_string()
}

/// The machine whose launcher has this UUID.
pub(crate) fn machine_of(uuid: &str) -> Option<usize> {
    number(uuid, MACHINES).map(|number| number as usize)
}

/// The instance with this UUID.
pub(crate) fn instance_of(uuid: &str) -> Option<u32> {
    number(uuid, INSTANCES)
}

fn number(uuid: &str, base: u128) -> Option<u32> {
    let number = Uuid::try_parse(uuid).ok()?.as_u128().checked_sub(base)?;
    u32::try_from(number).ok()
}
