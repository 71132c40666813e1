//! What certificates are held against: the revocation lists of all CAs that have one, and what a session keeps of its
//! peer's chain to be held against later ones.
//!
//! Every certificate of a chain is looked up with the CA that has signed it, and a CA is a name *and* a key: with an old
//! and a new anchor of one name, each certificate is held against the list of the key that verifies it. `webpki` would
//! take the first list of that name. Certificates of a CA without a list are let in: lists are a matter of each CA. A CA
//! that has one is always held against it, also where it is out of date ([`StaleCrls`]).
//!
//! ```text
//! handshake    verify ── each (CA, serial) of webpki's path ──▶ Crls::check
//! session      TrustAnchors::chain ──▶ PeerChain, kept ──▶ TrustAnchors::revocation, after each reload
//! ```

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use tracing::{error, warn};

use super::authority::{CaId, Link};
use super::crl::{CrlError, Head, VerifiedCrl, moment};
use super::{TlsError, file_name};

/// What is done about certificates of a CA whose list goes out of date while it is in use. One that is out of date when
/// it is read is refused in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StaleCrls {
    /// They are refused in handshakes until there is a new list.
    #[default]
    Refuse,
    /// They are held against the old list; a warning is logged.
    Warn,
}

/// What a session keeps of its peer's chain: each certificate by its CA and serial number, and the anchor. 32 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerChain(pub(super) Box<[Link]>);

/// That a certificate is revoked: `revoked 2026-11-27T15:00:00Z (keyCompromise), by crl.pem`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The file of the list that says so.
    pub list: PathBuf,
    /// Since when, in seconds of Unix time.
    pub since_s: u64,
    /// Why, by its name in RFC 5280; `None` where the list does not say.
    pub reason: Option<&'static str>,
}

/// The lists in use.
#[derive(Debug, Default)]
pub(super) struct Crls {
    lists: HashMap<CaId, List>,
    /// All that is revoked, of all CAs. Anchors that are revoked are there as CAs as well.
    revoked: HashMap<Link, Revoked>,
    stale: StaleCrls,
}

#[derive(Debug)]
struct List {
    head: Head,
    /// Whether it was said that it is out of date.
    is_said: AtomicBool,
}

/// Where to find what there is to say of it.
#[derive(Debug, Clone, Copy)]
struct Revoked {
    by: CaId,
    at: UnixTime,
    reason: Option<&'static str>,
}

impl Crls {
    /// The newest list of each CA, and what they revoke.
    pub(super) fn new(lists: Vec<VerifiedCrl>, stale: StaleCrls) -> Self {
        let mut crls = Self {
            stale,
            ..Self::default()
        };
        let mut newest: HashMap<CaId, VerifiedCrl> = HashMap::new();
        for list in lists {
            match newest.get(&list.head.ca) {
                Some(other) if other.head.edition >= list.head.edition => {}
                _ => drop(newest.insert(list.head.ca, list)),
            }
        }
        for (by, VerifiedCrl { head, entries }) in newest {
            for entry in entries {
                let (at, reason) = (entry.at, entry.reason);
                let revoked = Revoked { by, at, reason };
                crls.revoked.insert(by.certificate(&entry.serial), revoked);
            }
            let is_said = AtomicBool::new(false);
            crls.lists.insert(by, List { head, is_said });
        }
        crls
    }

    /// Takes an anchor for revoked whose certificates all are.
    pub(super) fn revoke_anchor(&mut self, anchor: CaId, like: Link) {
        if let Some(revoked) = self.revoked.get(&like).copied() {
            self.revoked.insert(anchor.link(), revoked);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Holds the certificate of a CA against its list, if it has one.
    ///
    /// # Errors
    /// It is revoked, or the list is out of date and that counts.
    pub(super) fn check(
        &self,
        ca: CaId,
        serial: &[u8],
        time: UnixTime,
    ) -> Result<(), CertificateError> {
        let Some(list) = self.lists.get(&ca) else {
            return Ok(());
        };
        if self.revoked.contains_key(&ca.certificate(serial)) {
            return Err(CertificateError::Revoked);
        }
        let next_update = list.head.next_update;
        if time < next_update {
            return Ok(());
        }
        list.say_stale(self.stale);
        match self.stale {
            StaleCrls::Warn => Ok(()),
            StaleCrls::Refuse => {
                Err(CertificateError::ExpiredRevocationListContext { time, next_update })
            }
        }
    }

    /// What revokes this, if anything does.
    pub(super) fn revocation(&self, link: Link) -> Option<Revocation> {
        let revoked = self.revoked.get(&link)?;
        let list = self.lists.get(&revoked.by)?;
        Some(Revocation {
            list: list.head.path.clone(),
            since_s: revoked.at.as_secs(),
            reason: revoked.reason,
        })
    }

    /// Each list's file and when it ends, in seconds of Unix time; the first to end first.
    pub(super) fn expiries(&self) -> Vec<(String, i64)> {
        let heads = self.lists.values().map(|list| &list.head);
        let mut expiries: Vec<_> = heads
            .map(|head| {
                let end = i64::try_from(head.next_update.as_secs()).unwrap_or(i64::MAX);
                (end, file_name(&head.path))
            })
            .collect();
        expiries.sort();
        expiries
            .into_iter()
            .map(|(end, name)| (name, end))
            .collect()
    }

    /// Whether these may take the place of `earlier` ones: no CA of the new anchors loses its list, and none gets an
    /// older one.
    ///
    /// # Errors
    /// The list that is missing or older, with its file.
    pub(super) fn check_follow(
        &self,
        earlier: &Self,
        is_anchor: impl Fn(CaId) -> bool,
    ) -> Result<(), TlsError> {
        for (ca, List { head: before, .. }) in &earlier.lists {
            let issuer = before.issuer.clone();
            let (path, source) = match self.lists.get(ca) {
                None if !is_anchor(before.anchor) => continue,
                None => (before.path.clone(), CrlError::Missing { issuer }),
                Some(List { head: now, .. }) if now.edition < before.edition => {
                    let (number, in_use) = (now.edition.number(), before.edition.number());
                    let older = CrlError::Older {
                        issuer,
                        number,
                        in_use,
                    };
                    (now.path.clone(), older)
                }
                Some(_) => continue,
            };
            return Err(TlsError::Crl {
                path,
                line: None,
                source,
            });
        }
        Ok(())
    }
}

impl List {
    /// Once for each list: it is looked at in every handshake.
    fn say_stale(&self, stale: StaleCrls) {
        if self.is_said.swap(true, Ordering::Relaxed) {
            return;
        }
        let path = self.head.path.display();
        let (issuer, end) = (&self.head.issuer, moment(self.head.next_update));
        match stale {
            StaleCrls::Refuse => error!(
                event = "crl_expired",
                "{path}: the revocation list of {issuer} is out of date since {end}: new connections with certificates of \
                 that CA are refused until there is a new list (ciao-cert -renew-crl), and this program has read it"
            ),
            StaleCrls::Warn => warn!(
                event = "crl_expired",
                "{path}: the revocation list of {issuer} is out of date since {end}, and certificates go on being held \
                 against it (--crl-expired warn); make a new one (ciao-cert -renew-crl)"
            ),
        }
    }
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = std::time::Duration::from_secs(self.since_s);
        let since = moment(UnixTime::since_unix_epoch(since));
        write!(f, "revoked {since}")?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        write!(f, ", by {}", self.list.display())
    }
}
