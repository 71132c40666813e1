//! Reading PEM text: certificates, revocation lists and the first private key. The only file that uses `rustls-pemfile`.
//!
//! Blocks are found here, line by line, and each is decoded by itself, for two reasons. What is wrong is said by the
//! number of a line: the errors of the library quote the line, which may be a whole private key. And what stands in a
//! file but cannot be used, such as an encrypted key, is named as what it is. No byte of a file is ever part of an error.

use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls_pemfile::Item;

/// Why PEM text is not what was looked for. Says what was found by its line, and never shows it: it may be a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// The text has no CERTIFICATE block.
    #[error("no certificate in it (no BEGIN CERTIFICATE block)")]
    NoCertificate,
    /// The text has no private key block.
    #[error(
        "no private key in it (no BEGIN RSA PRIVATE KEY, EC PRIVATE KEY or PRIVATE KEY block); \
         certificate and key stand in one file, one after the other"
    )]
    NoPrivateKey,
    /// The text has no X509 CRL block.
    #[error("no revocation list in it (no BEGIN X509 CRL block)")]
    NoRevocationList,
    /// The file is no text as PEM is.
    #[error("it {0}; expected PEM text, which begins with -----BEGIN")]
    NotText(&'static str),
    /// A `-----BEGIN …-----` is not a line of its own. The line counts from 1.
    #[error(
        "line {line}: {what}; expected each -----BEGIN …-----, each -----END …----- and each line of base64 between them on \
         a line of its own"
    )]
    LineEnds {
        /// Where.
        line: usize,
        /// What became of the line ends.
        what: &'static str,
    },
    /// A block is damaged.
    #[error("damaged PEM: line {line}: {what}")]
    Damaged {
        /// The line of its BEGIN, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The private key is encrypted, and a program that runs unattended has no passphrase for it.
    #[error(
        "line {line}: the private key is encrypted ({form}), which this program cannot read: decrypt it with \
         openssl pkey -in OLD -out NEW, and put it behind the certificate"
    )]
    Encrypted {
        /// The line of its BEGIN, from 1.
        line: usize,
        /// How it is encrypted.
        form: &'static str,
    },
    /// Instead of what was looked for there is something like it.
    #[error("line {line}: {found}; expected {wanted}")]
    Other {
        /// The line of its BEGIN, from 1.
        line: usize,
        /// What it is.
        found: &'static str,
        /// What was looked for.
        wanted: &'static str,
    },
}

impl PemError {
    /// The line that it is about, from 1; `None` where it is about the whole text.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::LineEnds { line, .. }
            | Self::Damaged { line, .. }
            | Self::Encrypted { line, .. }
            | Self::Other { line, .. } => Some(*line),
            _ => None,
        }
    }
}

/// Labels that begin a certificate.
const CERTIFICATE: [&str; 1] = ["CERTIFICATE"];

/// Labels that begin a private key that can be read: PKCS#1, SEC 1, PKCS#8.
const PRIVATE_KEY: [&str; 3] = ["RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY"];

/// Labels that begin a revocation list.
const REVOCATION_LIST: [&str; 1] = ["X509 CRL"];

/// What stands where a revocation list is looked for.
const NO_REVOCATION_LISTS: [(&str, &str); 2] = [
    ("CERTIFICATE", "a certificate"),
    ("CRL", "a revocation list with another label"),
];

/// What is like a certificate and is none.
const NO_CERTIFICATES: [(&str, &str); 6] = [
    ("X509 CRL", "a revocation list"),
    ("TRUSTED CERTIFICATE", "a certificate in OpenSSL's own form"),
    ("X509 CERTIFICATE", "a certificate with an outdated label"),
    ("CERTIFICATE REQUEST", "a request for a certificate"),
    ("NEW CERTIFICATE REQUEST", "a request for a certificate"),
    ("PKCS7", "a PKCS#7 bundle"),
];

/// What is like a private key and is none that can be used.
const NO_PRIVATE_KEYS: [(&str, &str); 4] = [
    ("OPENSSH PRIVATE KEY", "a private key in OpenSSH's own form"),
    ("DSA PRIVATE KEY", "a DSA private key"),
    ("ANY PRIVATE KEY", "a private key of another form"),
    ("PUBLIC KEY", "a public key alone"),
];

/// The label of a key that is encrypted by PKCS#8.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

