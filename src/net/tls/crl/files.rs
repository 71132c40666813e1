//! The files of `--crl`: one file, or every file of a directory; PEM text or DER.
//!
//! What a file has beside lists counts as the certificates of CAs below the anchors, whose lists are among them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;

use super::CrlError;
use crate::net::tls::TlsError;
use crate::net::tls::pem::{self, PemError};

/// Most bytes of a file: a list of some 800,000 certificates. Revoking more than that is a matter of a new CA, and a file
/// that was named by mistake is not read whole.
const MAX_FILE_LEN: u64 = 32 << 20;

/// What files of a directory end with that editors and people leave behind; they are not read. Those that begin with a dot
/// are not either, which is where Kubernetes keeps what its links lead to.
const LEFT_BEHIND: [&str; 4] = ["~", ".bak", ".old", ".tmp"];

/// A list as it stands in a file.
#[derive(Debug)]
pub(in crate::net::tls) struct FoundCrl {
    pub(in crate::net::tls) path: PathBuf,
    /// Of its BEGIN, from 1; `None` in a file that is no text.
    pub(in crate::net::tls) line: Option<usize>,
    pub(in crate::net::tls) der: Vec<u8>,
}

/// All lists, and the certificates that stand beside them, each with its file.
#[derive(Debug, Default)]
pub(in crate::net::tls) struct Found {
    pub(in crate::net::tls) lists: Vec<FoundCrl>,
    pub(in crate::net::tls) certificates: Vec<(PathBuf, CertificateDer<'static>)>,
}

/// Reads these files and directories. Each has at least one list.
///
/// # Errors
/// [`TlsError`]: `Unreadable`, `Pem`, `Crl`.
pub(in crate::net::tls) fn read_all(paths: &[PathBuf]) -> Result<Found, TlsError> {
    let mut found = Found::default();
    for path in paths {
        if !path.is_dir() {
            read_file(path, &mut found)?;
            continue;
        }
        let files = files_of(path).map_err(|source| unreadable(path, source))?;
        if files.is_empty() {
            return Err(refused(path, CrlError::EmptyDirectory));
        }
        for file in files {
            read_file(&file, &mut found)?;
        }
    }
    Ok(found)
}

/// The regular files of a directory, by name; links count as what they lead to.
fn files_of(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_left_behind =
            name.starts_with('.') || LEFT_BEHIND.iter().any(|end| name.ends_with(end));
        // A link that leads nowhere is an error: a list may be meant.
        if !is_left_behind && fs::metadata(entry.path())?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(path: &Path, found: &mut Found) -> Result<(), TlsError> {
    let contents = read(path)?;
    // A sequence of ASN.1 begins a list in DER form; PEM text begins with anything but that.
    if let [0x30, ..] = *contents
        && !contents.windows(10).any(|it| it == b"-----BEGIN")
    {
        found.lists.push(FoundCrl {
            path: path.into(),
            line: None,
            der: contents,
        });
        return Ok(());
    }
    let of_file = |source| TlsError::Pem {
        path: path.into(),
        source,
    };
    let lists = pem::revocation_lists(&contents).map_err(of_file)?;
    found
        .lists
        .extend(lists.into_iter().map(|(line, der)| FoundCrl {
            path: path.into(),
            line: Some(line),
            der: der.as_ref().to_vec(),
        }));
    match pem::certificates(&contents) {
        Ok(certificates) => {
            let certificates = certificates.into_iter().map(|der| (path.into(), der));
            found.certificates.extend(certificates);
            Ok(())
        }
        Err(PemError::NoCertificate | PemError::Other { .. }) => Ok(()),
        Err(source) => Err(of_file(source)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut contents = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(MAX_FILE_LEN + 1).read_to_end(&mut contents));
    read.map_err(|source| unreadable(path, source))?;
    if contents.len() as u64 > MAX_FILE_LEN {
        return Err(refused(path, CrlError::TooLarge(MAX_FILE_LEN)));
    }
    Ok(contents)
}

fn unreadable(path: &Path, source: io::Error) -> TlsError {
    TlsError::Unreadable {
        path: path.into(),
        source,
    }
}

fn refused(path: &Path, source: CrlError) -> TlsError {
    TlsError::Crl {
        path: path.into(),
        line: None,
        source,
    }
}
