//! Identifiers: UUIDs are the same in capitals (RFC 9562, section 4), other texts are what they are.

use std::borrow::Cow;

use uuid::Uuid;

/// Characters of a UUID with its hyphens.
const UUID_LEN: usize = 36;

/// The UUID that a text of 36 characters writes, in capitals or not; `None` of any other text, also of a UUID in
/// another form.
#[must_use]
pub fn uuid_of(text: &str) -> Option<Uuid> {
    if text.len() != UUID_LEN {
        return None;
    }
    Uuid::try_parse(text).ok()
}

/// An identifier as it is kept and compared: a UUID in small letters, any other text as it came.
#[must_use]
pub fn usual_form(text: &str) -> Cow<'_, str> {
    let has_capitals = text.len() == UUID_LEN && text.bytes().any(|byte| byte.is_ascii_uppercase());
    match has_capitals.then(|| uuid_of(text)).flatten() {
        Some(uuid) => Cow::Owned(uuid.to_string()),
        None => Cow::Borrowed(text),
    }
}

/// Brings an identifier into its usual form, in place.
pub fn make_usual(text: &mut String) {
    if let Cow::Owned(usual) = usual_form(text) {
        *text = usual;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_in_capitals_is_the_same_and_other_texts_stay() {
        let uuid = "3390740c-dce9-48d6-b83a-a717417072ce";
        for text in [
            uuid,
            "3390740C-DCE9-48D6-B83A-A717417072CE",
            "3390740c-DCE9-48d6-B83A-a717417072ce",
        ] {
            assert_eq!(usual_form(text), uuid);
            assert_eq!(uuid_of(text).unwrap().to_string(), uuid);
            let mut named = text.to_owned();
            make_usual(&mut named);
            assert_eq!(named, uuid);
        }
        for text in [
            "",
            "Web-1",
            "3390740CDCE948D6B83AA717417072CE",
            "{3390740C-DCE9-48D6-B83A-A717417072CE}",
            "3390740C-DCE9-48D6-B83A-A717417072CG",
            "67D86208-b46c-4465-9018-e14187d4010",
            "ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ",
        ] {
            assert_eq!(usual_form(text), text);
            assert_eq!(uuid_of(text), None, "{text}");
        }
    }
}
