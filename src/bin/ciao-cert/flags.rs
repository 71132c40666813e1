//! The command line of `ciao-cert`: the original's flags with what this project adds, and the certificate they describe.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::crl::{DEFAULT_CRL_DAYS, Reason, parse_serial};
use ciao_scheduler::cert::spec::{BACKDATE, parse_roles};
use ciao_scheduler::cert::{KeyAlgorithm, Shape, Spec};
use clap::{Parser, ValueEnum};
use proto_frames::{Role, Uuid};

use crate::error::CliError;

/// The roles of launchers.
const NODE_ROLES: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);

const EXAMPLES: &str = "\
Flags may have one dash or two, and their value behind `=` or a space.

Examples:
  ciao-cert -all -directory certs
      everything a cluster on this machine needs
  ciao-cert -anchor -role scheduler -host sched.example -ip 192.0.2.1
      the trust anchor: CAcert-sched.example.pem and cert-Scheduler-sched.example.pem
  ciao-cert -anchor-cert cert-Scheduler-sched.example.pem -role agent,netagent -host node7.example -verify
      a launcher's certificate, cert-CNAgent-NetworkingAgent-node7.example.pem, checked after it is made
  ciao-cert -anchor-cert cert-Scheduler-sched.example.pem -node node7.example
      a certificate for the launcher on node7.example alone, bound to a new UUID; with -force for another year, it keeps
      the UUID that it had
  ciao-cert -verify -anchor-cert CAcert-sched.example.pem cert-*.pem
      check certificates that are there already
  ciao-cert -dump cert-Controller-localhost.pem
  ciao-cert -revoke -anchor-cert cert-Scheduler-sched.example.pem -reason keyCompromise cert-CNAgent-node7.example.pem
      revoke a certificate: the anchor's list, CRL-sched.example.pem beside it, is what --crl of all programs takes
  ciao-cert -renew-crl -anchor-cert cert-Scheduler-sched.example.pem
      the same list with a new date, before it is out of date
  ciao-cert -verify -anchor-cert CAcert-sched.example.pem -crl CRL-sched.example.pem cert-*.pem
      check certificates, and whether they are revoked
  ciao-cert -anchor -offline -host example -organization Example
      a trust anchor that no scheduler presents, to be kept where nothing runs; then -anchor-cert anchor-example.pem
      makes the certificates of schedulers too

`ciao-cert revoke` and `ciao-cert crl` are -revoke and -renew-crl.

Exit codes: 0 done; 1 failed; 2 wrong command line; 3 a certificate does not verify; 4 a file exists already
(nothing was written then; -force overwrites).";

