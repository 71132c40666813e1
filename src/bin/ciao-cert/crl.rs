//! Keeping an anchor's revocation list: revoking certificates, and signing the list again before it is out of date.
//!
//! The list that is there is read first and kept on: its number rises, and its entries stay. The file is replaced in one
//! step, and the anchor's file is locked meanwhile, so that of two that revoke at once neither loses the other's entry.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::crl::is_negative;
use ciao_scheduler::cert::files::{self, Existing, PUBLIC_MODE};
use ciao_scheduler::cert::{Anchor, RevocationList};
use ciao_scheduler::net::tls::TrustAnchors;
use ciao_scheduler::net::tls::pem::certificates;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::{CliError, print_line, read};
use crate::flags::Cli;

impl Cli {
    /// Adds the CERTIFICATES and serial numbers to the anchor's list, if any are given, and signs it.
    ///
    /// Prints what was revoked, then the list's file and until when it counts. Nothing is written if one of the
    /// certificates is not the anchor's.
    pub(crate) fn keep_list(&self, path: &Path) -> Result<(), CliError> {
        let anchor = self.load(path)?;
        let lock = |source| CliError::Lock {
            path: path.into(),
            source,
        };
        let locked = File::open(path).map_err(lock)?;
        locked.lock().map_err(lock)?;
        let place = self.list_file(path, &anchor)?;
        let mut list = match fs::read(&place) {
            Ok(contents) => {
                RevocationList::read(&contents, &anchor).map_err(|source| CliError::List {
                    path: place.clone(),
                    source,
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => RevocationList::default(),
            Err(source) => {
                return Err(CliError::Read {
                    path: place,
                    source,
                });
            }
        };
        let now = SystemTime::now();
        let mut lines = Vec::new();
        let reason = self.reason.unwrap_or_default();
        let serials = self.serials(&anchor)?;
        for (what, serial) in serials {
            lines.push(match list.revoke(&serial, now, reason) {
                true => format!("{what}: revoked"),
                false => format!("{what}: revoked before"),
            });
        }
        let lifetime = Duration::from_secs(u64::from(self.crl_days) * 24 * 60 * 60);
        let signed = list.sign(&anchor, now, lifetime)?;
        if let Some(directory) = place.parent() {
            fs::create_dir_all(directory).map_err(|source| CliError::Directory {
                path: directory.into(),
                source,
            })?;
        }
        files::write(&place, &signed, PUBLIC_MODE, Existing::Replace)?;
        drop(locked);
        for line in lines {
            print_line(line)?;
        }
        let revoked = match list.len() {
            0 => "no certificate is revoked".to_owned(),
            1 => "1 certificate is revoked".to_owned(),
            count => format!("{count} certificates are revoked"),
        };
        let days = self.crl_days;
        print_line(format_args!(
            "{}\n    revocation list, every program's -crl: {revoked}; to be renewed within {days} days (-renew-crl)",
            place.display()
        ))
    }

    /// Where the list is: what `-crl` says, or else a name like the CA file's.
    fn list_file(&self, path: &Path, anchor: &Anchor) -> Result<PathBuf, CliError> {
        if let Some(named) = self.crl.first() {
            return Ok(named.clone());
        }
        let of_anchor = |source| CliError::Anchor {
            path: path.into(),
            source,
        };
        let spec = anchor.spec().map_err(of_anchor)?;
        let name = match path.file_name().and_then(|name| name.to_str()) {
            // One for signing alone has no host in it: its file has.
            Some(file) if spec.roles.is_empty() => file.replacen("anchor-", "CRL-", 1),
            _ => spec.crl_file_name(),
        };
        let name = match path.file_name().is_some_and(|file| *file == *name) {
            true => format!("CRL-{name}"),
            false => name,
        };
        Ok(match &self.directory {
            Some(directory) => directory.join(name),
            None => path.with_file_name(name),
        })
    }

    /// What is to be revoked: a name for each, and its serial number.
    fn serials(&self, anchor: &Anchor) -> Result<Vec<(String, Vec<u8>)>, CliError> {
        let mut serials = Vec::new();
        for path in &self.certificates {
            let refused = |reason: String| CliError::NotRevoked {
                path: path.clone(),
                reason,
            };
            let chain = certificates(&read(path)?).map_err(|error| refused(error.to_string()))?;
            let serial = self.serial_of(&chain[0], anchor).map_err(refused)?;
            serials.push((path.display().to_string(), serial));
        }
        for serial in &self.serial {
            // Written as in a certificate, where a first bit would make it negative.
            let mut bytes = serial.0.clone();
            if is_negative(&bytes) {
                bytes.insert(0, 0);
            }
            let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            serials.push((digits.join(":"), bytes));
        }
        Ok(serials)
    }

    /// The serial number of a certificate that this anchor has signed.
    ///
    /// Also of one that is out of time. The anchor's own only with `-force`: peers that read the list then take nothing
    /// any more that it has signed.
    fn serial_of(&self, leaf: &CertificateDer<'_>, anchor: &Anchor) -> Result<Vec<u8>, String> {
        let (_, x509) = X509Certificate::from_der(leaf).map_err(|error| error.to_string())?;
        let serial = x509.raw_serial();
        if is_negative(serial) {
            return Err("its serial number is negative, which a list cannot name".to_owned());
        }
        if *leaf == *anchor.certified().der() {
            return match self.force {
                true => Ok(serial.to_vec()),
                false => Err(
                    "it is the anchor itself, and with it everything it has signed would be refused; take it out of the CA \
                     files instead, or say -force"
                        .to_owned(),
                ),
            };
        }
        let ca = Path::new("the anchor");
        let anchors = TrustAnchors::from_pem(anchor.ca_pem().as_bytes(), ca, UnixTime::now());
        let anchors = anchors.map_err(|error| error.to_string())?;
        match anchors.have_signed(leaf) {
            true => Ok(serial.to_vec()),
            false => Err("it is not signed by this anchor".to_owned()),
        }
    }
}
