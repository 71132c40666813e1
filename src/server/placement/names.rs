//! What Placement calls the things of this scheduler: resource classes, traits, aggregates; and the units it counts in.
//!
//! | here | Placement |
//! | --- | --- |
//! | vcpus, memory in MiB, disk in MiB | `VCPU`, `MEMORY_MB`, `DISK_GB`, which is in GiB |
//! | custom resource `gpu.a100` | class `CUSTOM_GPU_A100` |
//! | label `zone = eu-1` | trait `CUSTOM_ZONE_EU_1` |
//! | label `ssd` without a value | trait `CUSTOM_SSD` |
//! | a compute node | trait `COMPUTE_NODE` |
//! | a cordoned node | trait `COMPUTE_STATUS_DISABLED` |
//! | aggregate `fast` | a UUID, version 5 of the name |
//!
//! Names lose case and signs on the way, so that the way back is not unique: instead of parsing a trait, labels are
//! compared with it ([`is_trait`]). Two custom resources whose names differ in signs alone share a class.
//!
//! Amounts are rounded against the client: what a node has down, what is used up.

use std::borrow::Cow;
use std::iter::once;

use proto_frames::Uuid;

use super::limits::MAX_NAME_LEN;
use sched_core::{Amount, Countable};

/// The class of virtual CPUs.
pub(super) const VCPU: &str = "VCPU";
/// The class of memory. Its unit is called MB and is MiB, in Placement as well.
pub(super) const MEMORY_MB: &str = "MEMORY_MB";
/// The class of disk. Its unit is called GB and is GiB.
pub(super) const DISK_GB: &str = "DISK_GB";

/// What classes and traits begin with that are not the standard's. All labels become such traits.
pub(super) const CUSTOM: &str = "CUSTOM_";

/// The classes that every Placement has. Nodes here have the first three of them; what asks for another one fits
/// nowhere, which is no error.
pub(super) const STANDARD_CLASSES: [&str; 21] = [
    VCPU,
    MEMORY_MB,
    DISK_GB,
    "PCI_DEVICE",
    "SRIOV_NET_VF",
    "NUMA_SOCKET",
    "NUMA_CORE",
    "NUMA_THREAD",
    "NUMA_MEMORY_MB",
    "IPV4_ADDRESS",
    "VGPU",
    "VGPU_DISPLAY_HEAD",
    "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC",
    "PCPU",
    "MEM_ENCRYPTION_CONTEXT",
    "FPGA",
    "PGPU",
    "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
];

/// The traits that every Placement has, one a line, in order, behind lines that begin with `#`. Clients may name them
/// though no node has them. Nodes have [`COMPUTE`] and [`DISABLED`] of them at most.
const STANDARD_TRAITS: &str = include_str!("standard_traits.txt");

/// The standard's trait of a compute node.
pub(super) const COMPUTE: &str = "COMPUTE_NODE";

/// The standard's trait of a node that takes no new work: here one that is cordoned.
pub(super) const DISABLED: &str = "COMPUTE_STATUS_DISABLED";

/// MiB of a GiB.
pub(super) const MIB_PER_GB: i64 = 1024;

/// Stands before an aggregate's name when its UUID is made, so that names of other things do not give the same one.
const AGGREGATES: &str = "ciao-scheduler aggregate ";

/// The class of a resource.
pub(super) fn class(of: &Countable) -> Cow<'static, str> {
    match of {
        Countable::Every(Amount::Vcpus) => VCPU.into(),
        Countable::Every(Amount::Memory) => MEMORY_MB.into(),
        Countable::Every(Amount::Disk) => DISK_GB.into(),
        Countable::Custom(name) => custom_class(name).into(),
    }
}

/// The class of a custom resource: `CUSTOM_` and its name in Placement's alphabet.
pub(super) fn custom_class(name: &str) -> String {
    CUSTOM.chars().chain(normal(name)).collect()
}

/// Whether a custom resource has this class. Compares without making the class's name, as it is called for each
/// resource.
pub(super) fn is_class(name: &str, class: &str) -> bool {
    CUSTOM.chars().chain(normal(name)).eq(class.chars())
}

/// An amount in the unit of its class, for what there is; a part of a unit is left out.
pub(super) fn units_down(of: &Countable, amount: i64) -> i64 {
    match of {
        Countable::Every(Amount::Disk) => amount / MIB_PER_GB,
        _ => amount,
    }
}

/// An amount in the unit of its class, for what is used or reserved; a part of a unit is a whole one.
pub(super) fn units_up(of: &Countable, amount: i64) -> i64 {
    match of {
        Countable::Every(Amount::Disk) => amount / MIB_PER_GB + i64::from(amount % MIB_PER_GB > 0),
        _ => amount,
    }
}

