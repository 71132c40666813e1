//! What a payload that cannot be used names all the same: it is refused, and its sender is to know which instance that
//! is about, and which node and volume. Original controllers reset a volume only by a failure that names it.
//!
//! A document is read leniently ([`mod@proto_frames::payload::named`]). Of one that is too long only the beginning is
//! looked at:
//!
//! ```text
//! start:                      the first key
//!   note: |                   …
//!     instance_uuid: other    further to the right: the text of another value
//!   instance_uuid: web-1      this one
//! ```

use proto_frames::TooLong;
use proto_frames::limits::MAX_HEAD_LEN;
use proto_frames::payload::Fault::Missing;
use proto_frames::payload::guard::{SMALL, first_document};
use proto_frames::payload::named::texts_under;

use super::inputs::Unusable;
use super::names::check_names;
use sched_core::{CommandName, Fault, InstanceId, Malformed, Sent};

/// The keys whose values are looked for, the same in all commands that have them.
const KEYS: [&str; 3] = ["instance_uuid", "workload_agent_uuid", "volume_uuid"];

/// What the core is told of a frame that was skipped because its payload is longer than any may be. Nothing of the
/// payload is kept but the instance.
pub(super) fn of_too_long(refused: &TooLong) -> Malformed {
    let TooLong { len, limit, .. } = refused;
    let detail = format!(
        "its payload has {len} bytes, and a payload may have {limit} (-max-payload of the scheduler)"
    );
    let mut malformed = Malformed::new(Fault::TooLong, None, detail.into());
    complete(&mut malformed, KEYS.map(|key| text_in(&refused.head, key)));
    malformed
}

/// What is wrong with a payload, with what it names as far as that can be told: what the error knows; what can be read
/// of a command's document, or of the beginning of one that is too long to be read; or the instance of a START behind
/// cloud-init data, with what to do about it.
pub(super) fn name(unusable: Unusable, sent: Sent, payload: &[u8]) -> Malformed {
    let is_without_start = matches!(
        &unusable,
        Unusable::Payload(error, None) if error.key == "start" && error.fault == Missing
    );
    let mut malformed = Malformed::from(unusable);
    if let Some(top) = top_of(sent) {
        let named = match first_document(payload, SMALL) {
            Ok(document) => texts_under(document, top, KEYS),
            Err(_) => KEYS.map(|key| text_in(payload, key)),
        };
        complete(&mut malformed, named);
    }
    if is_without_start && let Some(at) = later_start(payload) {
        let [instance, ..] = KEYS.map(|key| text_in(&payload[at..], key));
        complete(&mut malformed, [instance, None, None]);
        malformed.detail = format!(
            "{}; it stands in a later document, and only the first is read: put the START before cloud-init data",
            malformed.detail
        )
        .into();
    }
    malformed
}

/// The key under which a command stands that is about an instance.
fn top_of(sent: Sent) -> Option<&'static str> {
    let Sent::Command(name) = sent else {
        // Of what a launcher reports, nothing is taken unless all of it can be.
        return None;
    };
    Some(match name {
        CommandName::Start => "start",
        CommandName::Delete => "delete",
        CommandName::AttachVolume => "attach_volume",
        CommandName::Suspend => "suspend",
        CommandName::Resume => "resume",
        CommandName::Migrate => "migrate",
        CommandName::Update => "update",
        CommandName::ReadOutput => "read_output",
        CommandName::DeleteOutput => "delete_output",
        _ => return None,
    })
}

/// Adds what was found at [`KEYS`], as far as it may be repeated.
fn complete(malformed: &mut Malformed, found: [Option<String>; 3]) {
    let is_name = |name: &String| !name.is_empty() && check_names(&[("", name)]).is_ok();
    let [instance, node, volume] = found.map(|name| name.filter(is_name));
    if malformed.instance.is_none() {
        malformed.instance = instance.as_deref().map(InstanceId::new);
    }
    malformed.node = node.unwrap_or_default().into();
    malformed.volume = volume.unwrap_or_default().into();
}

