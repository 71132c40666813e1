//! What is said of files that are no PEM, and that nothing of them is said.

use proto_frames::Role;

use super::{PemError, certificates, private_key};
use crate::cert::{Anchor, Spec};

/// A certificate with its key.
fn pem() -> String {
    let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    anchor.certified().pem().to_owned()
}

/// What is said of a text, of its certificate or else of its key; nothing where both are read. No line of the text's
/// contents is in it.
fn said(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let error = match (certificates(text), private_key(text)) {
        (Err(error), _) | (_, Err(error)) => error,
        _ => return String::new(),
    };
    let said = format!("{error} {error:?}");
    for part in String::from_utf8_lossy(text).split(|c: char| !c.is_ascii_alphanumeric()) {
        assert!(part.len() < 12 || !said.contains(part), "{said}");
    }
    said
}

#[test]
fn text_without_the_block_is_told_from_a_damaged_block() {
    assert_eq!(certificates(b"hello"), Err(PemError::NoCertificate));
    assert_eq!(private_key(b"hello").unwrap_err(), PemError::NoPrivateKey);
    let broken = b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
    assert!(matches!(
        certificates(broken),
        Err(PemError::Damaged { line: 1, .. })
    ));
}

#[test]
fn a_text_whose_line_ends_were_lost_is_named_so_and_nothing_of_it_is_shown() {
    let good = pem();
    assert_eq!(said(&good), "");
    let quoted = format!("KEY=\"{}\"", good.replace('\n', "\\n"));
    let indented: String = good.lines().map(|line| format!("  {line}\n")).collect();
    for (text, line, what) in [
        (good.replace('\n', ""), 1, "were lost"),
        (good.replace('\n', " "), 1, "were lost"),
        (good.replace('\n', "\\n"), 1, r"characters \n"),
        (good.replace('\n', "\\r\\n"), 1, r"characters \n"),
        (format!("\n{quoted}"), 2, r"characters \n"),
        (indented, 1, "something stands before -----BEGIN"),
        // As of two files that were joined where the first has no line end.
        (
            good.replace("-----\n-----BEGIN", "----------BEGIN"),
            13,
            "were lost",
        ),
    ] {
        let said = said(&text);
        let line = if line == 13 {
            let joined = text.lines().position(|it| it.contains("----------BEGIN"));
            joined.unwrap() + 1
        } else {
            line
        };
        assert!(said.starts_with(&format!("line {line}: ")), "{said}");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn a_damaged_block_is_named_by_the_line_where_it_begins() {
    let good = pem();
    let begin = good.lines().position(|it| it.contains("BEGIN EC")).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let key = lines[begin + 1];
    for text in [
        good.replace(key, &format!("{key}?")),
        lines[..lines.len() - 1].join("\n"),
        good.replace("END EC PRIVATE KEY", "END PRIVATE KEY"),
    ] {
        let said = said(&text);
        let expected = format!("damaged PEM: line {}: ", begin + 1);
        assert!(said.starts_with(&expected), "{said}");
    }
    // A certificate that is not ended before the next block.
    let cut = good.replace("-----END CERTIFICATE-----\n", "");
    assert!(
        said(&cut).starts_with("damaged PEM: line 1: "),
        "{}",
        said(&cut)
    );
}

#[test]
fn what_is_no_pem_text_is_named_as_what_it_is() {
    let good = pem();
    let utf16: Vec<u8> = std::iter::once(0xfeff)
        .chain(good.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for (text, what) in [
        (format!("\u{feff}{good}").into_bytes(), "byte order mark"),
        (utf16, "UTF-16"),
        (vec![0x30, 0x82, 1, 2, 0, 9], "DER"),
        (Vec::new(), "is empty"),
    ] {
        assert!(said(&text).contains(what), "{}", said(&text));
        assert!(private_key(&text).unwrap_err().to_string().contains(what));
    }
}

#[test]
fn keys_and_certificates_of_other_forms_are_named_as_what_they_are() {
    let good = pem();
    let as_block = |label: &str| {
        let named = good.replace("EC PRIVATE KEY", label);
        said(named)
    };
    for (label, what) in [
        ("ENCRYPTED PRIVATE KEY", "is encrypted (PKCS#8)"),
        ("OPENSSH PRIVATE KEY", "OpenSSH"),
        ("DSA PRIVATE KEY", "DSA"),
        ("PUBLIC KEY", "a public key alone"),
    ] {
        assert!(as_block(label).contains(what), "{}", as_block(label));
    }
    let legacy = good.replace(
        "-----BEGIN EC PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n",
    );
    assert!(
        said(&legacy).contains("is encrypted (the legacy form"),
        "{}",
        said(&legacy)
    );
    assert!(
        certificates(legacy.as_bytes()).is_ok(),
        "the key is no concern of the certificate"
    );
    let request = good.replace(" CERTIFICATE-", " CERTIFICATE REQUEST-");
    assert!(
        said(&request).contains("a request for a certificate"),
        "{}",
        said(&request)
    );
}

#[test]
fn line_ends_of_every_kind_and_text_around_blocks_are_taken() {
    let good = pem();
    let certificate = certificates(good.as_bytes()).unwrap();
    for text in [
        good.replace('\n', "\r\n"),
        good.replace('\n', "\r"),
        good.replace('\n', "  \n"),
        format!("the block from -----BEGIN to -----END:\n{good}\nnotes\n"),
        format!(
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{good}"
        ),
        good.trim_end().to_owned(),
    ] {
        assert_eq!(said(&text), "", "{text}");
        assert_eq!(certificates(text.as_bytes()).unwrap(), certificate);
    }
}
