//! The `scheduling` section of a load run's STARTs: any YAML mapping, given as text or as a file. Its keys
//! are not looked at here.
//!
//! ```text
//! --scheduling 'require: ["zone = zone-1"]'    or    --scheduling FILE
//!
//!   scheduling:
//!     require:
//!     - zone = zone-1
//! ```

use std::fs::File;
use std::io::Read;

use serde_yaml::Value;

use crate::load::error::LoadError;

/// Longest section, in bytes: a frame carries 4 MiB and a START's first document 256 KiB, of which this is a quarter.
pub const MAX_LEN: usize = 64 * 1024;

/// Blanks before each line of the section: it stands under `start:` and `scheduling:`.
const INDENT: &str = "    ";

/// A section, as lines to stand under `start:`.
///
/// Ends with a line end, so that other keys of `start:` can follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduling(String);

impl Scheduling {
    /// Takes text that is a YAML mapping as it is, and any other as the name of a file with one.
    ///
    /// # Errors
    /// [`LoadError::Scheduling`], which says why it is neither.
    pub fn read(text: &str) -> Result<Self, LoadError> {
        let error = |reason: String| LoadError::Scheduling { reason };
        let as_text = match Self::parse(text) {
            Ok(scheduling) => return Ok(scheduling),
            Err(reason) => reason,
        };
        let mut contents = String::new();
        // One byte more than allowed, to know that there is more.
        let read = File::open(text)
            .and_then(|file| file.take(MAX_LEN as u64 + 1).read_to_string(&mut contents));
        match read {
            Ok(_) => Self::parse(&contents).map_err(|reason| error(format!("{text}: {reason}"))),
            Err(e) => Err(error(format!(
                "{text:?} is {as_text}, and as a file it cannot be read: {e}"
            ))),
        }
    }

    /// A section that requires this of nodes beside what another one says, if there is another one.
    ///
    /// For `--force`: STARTs must not reach nodes that are not simulated.
    ///
    /// # Errors
    /// [`LoadError::Scheduling`]: its `require` is no list.
    pub fn requiring(section: Option<&Self>, expression: &str) -> Result<Self, LoadError> {
        let error = |reason: String| LoadError::Scheduling { reason };
        let text = section.map_or("  scheduling: {}", Self::lines);
        let mut root: Value =
            serde_yaml::from_str(text).map_err(|e| error(format!("no YAML ({e})")))?;
        let mapping = root.get_mut("scheduling").and_then(Value::as_mapping_mut);
        let mapping = mapping.ok_or_else(|| error("no YAML mapping".into()))?;
        let require = mapping
            .entry("require".into())
            .or_insert_with(|| Value::Sequence(Vec::new()));
        let list = require.as_sequence_mut();
        list.ok_or_else(|| error("require is no list".into()))?
            .push(expression.into());
        let section = Value::Mapping(mapping.clone());
        Self::write(&section).map_err(error)
    }

    /// Nothing is checked but that it is a mapping: the scheduler has the last word.
    fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LEN {
            return Err(format!("longer than {MAX_LEN} bytes"));
        }
        let value: Value = serde_yaml::from_str(text).map_err(|e| format!("no YAML ({e})"))?;
        if !value.is_mapping() {
            return Err("no YAML mapping".into());
        }
        Self::write(&value)
    }

    /// Written from what was read, so that text of any style stands well under its key.
    fn write(value: &Value) -> Result<Self, String> {
        let written = serde_yaml::to_string(value).map_err(|e| format!("no YAML ({e})"))?;
        let lines = written.lines().map(|line| format!("{INDENT}{line}\n"));
        Ok(Self(format!(
            "  scheduling:\n{}",
            lines.collect::<String>()
        )))
    }

    /// The lines, `scheduling:` being the first, each with its end.
    #[must_use]
    pub fn lines(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_any_style_stands_well_under_its_key() {
        let block = "version: 1\nrequire:\n- zone = zone-0\nnote: |\n  two\n  lines\n";
        let flow = "{version: 1, require: [\"zone = zone-0\"], note: \"two\\nlines\\n\"}";
        for text in [block, flow] {
            let section = Scheduling::read(text).unwrap();
            let document = format!("start:\n{}", section.lines());
            let read: Value = serde_yaml::from_str(&document).unwrap();
            let scheduling = &read["start"]["scheduling"];
            assert_eq!(scheduling["version"], Value::from(1), "{document}");
            assert_eq!(scheduling["require"][0], Value::from("zone = zone-0"));
            assert_eq!(scheduling["note"], Value::from("two\nlines\n"));
        }
        assert_eq!(
            Scheduling::read("{}").unwrap().lines(),
            "  scheduling:\n    {}\n"
        );
    }

    #[test]
    fn a_requirement_is_added_to_those_that_are_there() {
        let section = Scheduling::read("{priority: 50, require: [a = b]}").unwrap();
        for (section, expected) in [(None, "[c = d]"), (Some(&section), "[a = b, c = d]")] {
            let with = Scheduling::requiring(section, "c = d").unwrap();
            let read: Value = serde_yaml::from_str(&format!("start:\n{}", with.lines())).unwrap();
            let expected: Value = serde_yaml::from_str(expected).unwrap();
            assert_eq!(read["start"]["scheduling"]["require"], expected);
            let has_priority = !read["start"]["scheduling"]["priority"].is_null();
            assert_eq!(has_priority, section.is_some());
        }
        let section = Scheduling::read("{require: a = b}").unwrap();
        let error = Scheduling::requiring(Some(&section), "c = d").unwrap_err();
        assert!(error.to_string().contains("no list"), "{error}");
    }

    #[test]
    fn what_is_no_mapping_is_taken_for_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let good = write("good.yaml", "priority: 50\n");
        assert_eq!(
            Scheduling::read(&good).unwrap(),
            Scheduling::read("priority: 50").unwrap()
        );
        let list = write("list.yaml", "- priority\n");
        let long = write("long.yaml", &format!("a: {}\n", "x".repeat(MAX_LEN)));
        for (text, said) in [
            (list.as_str(), "list.yaml: no YAML mapping"),
            (long.as_str(), "longer than 65536 bytes"),
            ("/nowhere/at.all", "cannot be read"),
            ("{require: [", "no YAML (did not find"),
            ("{a: 1, a: 2}", "no YAML (duplicate"),
            ("", "no YAML mapping"),
        ] {
            let error = Scheduling::read(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