/// Makes, checks and shows the certificates of SSNTP peers.
#[derive(Debug, Parser)]
#[command(name = "ciao-cert", version = ciao_scheduler::VERSION, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Make the trust anchor: the CA certificate, which is also the scheduler's own.
    #[arg(long, alias = "server", conflicts_with_all = ["anchor_cert", "all", "dump"])]
    pub(crate) anchor: bool,
    /// With -anchor: make one that signs alone and is no scheduler's certificate. Its names are for its files.
    #[arg(long, requires = "anchor", conflicts_with_all = ["role", "ip", "email", "uuid", "original_shape"])]
    pub(crate) offline: bool,
    /// Sign with this anchor (its file with the key); with -verify and CERTIFICATES, check against it (no key needed).
    #[arg(
        long,
        alias = "server-cert",
        value_name = "FILE",
        conflicts_with = "dump"
    )]
    pub(crate) anchor_cert: Option<PathBuf>,
    /// Replace the certificate of the anchor in this file by a new one for the same key, names and roles: what it has signed stays
    /// valid. Peers need the new CA file where the scheduler presents the anchor.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["anchor", "anchor_cert", "all", "dump", "node", "role", "host", "ip", "email", "organization", "uuid", "original_shape", "certificates"])]
    pub(crate) renew: Option<PathBuf>,
    /// Revoke the CERTIFICATES in the anchor's revocation list: no program that reads the list takes them any more.
    #[arg(long, requires = "anchor_cert", conflicts_with_all = MAKES_AND_SHOWS)]
    pub(crate) revoke: bool,
    /// With -revoke: serial numbers of certificates whose files are lost, as -dump shows them, separated by commas.
    #[arg(long, value_name = "SERIALS", value_delimiter = ',', value_parser = serial, requires = "revoke")]
    pub(crate) serial: Vec<Serial>,
    /// With -revoke: why; keyCompromise, cACompromise, affiliationChanged, superseded, cessationOfOperation or
    /// privilegeWithdrawn.
    #[arg(long, value_name = "REASON", value_parser = Reason::parse, requires = "revoke")]
    pub(crate) reason: Option<Reason>,
    /// Sign the anchor's revocation list again with a new date, or make a first one that revokes nothing.
    #[arg(long, requires = "anchor_cert", conflicts_with_all = MAKES_AND_SHOWS)]
    pub(crate) renew_crl: bool,
    /// Days until the revocation list is out of date, but no longer than its anchor: by then there has to be a new one.
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULT_CRL_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) crl_days: u32,
    /// With -verify: revocation lists to check against, files or directories; may be repeated. With -revoke and -renew-crl:
    /// the anchor's list [default: CRL-HOST.pem beside the anchor's file, or in -directory]
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) crl: Vec<PathBuf>,
    /// Make a certificate for the launcher of this node alone, bound to a UUID: the one that -uuid gives, or that of the
    /// file which -force replaces, or a new one. Its role is agent unless -role says otherwise.
    #[arg(long, value_name = "NAME", requires = "anchor_cert", conflicts_with_all = ["all", "dump", "host"])]
    pub(crate) node: Option<String>,
    /// Make a full set: the anchor (unless -anchor-cert gives one), and a certificate for each kind of client.
    #[arg(long, conflicts_with_all = ["dump", "role", "uuid"])]
    pub(crate) all: bool,
    /// Print what a file of certificates or a revocation list holds.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["verify", "role", "certificates", "crl"])]
    pub(crate) dump: Option<PathBuf>,
    /// Check what was made; alone, check the CERTIFICATES.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Roles, separated by commas: agent, scheduler, controller, netagent, server, cnciagent, viewer.
    #[arg(long, value_name = "ROLES", value_parser = parse_roles)]
    pub(crate) role: Option<Role>,
    /// Host names, separated by commas; the first is in the file's name.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub(crate) host: Vec<String>,
    /// IP addresses, separated by commas.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub(crate) ip: Vec<String>,
    /// An e-mail address to put in.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) email: Option<String>,
    /// The organisation, which is the whole subject. By default the anchor's; for an anchor `ciao`.
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: Option<String>,
    /// Where the files go; made if it is not there [default: .; with -renew in place of the old ones]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Days the certificate is valid, but no longer than its anchor.
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// Bind the certificate to this UUID: only the peer with this UUID may use it, and no other peer may claim the UUID.
    #[arg(long, value_name = "UUID")]
    pub(crate) uuid: Option<Uuid>,
    /// Kind of private key.
    #[arg(long, value_enum, default_value_t = KeyType::P256)]
    pub(crate) key_type: KeyType,
    /// An RSA key of 2048 bits, as the original makes by default; short for -key-type rsa.
    #[arg(long, conflicts_with_all = ["key_type", "elliptic_key"])]
    pub(crate) rsa: bool,
    /// An elliptic-curve key. It is the default; the original's flag is accepted.
    #[arg(long)]
    pub(crate) elliptic_key: bool,
    /// Leave the key identifiers of leaves out, as the original does.
    #[arg(long)]
    pub(crate) original_shape: bool,
    /// Refuse an anchor whose private key others can read, rather than warn of it.
    #[arg(long)]
    pub(crate) strict_files: bool,
    /// Overwrite files that are there.
    #[arg(long)]
    pub(crate) force: bool,
    /// With -verify: the files to check; with -revoke: the files of those to revoke.
    #[arg(value_name = "CERTIFICATES")]
    pub(crate) certificates: Vec<PathBuf>,
}

/// What does not go together with -revoke and -renew-crl.
const MAKES_AND_SHOWS: [&str; 12] = [
    "anchor",
    "all",
    "dump",
    "renew",
    "node",
    "role",
    "host",
    "ip",
    "email",
    "organization",
    "uuid",
    "verify",
];

/// A serial number as it is written in a certificate, without zeros that say that it is positive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Serial(pub(crate) Vec<u8>);