/// Every certificate in the text, in order; at least one.
///
/// # Errors
/// [`PemError::NoCertificate`], or what stands in its place.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let text = Text::scan(pem)?;
    let blocks = text
        .blocks
        .iter()
        .filter(|block| block.is_any(&CERTIFICATE));
    let found: Vec<_> = blocks
        .map(|block| match block.decode()? {
            Item::X509Certificate(der) => Ok(der),
            _ => Err(block.damaged(NOT_BASE64)),
        })
        .collect::<Result<_, _>>()?;
    if found.is_empty() {
        let wanted = "a BEGIN CERTIFICATE block";
        return Err(text.instead(&NO_CERTIFICATES, wanted, PemError::NoCertificate));
    }
    Ok(found)
}

/// Every revocation list in the text, in order, with the line of its BEGIN, from 1; at least one.
///
/// # Errors
/// [`PemError::NoRevocationList`], or what stands in its place.
pub fn revocation_lists(
    pem: &[u8],
) -> Result<Vec<(usize, CertificateRevocationListDer<'static>)>, PemError> {
    let text = Text::scan(pem)?;
    let blocks = text
        .blocks
        .iter()
        .filter(|block| block.is_any(&REVOCATION_LIST));
    let found: Vec<_> = blocks
        .map(|block| match block.decode()? {
            Item::Crl(der) => Ok((block.line, der)),
            _ => Err(block.damaged(NOT_BASE64)),
        })
        .collect::<Result<_, _>>()?;
    if found.is_empty() {
        let wanted = "a BEGIN X509 CRL block";
        let nothing = PemError::NoRevocationList;
        return Err(text.instead(&NO_REVOCATION_LISTS, wanted, nothing));
    }
    Ok(found)
}

/// The first private key in the text: PKCS#1, SEC 1 or PKCS#8, not encrypted.
///
/// # Errors
/// [`PemError::NoPrivateKey`], or what stands in its place.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    let text = Text::scan(pem)?;
    let mut keys = text
        .blocks
        .iter()
        .filter(|block| block.is_any(&PRIVATE_KEY) || block.is_any(&[ENCRYPTED]));
    let Some(block) = keys.next() else {
        let wanted = "a BEGIN RSA PRIVATE KEY, EC PRIVATE KEY or PRIVATE KEY block";
        return Err(text.instead(&NO_PRIVATE_KEYS, wanted, PemError::NoPrivateKey));
    };
    if let Some(form) = block.encryption() {
        let line = block.line;
        return Err(PemError::Encrypted { line, form });
    }
    match block.decode()? {
        Item::Pkcs1Key(der) => Ok(der.into()),
        Item::Sec1Key(der) => Ok(der.into()),
        Item::Pkcs8Key(der) => Ok(der.into()),
        _ => Err(block.damaged(NOT_BASE64)),
    }
}

/// What is wrong with a block whose contents cannot be decoded.
const NOT_BASE64: &str = "the contents of the block that begins there are not base64";

/// What is wrong with a block that does not end.
const NO_END: &str = "the block that begins there has no END line";

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// The blocks of a text, and what looks like one whose line ends were lost.
#[derive(Debug)]
struct Text<'a> {
    blocks: Vec<Block<'a>>,
    /// A `-----BEGIN` within a line, which is an error where what is looked for is not found: text around blocks may be
    /// anything.
    suspect: Option<PemError>,
}

/// A block: the lines from its BEGIN to its END.
#[derive(Debug)]
struct Block<'a> {
    /// Of BEGIN, from 1.
    line: usize,
    label: &'a [u8],
    /// The lines with both marks.
    whole: &'a [u8],
}

impl<'a> Text<'a> {
    /// # Errors
    /// The file is no text, its first block has no line ends, or a block has no end.
    fn scan(pem: &'a [u8]) -> Result<Self, PemError> {
        is_text(pem)?;
        let mut blocks = Vec::new();
        let mut suspect = None;
        let mut open: Option<(usize, usize, &[u8])> = None;
        for (number, start, line) in lines(pem) {
            if line.starts_with(BEGIN) {
                if let Some((line, ..)) = open {
                    return Err(PemError::Damaged { line, what: NO_END });
                }
                let label = line[BEGIN.len()..].strip_suffix(DASHES);
                let label = label.filter(|label| !contains(label, DASHES));
                let label = label.ok_or_else(|| line_ends(number, line))?;
                open = Some((number, start, label));
            } else if contains(line, BEGIN) {
                suspect.get_or_insert_with(|| line_ends(number, line));
            }
            if let Some((first, from, label)) = open
                && line.starts_with(END)
                && line[END.len()..].starts_with(label)
                && line[END.len() + label.len()..].starts_with(DASHES)
            {
                // What is behind it on its line was looked at above.
                let mark = END.len() + label.len() + DASHES.len();
                blocks.push(Block {
                    line: first,
                    label,
                    whole: &pem[from..start + mark],
                });
                open = None;
            }
        }
        match open {
            Some((line, ..)) => Err(suspect.unwrap_or(PemError::Damaged { line, what: NO_END })),
            None => Ok(Self { blocks, suspect }),
        }
    }

