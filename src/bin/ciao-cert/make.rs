//! Making certificates and writing their files: all of a command's files or none.
//!
//! Three steps: find out which files there will be and refuse if one exists, make all certificates in memory, write
//! the files. A failure in the first two steps leaves no file behind. Only a failure of the system while writing can
//! leave some of them.

use std::fs;
use std::path::{Path, PathBuf};

use ciao_scheduler::cert::files::{self, Existing, PRIVATE_MODE, PUBLIC_MODE, WriteError};
use ciao_scheduler::cert::spec::role_names;
use ciao_scheduler::cert::{Anchor, CertifiedPem, Spec};
use ciao_scheduler::flags::complain;
use ciao_scheduler::net::identity::PeerIdentity;
use ciao_scheduler::net::tls::pem::certificates;
use ciao_scheduler::net::tls::{KeyFiles, TrustAnchors, explain_certificate};
use proto_frames::{Role, Uuid};
use rustls::pki_types::UnixTime;

use crate::error::{CliError, print_line, read};
use crate::flags::Cli;

/// The leaves that `-all` makes: one for each kind of client, and one for a launcher in both roles.
///
/// Peers share a certificate of their kind, except where a UUID is bound to it.
const ALL_LEAVES: [Role; 7] = [
    Role::CONTROLLER,
    Role::AGENT,
    Role::NETAGENT,
    Role(Role::AGENT.0 | Role::NETAGENT.0),
    Role::CNCIAGENT,
    Role::SERVER,
    Role::VIEWER,
];

/// A file to be written.
///
/// Nothing is written before all of them exist.
struct FileToWrite {
    /// In the directory of `-directory`.
    path: PathBuf,
    /// PEM, with a private key unless it is the CA file. Secret then.
    contents: String,
    /// [`PRIVATE_MODE`] for a file with a key.
    mode: u32,
    /// Printed below the path when the file is written.
    remark: String,
}

impl Cli {
    /// Makes what the command line asks for.
    ///
    /// Prints the path of each file and what it is for; with `-verify` a last line that says `verified`.
    pub(crate) fn make(&self) -> Result<(), CliError> {
        let outputs = if self.all {
            self.full_set()?
        } else if let Some(path) = &self.renew {
            self.renewed(path)?
        } else {
            self.one()?
        };
        self.write(&outputs)
    }

    /// The anchor, or one leaf.
    ///
    /// The anchor is two files, a leaf is one.
    fn one(&self) -> Result<Vec<FileToWrite>, CliError> {
        let spec = match &self.node {
            Some(_) => self.node_spec()?,
            None => self.spec(self.role.unwrap_or(Role::SCHEDULER))?,
        };
        let names = [spec.file_name(), spec.ca_file_name()];
        self.refuse_existing(if self.anchor { &names } else { &names[..1] })?;
        match &self.anchor_cert {
            Some(path) => {
                let anchor = self.load(path)?;
                Ok(vec![self.leaf(&anchor, &spec)?])
            }
            None => Ok(self.anchor_files(&Anchor::new(&spec)?, &spec)),
        }
    }

    /// A launcher's, bound to one UUID.
    ///
    /// The UUID is that of `-uuid`, else that of a file of the same name, else a random one.
    fn node_spec(&self) -> Result<Spec, CliError> {
        let mut spec = self.spec(self.role.unwrap_or(Role::AGENT))?;
        if spec.uuid.is_none() {
            // A node whose certificate is renewed stays the same node.
            let earlier = bound_uuid(&self.directory().join(spec.file_name()));
            spec.uuid = Some(earlier.unwrap_or_else(Uuid::new_v4));
        }
        Ok(spec)
    }

    /// With `-anchor-cert` only the leaves. All have the names of the anchor's specification.
    fn full_set(&self) -> Result<Vec<FileToWrite>, CliError> {
        let scheduler = self.spec(Role::SCHEDULER)?;
        let leaves = ALL_LEAVES.map(|roles| Spec {
            roles,
            ..scheduler.clone()
        });
        let mut names: Vec<_> = leaves.iter().map(Spec::file_name).collect();
        if self.anchor_cert.is_none() {
            names.extend([scheduler.ca_file_name(), scheduler.file_name()]);
        }
        self.refuse_existing(&names)?;
        // The anchor's files come first, as far as they are made here.
        let (anchor, mut outputs) = if let Some(path) = &self.anchor_cert {
            (self.load(path)?, Vec::new())
        } else {
            let anchor = Anchor::new(&scheduler)?;
            let files = self.anchor_files(&anchor, &scheduler);
            (anchor, files)
        };
        for leaf in &leaves {
            outputs.push(self.leaf(&anchor, leaf)?);
        }
        Ok(outputs)
    }

