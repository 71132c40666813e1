//! What a START says that does not do what its author most likely means: keys that mean nothing where they stand
//! ([`UnknownKeys`]), and values that are taken for something else. Peers ignore both, as those of the original do. Pure.
//!
//! Every door that takes STARTs from people warns of the same in the same words, and refuses it where asked to be
//! strict: `ciaoctl`, `ciao-scheduler dev` and the HTTP API, which the page uses.

use proto_frames::payload::Start;
use proto_frames::payload::guard::{SMALL, first_document};

use crate::printable::{Printable, counted};

mod keys;

pub use keys::{MAX_NAMED, UnknownKey, UnknownKeys};

/// What to warn of in one START.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartWarnings {
    /// Keys that mean nothing.
    pub keys: UnknownKeys,
    /// Values that mean something else than they seem to.
    pub values: Vec<DoubtfulValue>,
}

/// A value of a START that is taken for something else than its author most likely means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtfulValue {
    /// `restart: true`.
    Restart,
    /// A program without `vm_type`.
    NoType,
}

impl StartWarnings {
    /// Those of a payload in YAML that was decoded as this.
    #[must_use]
    pub fn of(payload: &[u8], start: &Start) -> Self {
        let document = first_document(payload, SMALL).unwrap_or_default();
        Self {
            keys: UnknownKeys::of(document),
            values: DoubtfulValue::of(start),
        }
    }

    /// Those of a payload in JSON that was decoded as this.
    #[must_use]
    pub fn of_json(payload: &[u8], start: &Start) -> Self {
        Self {
            keys: UnknownKeys::of_json(payload),
            values: DoubtfulValue::of(start),
        }
    }

    /// Whether there is nothing to warn of.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.keys.count() + self.values.len()
    }

    /// What they are, as the subject and verb of a sentence: `2 keys mean nothing there`.
    #[must_use]
    pub fn summary(&self) -> String {
        let keys = self.keys.count() as u64;
        let verb = if keys == 1 { "means" } else { "mean" };
        let unknown = format!("{} {verb} nothing there", counted(keys, "key"));
        let values: Vec<&str> = self.values.iter().map(|value| value.key()).collect();
        match (keys, &values[..]) {
            (_, []) => unknown,
            (0, values) => format!("{} does not do what it seems to", values.join(" and ")),
            (_, values) => format!(
                "{unknown}, and {} does not do what it seems to",
                values.join(" and ")
            ),
        }
    }

    /// A line for each that is named, and one for the other keys, if they are ignored.
    #[must_use]
    pub fn texts(&self) -> Vec<Printable> {
        let more = (self.keys.more > 0).then(|| {
            let more = counted(self.keys.more as u64, "more key");
            format!("{more} that do not exist, ignored")
        });
        let keys = self.keys.named.iter().map(UnknownKey::warning);
        let values = self.values.iter().map(|value| value.text().to_owned());
        keys.chain(more).chain(values).map(Printable::new).collect()
    }

    /// A line for each that is named, and one for the other keys, if they are a mistake.
    #[must_use]
    pub fn mistakes(&self) -> Vec<Printable> {
        let more = (self.keys.more > 0).then(|| format!("and {} more", self.keys.more));
        let keys = self.keys.named.iter().map(ToString::to_string);
        let values = self.values.iter().map(|value| value.text().to_owned());
        keys.chain(more).chain(values).map(Printable::new).collect()
    }

    /// The path of the first.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        let key = self.keys.named.first().map(|key| &*key.path);
        key.or_else(|| self.values.first().map(|value| value.key()))
    }
}

impl DoubtfulValue {
    fn of(start: &Start) -> Vec<Self> {
        let restart = start.restart.then_some(Self::Restart);
        let is_without_type = start.vm_type.is_empty() && !start.command.is_empty();
        let no_type = is_without_type.then_some(Self::NoType);
        restart.into_iter().chain(no_type).collect()
    }

    /// The key whose value it is.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Restart => "start.restart",
            Self::NoType => "start.vm_type",
        }
    }

    /// What the value means, and which one may be meant.
    fn text(self) -> &'static str {
        match self {
            Self::Restart => {
                "start.restart is the original's mark that the instance ran before, and no policy: nothing is started again \
                 by it; did you mean 'start.scheduling.restart: {when: on-failure}', or \
                 'start.scheduling.on_node_loss: restart'?"
            }
            Self::NoType => {
                "start.vm_type is missing, which means 'qemu'; `command` is run by `vm_type: process`"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::Payload;

    use super::*;

    fn warnings(document: &str) -> StartWarnings {
        let start = Start::decode_template(document.as_bytes()).unwrap();
        StartWarnings::of(document.as_bytes(), &start)
    }

    #[test]
    fn values_that_mean_something_else_are_named_with_what_may_be_meant() {
        let found = warnings("start: {command: [a], restart: true}\n");
        let keys: Vec<&str> = found.values.iter().map(|it| it.key()).collect();
        assert_eq!(keys, ["start.restart", "start.vm_type"]);
        let texts = found.texts();
        assert!(texts[0].contains("on_node_loss"), "{texts:?}");
        assert!(texts[1].contains("'qemu'"), "{texts:?}");
        let right = "start: {command: [a], vm_type: process, restart: false}\n";
        assert!(warnings(right).is_empty());
        let alone = "start: {vm_type: process, restart: true}\n";
        let summary = warnings(alone).summary();
        assert_eq!(summary, "start.restart does not do what it seems to");
    }

    #[test]
    fn a_document_in_json_has_the_same_warnings_as_one_in_yaml() {
        let document = "{\"start\": {\n  \"vm_type\": \"process\", \"restart\": true,\n  \"requirments\": {},\n\
                        \t\"storage\": [{}, {\"siez\": 1}], \"scheduling\": {\"priority\": 1}\n}}\n";
        let start = Start::decode_template(document.replace('\t', " ").as_bytes()).unwrap();
        let found = StartWarnings::of_json(document.as_bytes(), &start);
        let yaml = document.replace('\t', " ");
        assert_eq!(
            found.texts(),
            StartWarnings::of(yaml.as_bytes(), &start).texts()
        );
        assert_eq!(found.first(), Some("start.requirments"));
        let texts = found.texts();
        assert_eq!(
            &*texts[0],
            "line 3: start.requirments: no such key, ignored; did you mean 'requirements'?"
        );
    }

    #[test]
    fn what_stands_in_documents_behind_the_first_is_not_warned_of() {
        let found = warnings("start: {vm_type: process}\n...\nstart: {x: [ {\n");
        assert_eq!(found, StartWarnings::default());
        assert!(Start::decode(b"start: {x: 1}\n").is_err());
    }

    #[test]
    fn no_key_can_command_a_terminal() {
        let key = format!("\\e]0;x\\a\\r\\n\\u202E\\0<script>{}", "x".repeat(100_000));
        let found = warnings(&format!("start: {{? \"{key}\" : 1}}\n"));
        let paths = found.keys.named.iter().map(|it| it.path.clone());
        let texts = found.texts().into_iter().chain(found.mistakes());
        for text in texts.map(|it| it.to_string()).chain(paths) {
            assert!(!text.contains(crate::printable::is_unprintable), "{text:?}");
            assert!(text.len() < 300, "{text:?}");
        }
    }
}