    /// What there is in place of a block that was looked for.
    fn instead(
        self,
        others: &[(&str, &'static str)],
        wanted: &'static str,
        nothing: PemError,
    ) -> PemError {
        if let Some(suspect) = self.suspect {
            return suspect;
        }
        let found = self.blocks.iter().find_map(|block| {
            let is_it = |(label, _): &&(&str, &str)| block.is_any(&[label]);
            let (_, found) = others.iter().find(is_it)?;
            Some((block.line, *found))
        });
        match found {
            Some((line, found)) => PemError::Other {
                line,
                found,
                wanted,
            },
            None => nothing,
        }
    }
}

impl Block<'_> {
    fn is_any(&self, labels: &[&str]) -> bool {
        labels.iter().any(|label| label.as_bytes() == self.label)
    }

    /// How the key in it is encrypted: PKCS#8 has a label for that, older forms a header (RFC 1421).
    fn encryption(&self) -> Option<&'static str> {
        if self.is_any(&[ENCRYPTED]) {
            Some("PKCS#8")
        } else if contains(self.whole, b"Proc-Type: 4,ENCRYPTED") {
            Some("the legacy form of OpenSSL, with Proc-Type and DEK-Info")
        } else {
            None
        }
    }

    /// What is in it.
    fn decode(&self) -> Result<Item, PemError> {
        // The library's error may quote what it read.
        match rustls_pemfile::read_one_from_slice(self.whole) {
            Ok(Some((item, _))) => Ok(item),
            _ => Err(self.damaged(NOT_BASE64)),
        }
    }

    fn damaged(&self, what: &'static str) -> PemError {
        let line = self.line;
        PemError::Damaged { line, what }
    }
}

/// The lines of a text, without their ends (LF, CR LF or CR) and without blanks at their ends: the number of each, from
/// 1, and where it begins.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, usize, &[u8])> {
    let mut start = 0;
    let ends = |byte: &u8| matches!(byte, b'\n' | b'\r');
    (1..).map_while(move |number| {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let len = rest.iter().position(ends).unwrap_or(rest.len());
        let end = if rest[len..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        let from = start;
        start += len + end;
        Some((number, from, rest[..len].trim_ascii_end()))
    })
}

/// # Errors
/// The bytes are another encoding of text than PEM's, or none.
fn is_text(pem: &[u8]) -> Result<(), PemError> {
    const UTF8: &[u8] = &[0xef, 0xbb, 0xbf];
    const UTF16: [&[u8]; 2] = [&[0xff, 0xfe], &[0xfe, 0xff]];
    let is = |what| Err(PemError::NotText(what));
    if pem.is_empty() {
        return is("is empty");
    }
    if pem.starts_with(UTF8) {
        return is("begins with a byte order mark (BOM): save it as UTF-8 without one");
    }
    if UTF16.iter().any(|mark| pem.starts_with(mark)) {
        return is("is UTF-16 text with a byte order mark (BOM): save it as UTF-8 without one");
    }
    // A sequence of ASN.1 begins both DER certificates and keys, and PKCS#12.
    if pem.contains(&0) || matches!(pem, [0x30, 0x80..=0x84, ..]) {
        return is(
            "is binary, as DER and PKCS#12 files are: convert it with openssl x509 -inform der, or openssl pkcs12 -nodes",
        );
    }
    Ok(())
}

/// A BEGIN that is not a line of its own, by what is left of the line ends.
fn line_ends(number: usize, line: &[u8]) -> PemError {
    let what = if contains(line, br"-----\n") || contains(line, br"-----\r\n") {
        r"its line ends are the two characters \n, as in .env and JSON files, and not line ends"
    } else if line.starts_with(BEGIN) || contains(line, END) {
        "its line ends were lost"
    } else {
        "something stands before -----BEGIN, such as a quotation mark or blanks"
    };
    PemError::LineEnds { line: number, what }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

#[cfg(test)]
mod tests;
