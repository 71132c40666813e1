//! Identifiers and host names, checked: they are kept, repeated in answers, lists and log lines, and read there by
//! people and programs.
//!
//! An identifier is one printable word of at most [`MAX_NAME_LEN`] bytes; a host name may have spaces. So a name can be
//! put into a line of a log, a table or a list of words without quotes, and cannot forge another line.

use std::fmt;

use super::inputs::Unusable;
use crate::printable::is_unprintable;

/// Bytes of an identifier or host name that are taken: what a host name may have (RFC 1035), and seven times a UUID.
/// They are kept for each instance, and repeated in answers and log lines.
pub(in crate::server) const MAX_NAME_LEN: usize = 255;

/// Why a name is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadName {
    /// It has so many bytes.
    Long(usize),
    /// A control or format character, which a terminal would act on or not show.
    Unprintable(char),
    /// White space, which would make two identifiers of one in a list. Host names may have it.
    WhiteSpace(char),
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(len) => write!(f, "{len} bytes, at most {MAX_NAME_LEN} are taken"),
            Self::Unprintable(c) => write!(
                f,
                "the character U+{:04X} is not taken: it is a control or format character",
                u32::from(*c)
            ),
            Self::WhiteSpace(c) => write!(
                f,
                "the character U+{:04X} is not taken: an identifier has no white space",
                u32::from(*c)
            ),
        }
    }
}

/// Refuses identifiers, by their keys, that are too long or not one printable word. An empty one passes: whether a name
/// must be there is for the caller to say.
///
/// # Errors
/// [`Unusable::Name`] for the first that is not taken, without an instance.
pub(super) fn check_names(names: &[(&'static str, &str)]) -> Result<(), Unusable> {
    names.iter().try_for_each(|(key, name)| {
        if is_plain(name) {
            return Ok(());
        }
        let white_space = || name.chars().find(|c| c.is_whitespace());
        let bad = bad_text(name).or_else(|| white_space().map(BadName::WhiteSpace));
        bad.map_or(Ok(()), |bad| Err(Unusable::Name(key, bad, None)))
    })
}

/// Refuses a host name that is too long or not printable. Spaces and the like are taken: original launchers report what
/// the machine is called, whatever that is.
pub(super) fn check_host_name(key: &'static str, name: &str) -> Result<(), Unusable> {
    bad_text(name).map_or(Ok(()), |bad| Err(Unusable::Name(key, bad, None)))
}

/// Whether a name is one word of visible ASCII characters and not too long, as nearly all are. Branch-free over the
/// bytes, because it is asked for each instance in each STATS.
fn is_plain(name: &str) -> bool {
    // Without an end before the end, which is what makes it a matter of a few instructions for many bytes at once.
    let is_visible = |all: bool, byte: u8| all & byte.is_ascii_graphic();
    name.len() <= MAX_NAME_LEN && name.bytes().fold(true, is_visible)
}

/// What is wrong with any text that is kept as a name; `None` if nothing. White space is not wrong here.
pub(super) fn bad_text(name: &str) -> Option<BadName> {
    if is_plain(name) {
        return None;
    }
    if name.len() > MAX_NAME_LEN {
        return Some(BadName::Long(name.len()));
    }
    name.chars()
        .find(|c| is_unprintable(*c))
        .map(BadName::Unprintable)
}

#[cfg(test)]
mod tests {
    use proto_frames::Kind;

    use super::super::inputs::tests::{input_of, malformed_in};
    use sched_core::Fault;

    fn refusal(kind: Kind, payload: &str) -> Option<String> {
        let malformed = malformed_in(input_of(kind, payload))?;
        assert_eq!(malformed.fault, Fault::Data);
        Some(malformed.detail.to_string())
    }

    #[test]
    fn what_would_forge_a_line_or_a_word_is_refused_by_its_key() {
        for (text, found) in [
            (r"a\nb", "U+000A"),
            (r"\ea", "U+001B"),
            (r"a\x9b", "U+009B"),
            (r"a\u202eb", "U+202E"),
            (r"a\u200b", "U+200B"),
        ] {
            for (kind, key, payload) in [
                (
                    Kind::START,
                    "start.instance_uuid",
                    format!("start:\n  instance_uuid: \"{text}\"\n"),
                ),
                (
                    Kind::STATS,
                    "instances.instance_uuid",
                    format!("instances:\n- instance_uuid: \"{text}\"\n"),
                ),
                (
                    Kind::STATS,
                    "hostname",
                    format!("hostname: \"{text}\"\ninstances: []\n"),
                ),
                (Kind::READY, "hostname", format!("hostname: \"{text}\"\n")),
                (
                    Kind::READY,
                    "labels.zone",
                    format!("labels:\n  zone: \"{text}\"\n"),
                ),
                (
                    Kind::INSTANCE_DELETED,
                    "instance_deleted.instance_uuid",
                    format!("instance_deleted:\n  instance_uuid: \"{text}\"\n"),
                ),
            ] {
                let detail = refusal(kind, &payload).expect(&payload);
                let begin = format!("{key}: the character {found} is not taken");
                assert!(detail.starts_with(&begin), "{detail}");
            }
        }
    }

    #[test]
    fn an_identifier_is_one_word_and_a_host_name_may_be_several() {
        let stats = |id: &str| format!("instances:\n- instance_uuid: \"{id}\"\n");
        for id in ["a b", "a\u{a0}b", " a"] {
            assert!(refusal(Kind::STATS, &stats(id)).is_some(), "{id}");
        }
        assert_eq!(refusal(Kind::STATS, &stats("web_1.é")), None);
        for name in ["Ann's machine (2)", "узел-1", "本", "-", "a:b/c"] {
            let ready = format!("hostname: \"{name}\"\n");
            assert_eq!(refusal(Kind::READY, &ready), None, "{name}");
        }
    }
}
