//! Checking and showing certificates that are there already.
//!
//! Neither needs a private key, and neither changes a file.

use std::path::Path;

use ciao_scheduler::cert::describe::describe;
use ciao_scheduler::cert::spec::role_names;
use ciao_scheduler::net::identity::PeerIdentity;
use ciao_scheduler::net::tls::pem::certificates;
use ciao_scheduler::net::tls::{TrustAnchors, TrustFiles, explain_certificate, load_trust};
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use crate::error::{CliError, print_line, read};
use crate::flags::Cli;

impl Cli {
    /// Each of the files against the anchor; all are looked at, one failure is enough.
    ///
    /// A file that cannot be read ends it at once: its certificate is neither good nor bad. The exit code of a
    /// certificate that does not verify is [`CliError::NotVerified`]'s.
    pub(crate) fn verify_all(&self, anchor: &Path) -> Result<(), CliError> {
        let anchors = load_trust(&TrustFiles {
            crls: self.crl.clone(),
            ..TrustFiles::without_crls(anchor.into())
        })?;
        let mut failed = 0;
        for path in &self.certificates {
            match verify_one(&anchors, path)? {
                Ok(roles) => print_line(format_args!("{}: verified ({roles})", path.display()))?,
                Err(reason) => {
                    failed += 1;
                    print_line(format_args!("{}: NOT verified: {reason}", path.display()))?;
                }
            }
        }
        if failed == 0 {
            return Ok(());
        }
        let count = self.certificates.len();
        Err(CliError::NotVerified(format!(
            "{failed} of {count} not verified against {}",
            anchor.display()
        )))
    }
}

/// The names of the roles, or why it does not verify.
///
/// The outer error is about the file, the inner one about the certificate. The first certificate of a file is checked with
/// the others as intermediates; a certificate without a role does not verify, because every peer refuses it.
fn verify_one(anchors: &TrustAnchors, path: &Path) -> Result<Result<String, String>, CliError> {
    let contents = read(path)?;
    let chain = match certificates(&contents) {
        Ok(chain) => chain,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Err(error) = anchors.verify_chain(&chain[0], &chain[1..], UnixTime::now()) {
        let revocation = anchors.revocation(&anchors.chain(&chain));
        return Ok(Err(match (error, revocation) {
            (CertificateError::Revoked, Some(revocation)) => revocation.to_string(),
            (error, _) => explain_certificate(&error),
        }));
    }
    Ok(match PeerIdentity::from_der(&chain[0]) {
        Ok(identity) => Ok(role_names(identity.roles)),
        Err(error) => Err(error.to_string()),
    })
}

/// Prints what a file of certificates or a revocation list holds.
///
/// Damaged certificates are an error; certificates that no peer would accept are shown.
pub(crate) fn dump(path: &Path) -> Result<(), CliError> {
    let described = describe(&path.display().to_string(), &read(path)?);
    let text = described.map_err(|source| CliError::Describe {
        path: path.into(),
        source,
    })?;
    print_line(text.trim_end_matches('\n'))
}
