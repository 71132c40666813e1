//! Public addresses: the two commands, and what a concentrator says when they are done.

use sched_model::record;

use super::document::payload;
use super::guard::SMALL;

macro_rules! public_ip_command {
    ($(#[$doc:meta])* $name:ident under $key:literal) => {
        record! {
            $(#[$doc])*
            pub struct $name {
                /// The concentrator this is for.
                concentrator_uuid: String as "concentrator_uuid",
                /// The tenant.
                tenant_uuid: String as "tenant_uuid",
                /// The instance.
                instance_uuid: String as "instance_uuid",
                /// The public address.
                public_ip: String as "public_ip",
                /// The instance's address within the tenant's network.
                private_ip: String as "private_ip",
                /// Hardware address of the instance's interface.
                vnic_mac: String as "vnic_mac",
            }
        }
        payload!($name under $key, SMALL);
    };
}

macro_rules! public_ip_event {
    ($(#[$doc:meta])* $name:ident under $key:literal) => {
        record! {
            $(#[$doc])*
            pub struct $name {
                /// The concentrator that says so.
                concentrator_uuid: String as "concentrator_uuid",
                /// The instance.
                instance_uuid: String as "instance_uuid",
                /// The public address.
                public_ip: String as "public_ip",
                /// The instance's address within the tenant's network.
                private_ip: String as "private_ip",
            }
        }
        payload!($name under $key, SMALL);
    };
}

public_ip_command! {
    /// `assign_public_ip: {…}`: an instance is to get a public address.
    AssignPublicIp under "assign_public_ip"
}
public_ip_command! {
    /// `release_public_ip: {…}`: an instance is to lose a public address.
    ReleasePublicIp under "release_public_ip"
}
public_ip_event! {
    /// `public_ip_assigned: {…}`: an instance has a public address.
    PublicIpAssigned under "public_ip_assigned"
}
public_ip_event! {
    /// `public_ip_unassigned: {…}`: an instance no longer has a public address.
    PublicIpUnassigned under "public_ip_unassigned"
}