/// The traits that every Placement has, in order.
pub(super) fn standard_traits() -> impl Iterator<Item = &'static str> {
    STANDARD_TRAITS
        .lines()
        .filter(|line| !line.starts_with('#'))
}

/// Whether a trait is one of the standard's.
pub(super) fn is_standard_trait(name: &str) -> bool {
    standard_traits().any(|other| other == name)
}

/// The trait that a label is; `None` for one whose name would be longer than [`MAX_NAME_LEN`].
pub(super) fn trait_of(key: &str, value: &str) -> Option<String> {
    let name: String = signs(key, value).collect();
    (name.len() <= MAX_NAME_LEN).then_some(name)
}

/// Whether a label is this trait. Compares without making the trait's name.
pub(super) fn is_trait(key: &str, value: &str, name: &str) -> bool {
    name.len() <= MAX_NAME_LEN && signs(key, value).eq(name.chars())
}

/// Whether labels with this key may be this trait, whatever their value: the key's part is a beginning of the name, or
/// the name of it. By this the index of labels leaves out most keys.
pub(super) fn may_be_trait(key: &str, name: &str) -> bool {
    let begins = CUSTOM.chars().chain(normal(key));
    begins.zip(name.chars()).all(|(one, other)| one == other)
}

/// A name in the alphabet of Placement: capital letters and digits, all else as underscores, one for each character.
fn normal(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().map(|sign| match sign.is_ascii_alphanumeric() {
        true => sign.to_ascii_uppercase(),
        false => '_',
    })
}

/// The characters of a label's trait: `CUSTOM_`, the key, and for a label with a value `_` and the value.
fn signs<'a>(key: &'a str, value: &'a str) -> impl Iterator<Item = char> + 'a {
    let separator = once('_').filter(move |_| !value.is_empty());
    let key = CUSTOM.chars().chain(normal(key));
    key.chain(separator).chain(normal(value))
}

/// Whether something could be a class or a trait: 1 to [`MAX_NAME_LEN`] of `A` to `Z`, `0` to `9` and `_`.
pub(super) fn is_name(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(is_sign)
}

/// The UUID of an aggregate (version 5, RFC 9562): always the same for its name, in all clusters and runs, so that
/// nothing has to be stored.
pub(super) fn aggregate_uuid(name: &str) -> Uuid {
    Uuid::new_v5(
        &Uuid::NAMESPACE_OID,
        format!("{AGGREGATES}{name}").as_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Amount, Countable, is_class, is_name, is_trait, may_be_trait, trait_of};
    use super::{COMPUTE, CUSTOM, DISABLED, is_standard_trait, standard_traits};
    use super::{custom_class, units_down, units_up};

    #[test]
    fn names_are_brought_into_the_alphabet_of_placement() {
        assert_eq!(custom_class("gpu.a100"), "CUSTOM_GPU_A100");
        assert_eq!(trait_of("zone", "eu-1").unwrap(), "CUSTOM_ZONE_EU_1");
        assert_eq!(trait_of("ssd", "").unwrap(), "CUSTOM_SSD");
        assert_eq!(trait_of("ort", "Köln").unwrap(), "CUSTOM_ORT_K_LN");
        assert_eq!(trait_of("long", &"x".repeat(250)), None);
    }

    #[test]
    fn parts_of_a_gigabyte_are_not_offered_and_are_used() {
        let disk = Countable::Every(Amount::Disk);
        assert_eq!((units_down(&disk, 2047), units_up(&disk, 2047)), (1, 2));
        assert_eq!((units_down(&disk, 2048), units_up(&disk, 2048)), (2, 2));
        let mem = Countable::Every(Amount::Memory);
        assert_eq!((units_down(&mem, 2047), units_up(&mem, 2047)), (2047, 2047));
    }

    #[test]
    fn the_standards_traits_are_names_in_order_of_which_none_is_custom() {
        let names: Vec<&str> = standard_traits().collect();
        assert!(names.is_sorted());
        assert!(is_standard_trait(COMPUTE) && is_standard_trait(DISABLED));
        for name in names {
            assert!(is_name(name) && !name.starts_with(CUSTOM), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_label_is_found_by_the_trait_that_it_is(key in "\\PC{1,20}", value in "\\PC{0,20}", other in "\\PC{1,20}") {
            let name = trait_of(&key, &value).unwrap();
            prop_assert!(is_name(&name), "{name}");
            prop_assert!(is_trait(&key, &value, &name) && may_be_trait(&key, &name));
            let of_other = trait_of(&other, &value).unwrap();
            prop_assert_eq!(is_trait(&key, &value, &of_other), name == of_other);
            prop_assert!(is_class(&key, &custom_class(&key)));
        }
    }
}
