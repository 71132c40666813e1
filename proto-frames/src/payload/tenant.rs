//! TenantAdded and TenantRemoved: a launcher tells a tenant's concentrator of its first or after its last instance.

use sched_model::record;

use super::document::payload;
use super::guard::SMALL;

macro_rules! tenant_event {
    ($(#[$doc:meta])* $name:ident under $key:literal) => {
        record! {
            $(#[$doc])*
            pub struct $name {
                /// The node.
                agent_uuid: String as "agent_uuid",
                /// Address of the node.
                agent_ip: String as "agent_ip",
                /// The tenant.
                tenant_uuid: String as "tenant_uuid",
                /// The tenant's subnet.
                tenant_subnet: String as "tenant_subnet",
                /// The concentrator this is for.
                concentrator_uuid: String as "concentrator_uuid",
                /// Address of the concentrator.
                concentrator_ip: String as "concentrator_ip",
                /// Number of the subnet.
                subnet_key: i64 as "subnet_key",
            }
        }
        payload!($name under $key, SMALL);
    };
}

tenant_event! {
    /// `tenant_added: {…}`: the tenant has its first instance on the node.
    TenantAdded under "tenant_added"
}
tenant_event! {
    /// `tenant_removed: {…}`: the tenant has no instance left on the node.
    TenantRemoved under "tenant_removed"
}
