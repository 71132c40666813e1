//! CONFIGURE, the payload of CONNECTED and the configuration file: the cluster's settings.

use bytes::Bytes;
use sched_model::record;
use sched_model::value::ValueWriter;
use serde_yaml::{Mapping, Value as Yaml};

use super::document::Payload;
use super::emit::Emitter;
use super::error::{Fault, PayloadError};
use super::guard::{self, SMALL};
use super::read;

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

impl Payload for Configuration {
    /// Reads a configuration; an empty payload is the default one (a scheduler without a configuration file sends that).
    ///
    /// # Errors
    /// Names the key, the place and what is wrong.
    fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        match read::decode_under("configure", payload, SMALL) {
            Err(PayloadError {
                fault: Fault::Empty,
                ..
            }) => Ok(Self::default()),
            result => result,
        }
    }

    /// Writes the configuration with all its keys.
    fn encode(&self) -> Bytes {
        let mut out = Emitter::new();
        out.write_field("configure", self);
        out.finish()
    }
}

impl Configuration {
    /// The payload with the original's default for each key that is missing or null, all other keys as they are; the same
    /// bytes where none is missing. The original fills them in before it sends a configuration, and its peers read a
    /// missing key as zero: no port, and launchers that stop checking memory and disk.
    ///
    /// # Errors
    /// As [`Configuration::decode`].
    pub fn with_defaults(payload: &Bytes) -> Result<Bytes, PayloadError> {
        let known = Self::decode(payload)?;
        let mut root = match guard::first_document(payload, SMALL).map(serde_yaml::from_slice) {
            Ok(Ok(root)) => root,
            // Empty: nothing but defaults.
            Err(_) => Yaml::Null,
            // A key that means nothing here stands twice, which only the reader above takes: what it knows is kept.
            Ok(Err(_)) => return Ok(known.encode()),
        };
        let is_changed = DEFAULTS
            .iter()
            .fold(false, |is_changed, (section, key, default)| {
                fill_in(&mut root, &["configure", section, key], &default.yaml()) || is_changed
            });
        if !is_changed {
            return Ok(payload.clone());
        }
        let mut out = Emitter::new();
        if let Yaml::Mapping(keys) = &root {
            emit_keys(keys, &mut out);
        }
        Ok(out.finish())
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

/// A default that is not the zero value of its type.
enum KeyDefault {
    Int(i64),
    Bool(bool),
    Text(&'static str),
}

impl KeyDefault {
    fn yaml(&self) -> Yaml {
        match *self {
            Self::Int(value) => value.into(),
            Self::Bool(value) => value.into(),
            Self::Text(value) => value.into(),
        }
    }
}

/// Section, key and default of every key whose default is not zero; a test compares them with the records above.
const DEFAULTS: [(&str, &str, KeyDefault); 7] = [
    ("controller", "ciao_port", KeyDefault::Int(8889)),
    ("controller", "cnci_vcpus", KeyDefault::Int(4)),
    ("controller", "cnci_mem", KeyDefault::Int(2048)),
    ("controller", "cnci_disk", KeyDefault::Int(2048)),
    ("controller", "cnci_net", KeyDefault::Text("192.168.0.0")),
    ("launcher", "disk_limit", KeyDefault::Bool(true)),
    ("launcher", "mem_limit", KeyDefault::Bool(true)),
];

/// Puts a value where a path leads if there is none; whether it did. Mappings that are missing on the way are made.
fn fill_in(at: &mut Yaml, path: &[&str], value: &Yaml) -> bool {
    let Some((key, rest)) = path.split_first() else {
        let is_missing = at.is_null();
        if is_missing {
            *at = value.clone();
        }
        return is_missing;
    };
    if at.is_null() {
        *at = Yaml::Mapping(Mapping::new());
    }
    match at {
        Yaml::Mapping(keys) => {
            fill_in(keys.entry((*key).into()).or_insert(Yaml::Null), rest, value)
        }
        _ => false,
    }
}

fn emit_keys(keys: &Mapping, out: &mut Emitter) {
    for (key, value) in keys {
        match scalar_text(key) {
            Some(text) => out.key(&text),
            None => out.any_key(key.as_str().unwrap_or_default()),
        }
        emit_any(value, out);
    }
}

fn emit_any(value: &Yaml, out: &mut Emitter) {
    match value {
        Yaml::String(text) => out.string(text),
        Yaml::Sequence(items) => out.list(items, |out, item| emit_any(item, out)),
        Yaml::Mapping(keys) => out.mapping(|out| emit_keys(keys, out)),
        Yaml::Tagged(tagged) => emit_any(&tagged.value, out),
        Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) => {
            out.plain(&scalar_text(value).unwrap_or_default());
        }
    }
}

/// A scalar that needs no quotes, as text.
fn scalar_text(value: &Yaml) -> Option<String> {
    match value {
        Yaml::Null => Some("null".to_owned()),
        Yaml::Bool(value) => Some(value.to_string()),
        Yaml::Number(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let payload = Configuration::with_defaults(&Bytes::copy_from_slice(text.as_bytes()));
        String::from_utf8(payload.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn what_is_missing_has_the_default_and_the_rest_stays() {
        let text = "configure:\n  scheduler:\n    storage_uri: file:///x\n    other: ['1:30', \"yes\", 2.5, null]\n  \
                    controller:\n    ciao_port: 7000\n    cnci_mem:\n  launcher: {mem_limit: false}\n";
        let out = filled(text);
        let read = Configuration::decode(out.as_bytes()).unwrap();
        let mut expected = Configuration::decode(text.as_bytes()).unwrap();
        expected.controller.cnci_mem = 2048;
        assert_eq!(read, expected);
        let yaml: Yaml = serde_yaml::from_str(&out).unwrap();
        let other = &yaml["configure"]["scheduler"]["other"];
        assert_eq!(
            other,
            &serde_yaml::from_str::<Yaml>("['1:30', 'yes', 2.5, null]").unwrap()
        );
        // Quoted, because readers of YAML 1.1 take them for a number and a truth value.
        assert!(out.contains("\"1:30\"") && out.contains("\"yes\""), "{out}");
        for key in [
            "cnci_vcpus: 4",
            "cnci_disk: 2048",
            "disk_limit: true",
            "mem_limit: false",
            "ciao_port: 7000",
        ] {
            assert!(out.contains(key), "{key} in {out}");
        }
    }

    #[test]
    fn a_configuration_with_every_key_keeps_its_bytes() {
        let whole = Configuration::default().encode();
        assert_eq!(Configuration::with_defaults(&whole).unwrap(), whole);
        let commented = [&b"# by hand\n"[..], &whole].concat();
        let commented = Bytes::from(commented);
        assert_eq!(Configuration::with_defaults(&commented).unwrap(), commented);
    }

    #[test]
    fn a_key_that_stands_twice_loses_nothing_that_is_known() {
        let out = filled("configure:\n  launcher: {child_user: b, theirs: a, theirs: c}\n");
        let read = Configuration::decode(out.as_bytes()).unwrap();
        assert_eq!(read.launcher.child_user, "b");
        assert!(out.contains("ciao_port: 8889"), "{out}");
        let known = b"configure:\n  launcher: {child_user: a, child_user: b}\n";
        assert!(Configuration::decode(known).is_err());
    }

    #[test]
    fn the_defaults_are_those_of_the_records() {
        for text in [
            "",
            "configure:\n",
            "configure: {}\n",
            "configure: {launcher: }\n",
        ] {
            let filled = filled(text);
            assert_eq!(
                Configuration::decode(filled.as_bytes()).unwrap(),
                Configuration::default()
            );
            assert_eq!(
                Yaml::Null,
                serde_yaml::from_str::<Yaml>(&filled).unwrap()["configure"]["x"]
            );
            let count = DEFAULTS
                .iter()
                .filter(|(_, key, _)| filled.contains(&format!("{key}: ")));
            assert_eq!(count.count(), DEFAULTS.len(), "{filled}");
        }
        // Every default of the records that is not zero stands in the list: the rest decodes from nothing but zeros.
        let zeros = DEFAULTS.iter().fold(
            String::from("configure:\n"),
            |text, (section, key, default)| {
                let zero = match default {
                    KeyDefault::Int(_) => "0",
                    KeyDefault::Bool(_) => "false",
                    KeyDefault::Text(_) => "''",
                };
                let head = format!("  {section}:\n");
                let at = text.find(&head).map(|at| at + head.len());
                let line = format!("    {key}: {zero}\n");
                match at {
                    Some(at) => format!("{}{line}{}", &text[..at], &text[at..]),
                    None => format!("{text}{head}{line}"),
                }
            },
        );
        let zeros = Configuration::decode(zeros.as_bytes()).unwrap();
        let text = String::from_utf8(zeros.encode().to_vec()).unwrap();
        for line in text.lines().filter(|line| line.starts_with("    ")) {
            let value = line.split_once(": ").map_or("", |(_, value)| value);
            assert!(matches!(value, "0" | "false" | "\"\"" | "[]"), "{line}");
        }
    }
}
