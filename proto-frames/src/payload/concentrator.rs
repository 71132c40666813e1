//! Concentrator instances: RefreshCNCI tells one of the others, ConcentratorInstanceAdded says that one is up.

use sched_model::record;

use super::document::payload;
use super::guard::SMALL;

record! {
    /// `cnci_refresh: {cnci_uuid, cncis}`.
    pub struct RefreshCnci {
        /// The concentrator this is for.
        cnci_uuid: String as "cnci_uuid",
        /// All concentrators of the tenant.
        cncis: Vec<CnciNet> as "cncis",
    }
}

record! {
    /// One concentrator as another one needs to know it.
    pub struct CnciNet {
        /// Its address.
        physical_ip: String as "physical_ip",
        /// Its subnet.
        subnet: String as "subnet",
        /// Address of its end of the tunnel.
        tunnel_ip: String as "tunnel_ip",
        /// Number of the tunnel.
        tunnel_id: u32 as "tunnel_id",
    }
}

record! {
    /// `concentrator_instance_added: {…}`.
    pub struct ConcentratorInstanceAdded {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The tenant.
        tenant_uuid: String as "tenant_uuid",
        /// Its address.
        concentrator_ip: String as "concentrator_ip",
        /// Its hardware address.
        concentrator_mac: String as "concentrator_mac",
    }
}

payload!(RefreshCnci under "cnci_refresh", SMALL);
payload!(ConcentratorInstanceAdded under "concentrator_instance_added", SMALL);
