//! Public addresses: the two commands, and what a concentrator says when they are done.

use sched_model::{AssignPublicIpFailure, UnassignPublicIpFailure, record};

use super::document::payload;
use super::guard::SMALL;

macro_rules! public_ip_command {
    ($(#[$doc:meta])* $name:ident under $key:literal, $failure:ident if it fails) => {
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

        impl $name {
            /// The answer that it was not done, and why.
            #[must_use]
            pub fn failure(self, reason: &str) -> $failure {
                $failure {
                    concentrator_uuid: self.concentrator_uuid,
                    tenant_uuid: self.tenant_uuid,
                    instance_uuid: self.instance_uuid,
                    public_ip: self.public_ip,
                    private_ip: self.private_ip,
                    vnic_mac: self.vnic_mac,
                    reason: reason.to_owned(),
                }
            }
        }
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
    AssignPublicIp under "assign_public_ip", AssignPublicIpFailure if it fails
}
public_ip_command! {
    /// `release_public_ip: {…}`: an instance is to lose a public address.
    ReleasePublicIp under "release_public_ip", UnassignPublicIpFailure if it fails
}
public_ip_event! {
    /// `public_ip_assigned: {…}`: an instance has a public address.
    PublicIpAssigned under "public_ip_assigned"
}
public_ip_event! {
    /// `public_ip_unassigned: {…}`: an instance no longer has a public address.
    PublicIpUnassigned under "public_ip_unassigned"
}