/// As `-serial` takes it.
fn serial(text: &str) -> Result<Serial, String> {
    parse_serial(text).map(Serial)
}

/// Kinds of private key by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-521, as the original's -elliptic-key makes.
    P521,
    /// RSA with 2048 bits.
    Rsa,
}

impl Cli {
    /// What the command line lacks.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let keeps_list = self.revoke || self.renew_crl;
        let makes_one = self.dump.is_none()
            && self.renew.is_none()
            && !keeps_list
            && !self.all
            && self.certificates.is_empty();
        if self.revoke && self.renew_crl {
            return Some("-revoke signs the list with a new date already; leave -renew-crl out");
        }
        if self.revoke && self.certificates.is_empty() && self.serial.is_empty() {
            return Some("missing the CERTIFICATES to revoke, or -serial");
        }
        if keeps_list && self.crl.len() > 1 {
            return Some("an anchor has one revocation list; give one -crl");
        }
        if !self.certificates.is_empty() && !self.revoke && !self.verify {
            return Some("CERTIFICATES are for -verify or -revoke");
        }
        if !self.crl.is_empty() && !keeps_list && self.certificates.is_empty() {
            return Some("-crl is for -verify with CERTIFICATES, -revoke and -renew-crl");
        }
        if !self.certificates.is_empty() && (self.anchor || self.all) {
            return Some("files to check and files to make do not go together");
        }
        if !self.certificates.is_empty() && self.anchor_cert.is_none() {
            return Some("missing -anchor-cert, the CA to check against");
        }
        if makes_one && self.anchor_cert.is_none() && !self.anchor {
            return Some("missing -anchor, -anchor-cert, -renew, -all or -dump");
        }
        if self.node.is_some() && !NODE_ROLES.contains(self.role.unwrap_or_default()) {
            return Some("-node is for launchers, whose roles are agent and netagent");
        }
        if makes_one && !self.anchor && self.node.is_none() && self.role.is_none() {
            return Some("missing -role");
        }
        if makes_one && self.names().iter().all(|name| name.trim().is_empty()) {
            return Some("missing -host");
        }
        None
    }

    /// Whom the certificate is for: hosts, among which may be IP addresses.
    pub(crate) fn names(&self) -> &[String] {
        self.node.as_ref().map_or(&self.host, std::slice::from_ref)
    }

    /// When what is made begins to be valid, and for how long it is.
    pub(crate) fn validity(&self) -> (SystemTime, Duration) {
        let days = Duration::from_secs(u64::from(self.days) * 24 * 60 * 60);
        (SystemTime::now() - BACKDATE, days + BACKDATE)
    }

    pub(crate) fn spec(&self, roles: Role) -> Result<Spec, CliError> {
        let given = |texts: &[String]| {
            texts
                .iter()
                .map(|text| text.trim().to_owned())
                .filter(|t| !t.is_empty())
                .collect::<Vec<_>>()
        };
        let (host_ips, hosts): (Vec<_>, Vec<_>) = given(self.names())
            .into_iter()
            .partition(|host| host.parse::<IpAddr>().is_ok());
        let ips = host_ips.into_iter().chain(given(&self.ip));
        let ips = ips
            .map(|text| text.parse().map_err(|_| CliError::BadIp(text)))
            .collect::<Result<Vec<_>, _>>()?;
        let defaults = Spec::localhost(roles);
        let (not_before, lifetime) = self.validity();
        let is_this_machine = self.all && hosts.is_empty() && ips.is_empty();
        let roles = match self.offline {
            true => Role::default(),
            false => roles,
        };
        Ok(Spec {
            hosts: if is_this_machine {
                defaults.hosts
            } else {
                hosts
            },
            ips: if is_this_machine { defaults.ips } else { ips },
            emails: self.email.iter().cloned().collect(),
            organization: self.organization.clone(),
            uuid: self.uuid,
            key: match self.key_type {
                _ if self.rsa => KeyAlgorithm::Rsa2048,
                KeyType::P256 => KeyAlgorithm::EcdsaP256,
                KeyType::P521 => KeyAlgorithm::EcdsaP521,
                KeyType::Rsa => KeyAlgorithm::Rsa2048,
            },
            not_before,
            lifetime,
            shape: if self.original_shape {
                Shape::Original
            } else {
                Shape::Identified
            },
            roles,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Cli::command().debug_assert();
    }
}
