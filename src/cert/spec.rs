//! What a certificate is for: its roles, names, key and validity; and the file names that follow from them.
//!
//! A [`Spec`] does not say who signs: the same specification makes an anchor or a leaf. Names are checked when the
//! certificate is made, not here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use proto_frames::{Role, Uuid};

use crate::cert::key::KeyAlgorithm;

/// How long a certificate is valid unless said otherwise: 365 days, as the original's tool has it.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How far the start of the validity lies before the making, so that a machine whose clock is a little behind accepts
/// a certificate made a moment ago.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);

/// The organisation of an anchor for which none is given.
pub const DEFAULT_ORGANIZATION: &str = "ciao";

/// What a certificate is for.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Roles to grant; each becomes an OID in the extended key usage. None: an anchor for signing alone.
    pub roles: Role,
    /// DNS names; the first one is in the file name.
    pub hosts: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// E-mail addresses; they are not checked, the original's tool puts one in.
    pub emails: Vec<String>,
    /// The only part of the subject. `None`: the anchor's own, and [`DEFAULT_ORGANIZATION`] for an anchor.
    pub organization: Option<String>,
    /// Binds the certificate to one peer: the UUID it must claim in CONNECT (`URI:urn:uuid:…`).
    pub uuid: Option<Uuid>,
    /// Kind of private key.
    pub key: KeyAlgorithm,
    /// Start of the validity.
    pub not_before: SystemTime,
    /// Length of the validity; cut at the anchor's end when it signs.
    pub lifetime: Duration,
    /// Whether to add what the original's tool leaves out.
    pub shape: Shape,
}

/// Which extensions a leaf carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// With subject and authority key identifiers, so that OpenSSL can tell a leaf whose subject equals its issuer from
    /// a self-signed certificate, and with `serverAuth` and `clientAuth`, without which curl, Python and browsers
    /// refuse it for HTTPS. Original peers accept it.
    #[default]
    Identified,
    /// Exactly what the original's tool makes: no key identifiers on leaves, no usage but `anyExtendedKeyUsage` and
    /// roles.
    Original,
}

impl Spec {
    /// A certificate for these roles on this machine alone: `localhost`, 127.0.0.1 and ::1, an ECDSA P-256 key, valid
    /// from now ([`BACKDATE`]) for [`DEFAULT_LIFETIME`].
    #[must_use]
    pub fn localhost(roles: Role) -> Self {
        Self {
            roles,
            hosts: vec!["localhost".to_owned()],
            ips: vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            emails: Vec::new(),
            organization: None,
            uuid: None,
            key: KeyAlgorithm::default(),
            not_before: SystemTime::now() - BACKDATE,
            lifetime: DEFAULT_LIFETIME + BACKDATE,
            shape: Shape::default(),
        }
    }

    /// The name the original's tool gives the file with certificate and key: `cert-CNAgent-localhost.pem`.
    ///
    /// The part behind the roles is the first host, else the first IP address, else `unnamed`.
    ///
    /// Without roles it is that of an anchor for signing alone: `anchor-example.pem`.
    #[must_use]
    pub fn file_name(&self) -> String {
        match self.roles.is_empty() {
            true => format!("anchor-{}.pem", self.first_host()),
            false => format!("cert-{}-{}.pem", role_names(self.roles), self.first_host()),
        }
    }

    /// The name of the file with the anchor's revocation list: `CRL-localhost.pem`.
    #[must_use]
    pub fn crl_file_name(&self) -> String {
        format!("CRL-{}.pem", self.first_host())
    }

    /// The name of the file with the anchor's certificate alone: `CAcert-localhost.pem`.
    #[must_use]
    pub fn ca_file_name(&self) -> String {
        format!("CAcert-{}.pem", self.first_host())
    }

    /// Part of a file name. It is not escaped: a host name that is a path has been refused as a DNS name by then.
    fn first_host(&self) -> String {
        let host = self.hosts.first().cloned();
        host.or_else(|| self.ips.first().map(IpAddr::to_string))
            .unwrap_or_else(|| "unnamed".to_owned())
    }
}

/// The roles' names as file names have them, in the order of their bits, joined by `-`: `CNAgent-NetworkingAgent`.
///
/// Empty for no role.
#[must_use]
pub fn role_names(roles: Role) -> String {
    let mut granted: Vec<_> = Role::GRANTS
        .iter()
        .filter(|(role, ..)| roles.contains(*role))
        .collect();
    granted.sort_by_key(|(role, ..)| role.0);
    granted
        .iter()
        .map(|(.., name)| *name)
        .collect::<Vec<_>>()
        .join("-")
}

/// Reads a role list as the original's `-role` flag has it: `agent,netagent`.
///
/// Case does not matter. An empty part is an error, since it is no name.
///
/// # Errors
/// The name that is none, for people.
pub fn parse_roles(text: &str) -> Result<Role, String> {
    const NAMES: [(&str, Role); 7] = [
        ("agent", Role::AGENT),
        ("scheduler", Role::SCHEDULER),
        ("controller", Role::CONTROLLER),
        ("netagent", Role::NETAGENT),
        ("server", Role::SERVER),
        ("cnciagent", Role::CNCIAGENT),
        ("viewer", Role::VIEWER),
    ];
    text.split(',').map(str::trim).try_fold(Role::default(), |roles, name| {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, role)| roles | *role).ok_or_else(|| {
            format!("no role {name:?}; roles are agent, scheduler, controller, netagent, server, cnciagent, viewer")
        })
    })
}

#[cfg(test)]
mod tests {
    use proto_frames::Role;

    use super::{Spec, parse_roles};

    #[test]
    fn file_names_are_the_originals() {
        let name = |roles| Spec::localhost(roles).file_name();
        assert_eq!(
            name(Role::AGENT | Role::NETAGENT),
            "cert-CNAgent-NetworkingAgent-localhost.pem"
        );
        assert_eq!(
            name(Role::SCHEDULER | Role::SERVER),
            "cert-Server-Scheduler-localhost.pem"
        );
        assert_eq!(
            Spec::localhost(Role::SCHEDULER).ca_file_name(),
            "CAcert-localhost.pem"
        );
    }

    #[test]
    fn role_lists_are_read_in_any_case_and_unknown_names_are_refused() {
        assert_eq!(
            parse_roles("agent,NetAgent"),
            Ok(Role::AGENT | Role::NETAGENT)
        );
        assert!(
            parse_roles("agent,launcher")
                .unwrap_err()
                .contains("\"launcher\"")
        );
        assert!(parse_roles("").is_err());
    }
}