/// Where a document other than the first begins with `start:`.
///
/// The original's launchers find it there. Its scheduler reads the first document alone, and places the START as one
/// that asks for nothing and has no name; nothing that is known of such an instance would be true.
fn later_start(payload: &[u8]) -> Option<usize> {
    const START: &[u8] = b"start:";
    let mut at = 0;
    let mut is_begin = false;
    for line in payload.split_inclusive(|&byte| byte == b'\n') {
        let text = line.trim_ascii_end();
        if is_begin && text == START {
            return Some(at);
        }
        let is_nothing = text.is_empty() || text.starts_with(b"#");
        is_begin = text.starts_with(b"---") || text.starts_with(b"...") || is_begin && is_nothing;
        at += line.len();
    }
    None
}

/// What a payload has at a key near its beginning: a line such as `instance_uuid: …` among the keys directly below the
/// first one, in block style, as all peers write it. `None` where there is no such line, or more than one.
///
/// The text of a block scalar cannot pass for it: what belongs to a key stands further to the right than that key. A
/// quoted text over several lines can, because YAML parsers take its later lines at any column. Then the refusal names
/// the instance that the sender has put there.
fn text_in(payload: &[u8], key: &str) -> Option<String> {
    let head = &payload[..payload.len().min(MAX_HEAD_LEN)];
    // The last line may not be all there.
    let end = head.iter().rposition(|&byte| byte == b'\n')?;
    let text = match std::str::from_utf8(&head[..end]) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).ok()?,
    };
    let lines = text.lines().filter(|line| {
        let content = line.trim_start();
        !content.is_empty() && !content.starts_with('#')
    });
    let mut lines = lines.skip_while(|line| line.starts_with("---") || line.starts_with('%'));
    let first = lines.next()?;
    if first.starts_with(' ') || !first.trim_end().ends_with(':') {
        return None;
    }
    let below = lines.take_while(|line| line.starts_with(' '));
    let mut column = None;
    let mut found = None;
    for line in below {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if indent != *column.get_or_insert(indent) {
            continue;
        }
        if let Some(value) = content
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix(':'))
            && found.replace(value_of(value)?).is_some()
        {
            return None;
        }
    }
    found
}