    /// Where the files go.
    fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("."))
    }

    /// Whether the renewed certificate takes the place of the old one: nothing but that is asked for.
    fn renews_in_place(&self) -> bool {
        self.renew.is_some() && self.directory.is_none()
    }

    /// An anchor's files, with a new certificate for the same key and names: the given file, and the CA file beside it.
    ///
    /// With `-directory` they are new files there, named after what the old certificate is for, which need not be the
    /// name of the given file.
    fn renewed(&self, path: &Path) -> Result<Vec<FileToWrite>, CliError> {
        let of_anchor = |source| CliError::Anchor {
            path: path.into(),
            source,
        };
        let anchor = self.load(path)?;
        let (not_before, lifetime) = self.validity();
        let renewed = anchor.renewed(not_before, lifetime).map_err(of_anchor)?;
        let spec = renewed.spec().map_err(of_anchor)?;
        let mut files = self.anchor_files(&renewed, &spec);
        if spec.roles.is_empty()
            && let [ca, own] = &mut files[..]
        {
            // It has no names: those of its files are all that it is called by.
            ca.path = self.directory().join(ca_file_beside(path));
            own.path = self.directory().join(path.file_name().unwrap_or_default());
        }
        if !self.renews_in_place() {
            let names: Vec<_> = files
                .iter()
                .filter_map(|file| Some(file.path.file_name()?.to_string_lossy().into_owned()))
                .collect();
            self.refuse_existing(&names)?;
            return Ok(files);
        }
        // Where a link leads: a rename would replace the link.
        let place = fs::canonicalize(path).map_err(|source| CliError::Directory {
            path: path.into(),
            source,
        })?;
        let [ca, own] = &mut files[..] else {
            return Ok(files);
        };
        ca.path = match spec.roles.is_empty() {
            true => place.with_file_name(ca_file_beside(&place)),
            false => place.with_file_name(spec.ca_file_name()),
        };
        own.path = place;
        Ok(files)
    }

    /// The CA file for all peers, and the file with the key, which is also the scheduler's certificate.
    fn anchor_files(&self, anchor: &Anchor, spec: &Spec) -> Vec<FileToWrite> {
        let ca = FileToWrite {
            path: self.directory().join(spec.ca_file_name()),
            contents: anchor.ca_pem().to_owned(),
            mode: PUBLIC_MODE,
            remark: "CA certificate without key: every peer's -cacert".to_owned(),
        };
        let mut own = self.private(spec, anchor.certified());
        if spec.roles.is_empty() {
            own.remark = "certificate and private key of the anchor, which signs alone (-anchor-cert): keep it where nothing \
                          runs"
                .to_owned();
        }
        vec![ca, own]
    }

    /// With `-verify` it is checked as a peer would check it, before it is written.
    fn leaf(&self, anchor: &Anchor, spec: &Spec) -> Result<FileToWrite, CliError> {
        let leaf = anchor.sign(spec)?;
        if self.verify {
            let ca = Path::new("the anchor");
            let anchors = TrustAnchors::from_pem(anchor.ca_pem().as_bytes(), ca, UnixTime::now())?;
            let verified = anchors.verify(leaf.der(), UnixTime::now());
            verified.map_err(|error| {
                CliError::NotVerified(format!(
                    "{}: {}",
                    spec.file_name(),
                    explain_certificate(&error)
                ))
            })?;
        }
        Ok(self.private(spec, &leaf))
    }

    /// The remark says what the certificate is for.
    fn private(&self, spec: &Spec, certified: &CertifiedPem) -> FileToWrite {
        FileToWrite {
            path: self.directory().join(spec.file_name()),
            contents: certified.pem().to_owned(),
            mode: PRIVATE_MODE,
            remark: match spec.uuid {
                Some(uuid) => format!(
                    "certificate and private key of a {}, bound to the UUID {uuid}",
                    role_names(spec.roles)
                ),
                None => format!(
                    "certificate and private key of a {}",
                    role_names(spec.roles)
                ),
            },
        }
    }

    /// Looked at before anything is made, so that a set is written whole or not at all.
    ///
    /// A symbolic link counts as a file even if it leads nowhere. Each write makes sure once more.
    fn refuse_existing(&self, names: &[String]) -> Result<(), CliError> {
        let paths = names.iter().map(|name| self.directory().join(name));
        match paths
            .into_iter()
            .find(|path| !self.force && path.symlink_metadata().is_ok())
        {
            Some(path) => Err(WriteError::Exists(path).into()),
            None => Ok(()),
        }
    }

    /// A key file that others can read is a warning, or an error with `-strict-files`.
    pub(crate) fn load(&self, path: &Path) -> Result<Anchor, CliError> {
        let warn = |said| complain("ciao-cert", format_args!("warning: {said}"));
        KeyFiles::new(self.strict_files).check(path, warn)?;
        let contents = String::from_utf8_lossy(&read(path)?).into_owned();
        Anchor::load(&contents).map_err(|source| CliError::Anchor {
            path: path.into(),
            source,
        })
    }

    /// If standard output cannot be written, the files are written all the same and the error comes at the end.
    fn write(&self, outputs: &[FileToWrite]) -> Result<(), CliError> {
        let directory_error = |source| CliError::Directory {
            path: self.directory().to_owned(),
            source,
        };
        fs::create_dir_all(self.directory()).map_err(directory_error)?;
        let existing = if self.force || self.renews_in_place() {
            Existing::Replace
        } else {
            Existing::Keep
        };
        let mut printed = Ok(());
        for output in outputs {
            files::write(&output.path, &output.contents, output.mode, existing)?;
            if printed.is_ok() {
                let path = output.path.display();
                printed = print_line(format_args!("{path}\n    {}", output.remark));
            }
        }
        // Only now: all that was asked for is made.
        printed?;
        if self.verify {
            print_line("verified")?;
        }
        Ok(())
    }
}

/// The name of the CA file that belongs to the file of an anchor for signing alone: `CAcert-example.pem` to
/// `anchor-example.pem`.
fn ca_file_beside(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let rest = name.strip_prefix("anchor-").unwrap_or(&name);
    format!("CAcert-{rest}")
}

/// The UUID that the certificate in a file is bound to, if there is one.
///
/// `None` for a file that is not there or cannot be read as a certificate.
fn bound_uuid(path: &Path) -> Option<Uuid> {
    let chain = certificates(&fs::read(path).ok()?).ok()?;
    PeerIdentity::from_der(chain.first()?).ok()?.bound_uuid
}
