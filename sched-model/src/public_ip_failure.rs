//! Public addresses that could not be assigned or taken back, as a concentrator says it.

use crate::record;

macro_rules! public_ip_failure {
    ($(#[$doc:meta])* $name:ident) => {
        record! {
            $(#[$doc])*
            pub struct $name {
                /// The concentrator that says so.
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
                /// Why, in words that are not fixed.
                reason: String as "reason",
            }
        }
    };
}

public_ip_failure! {
    /// A public address could not be assigned.
    AssignPublicIpFailure
}
public_ip_failure! {
    /// A public address could not be taken back.
    UnassignPublicIpFailure
}