/// A plain or quoted value as an identifier. Only letters, digits and `- _ .` are taken: anything else could be an
/// alias, a tag or a flow value.
fn value_of(written: &str) -> Option<String> {
    let value = written.strip_prefix(' ')?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    let unquoted = ['\'', '"'].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        Some(inner)
    });
    let name = unquoted.unwrap_or(value);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.chars().all(is_plain);
    is_name.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use proto_frames::Kind;

    use super::super::inputs::tests::malformed;
    use super::*;

    fn named(payload: &str) -> Option<String> {
        text_in(payload.as_bytes(), KEYS[0])
    }

    #[test]
    fn the_instance_of_a_long_payload_is_found_among_the_keys_below_the_first() {
        for payload in [
            "start:\n  tenant_uuid: t\n  instance_uuid: abc-1\n  more",
            "---\n# a comment\nstart:\n\n    vcpus: 1\n    instance_uuid: 'abc-1' # quoted\n",
            "delete:\r\n  instance_uuid: \"abc-1\"\r\n",
            "start:\n  env:\n    instance_uuid: other\n  instance_uuid: abc-1\n",
            "start:\n  note: |\n    instance_uuid: other\n  instance_uuid: abc-1\nother:\n  instance_uuid: x\n",
        ] {
            assert_eq!(named(payload).as_deref(), Some("abc-1"), "{payload}");
        }
    }

    #[test]
    fn where_it_cannot_be_told_for_certain_no_instance_is_named() {
        for payload in [
            "",
            "start:\n",
            "start:\n  instance_uuid: abc-1",
            "start:\n  instance_uuid: \n",
            "start:\n  instance_uuid: a b\n",
            "start:\n  instance_uuid: *it\n",
            "start:\n  instance_uuid: one\n  instance_uuid: two\n",
            "start: {instance_uuid: abc-1}\n",
            "instance_uuid: abc-1\n",
            "start:\n  note: |\n    instance_uuid: other\n",
            "  start:\n  instance_uuid: abc-1\n",
        ] {
            assert_eq!(named(payload), None, "{payload}");
        }
        let far = format!(
            "start:\n  note: {}\n  instance_uuid: a\n",
            "x".repeat(MAX_HEAD_LEN)
        );
        assert_eq!(named(&far), None);
    }

    #[test]
    fn a_start_behind_cloud_init_data_is_refused_by_its_name_and_with_what_to_do() {
        let payload =
            "---\n#cloud-config\nusers: []\n...\n---\n\nstart:\n  instance_uuid: abc-1\n...\n";
        let found = malformed(Kind::START, payload);
        assert_eq!(found.fault, Fault::Data);
        assert_eq!(found.instance, Some(InstanceId::new("abc-1")));
        assert!(found.detail.contains("before cloud-init data"));
        let nowhere = malformed(Kind::START, "users: []\n");
        assert!(!nowhere.detail.contains("cloud-init"));
    }

    #[test]
    fn a_command_that_cannot_be_used_names_what_could_be_read_of_it() {
        let volume = "attach_volume:\n  instance_uuid: abc-1\n  volume_uuid: v-1\n";
        let delete = "delete:\n  instance_uuid: abc-1\n";
        let long = format!("  note: {}\n", "x".repeat(300 * 1024));
        for (kind, payload, [instance, node, named]) in [
            (Kind::ATTACH_VOLUME, volume, ["abc-1", "", "v-1"]),
            (
                Kind::ATTACH_VOLUME,
                &format!("{volume}  workload_agent_uuid: \"\"\n"),
                ["abc-1", "", "v-1"],
            ),
            (
                Kind::ATTACH_VOLUME,
                &format!("{volume}  workload_agent_uuid: [n-1]\n"),
                ["abc-1", "", "v-1"],
            ),
            (
                Kind::ATTACH_VOLUME,
                &format!("{volume}  workload_agent_uuid: two words\n"),
                ["abc-1", "", "v-1"],
            ),
            (
                Kind::ATTACH_VOLUME,
                "attach_volume:\n  volume_uuid: v-1\n  workload_agent_uuid: n-1\n",
                ["", "n-1", "v-1"],
            ),
            (
                Kind::ATTACH_VOLUME,
                &format!("{volume}{long}"),
                ["abc-1", "", "v-1"],
            ),
            (
                Kind::ATTACH_VOLUME,
                &format!("{volume}  volume_uuid: v-1\n"),
                ["abc-1", "", ""],
            ),
            (Kind::DELETE, delete, ["abc-1", "", ""]),
            (
                Kind::DELETE,
                "delete: {workload_agent_uuid: n-1, stop: perhaps, instance_uuid: abc-1}",
                ["abc-1", "n-1", ""],
            ),
            (
                Kind::DELETE,
                &format!("{delete}  stop: [\n"),
                ["abc-1", "", ""],
            ),
            (
                Kind::SUSPEND,
                "suspend:\n  instance_uuid: abc-1\n  workload_agent_uuid: {}\n",
                ["abc-1", "", ""],
            ),
            (
                Kind::START,
                "start:\n  instance_uuid: abc-1\n  requirements:\n    <<: {mem_mb: 1}\n",
                ["abc-1", "", ""],
            ),
        ] {
            let found = malformed(kind, payload);
            let instance = Some(InstanceId::new(instance)).filter(|_| !instance.is_empty());
            assert_eq!(found.instance, instance, "{kind} {payload:.200}");
            assert_eq!(
                (&*found.node, &*found.volume),
                (node, named),
                "{payload:.200}"
            );
        }
    }

    #[test]
    fn a_first_document_that_is_too_long_is_answered_with_its_instance() {
        for kind in [Kind::START, Kind::DELETE, Kind::ATTACH_VOLUME] {
            let payload = format!(
                "start:\n  instance_uuid: abc-1\n  note: {}\n",
                "x".repeat(300 * 1024)
            );
            let found = malformed(kind, &payload);
            assert_eq!(found.instance, Some(InstanceId::new("abc-1")), "{kind}");
        }
    }
}
