//! CONFIGURE, the payload of CONNECTED and the configuration file: the cluster's settings.

use bytes::Bytes;

use super::emit::Emitter;
use super::error::{Fault, PayloadError};
use super::guard::SMALL;
use super::read;
use super::record::record;
use super::value::Value;

record! {
    /// `configure: {scheduler, storage, controller, launcher}`. Keys that are not there have the original's defaults.
    pub struct Configuration {
        /// The scheduler's part.
        scheduler: ConfigureScheduler as "scheduler",
        /// The storage's part.
        storage: ConfigureStorage as "storage",
        /// The controllers' part.
        controller: ConfigureController as "controller",
        /// The launchers' part.
        launcher: ConfigureLauncher as "launcher",
    }
}

record! {
    /// The scheduler's part of the configuration.
    pub struct ConfigureScheduler {
        /// Where the configuration comes from.
        storage_uri: String as "storage_uri",
    }
}

record! {
    /// The storage's part of the configuration.
    pub struct ConfigureStorage {
        /// The user name at the storage cluster.
        ceph_id: String as "ceph_id",
    }
}

record! {
    /// The controllers' part of the configuration.
    pub struct ConfigureController {
        /// Port of the controller's API.
        ciao_port: i64 as "ciao_port" = 8889,
        /// CA certificate of the controller's API, a path.
        compute_ca: String as "compute_ca",
        /// Certificate of the controller's API, a path.
        compute_cert: String as "compute_cert",
        /// Virtual CPUs of a concentrator instance.
        cnci_vcpus: i64 as "cnci_vcpus" = 4,
        /// Memory of a concentrator instance, MiB.
        cnci_mem: i64 as "cnci_mem" = 2048,
        /// Disk of a concentrator instance, MiB.
        cnci_disk: i64 as "cnci_disk" = 2048,
        /// Public key of the administrator.
        admin_ssh_key: String as "admin_ssh_key",
        /// CA certificate for clients of the controller's API, a path.
        client_auth_ca_cert_path: String as "client_auth_ca_cert_path",
        /// Network of the concentrators.
        cnci_net: String as "cnci_net" = "192.168.0.0".to_owned(),
    }
}

record! {
    /// The launchers' part of the configuration.
    pub struct ConfigureLauncher {
        /// Networks that tenants' traffic may use.
        compute_net: Vec<String> as "compute_net",
        /// Networks for the cluster's own traffic.
        mgmt_net: Vec<String> as "mgmt_net",
        /// Whether launchers refuse instances that their disk has no room for.
        disk_limit: bool as "disk_limit" = true,
        /// Whether launchers refuse instances that their memory has no room for.
        mem_limit: bool as "mem_limit" = true,
        /// User that instances run as.
        child_user: String as "child_user",
    }
}

impl Configuration {
    /// Reads a configuration; an empty payload is the default one (a scheduler without a configuration file sends that).
    ///
    /// # Errors
    /// Names the key, the place and what is wrong.
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        match read::decode_under("configure", payload, SMALL) {
            Err(PayloadError {
                fault: Fault::Empty,
                ..
            }) => Ok(Self::default()),
            result => result,
        }
    }

    /// Writes the configuration with all its keys.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Emitter::new();
        out.key("configure");
        self.emit(&mut out);
        out.finish()
    }

    /// The keys without which the original does not call a configuration valid and which are empty in this one.
    #[must_use]
    pub fn missing_values(&self) -> Vec<&'static str> {
        [
            (
                "configure.scheduler.storage_uri",
                &self.scheduler.storage_uri,
            ),
            (
                "configure.controller.compute_ca",
                &self.controller.compute_ca,
            ),
            (
                "configure.controller.compute_cert",
                &self.controller.compute_cert,
            ),
            (
                "configure.controller.client_auth_ca_cert_path",
                &self.controller.client_auth_ca_cert_path,
            ),
        ]
        .into_iter()
        .filter(|(_, value)| value.is_empty())
        .map(|(key, _)| key)
        .collect()
    }
}
