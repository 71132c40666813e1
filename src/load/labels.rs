//! The labels that simulated launchers report: a few names, each with so many values that are given out in turn.
//!
//! Launcher number 4 of a run with `--labels zone=3,rack=2` reports `zone: zone-1` and `rack: rack-0`. STARTs can then
//! require or spread over them with `--scheduling`.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Most labels of a launcher: a node of a real cluster has a dozen.
pub const MAX_LABELS: usize = 64;

/// Longest name of a label, in bytes.
pub const MAX_NAME_LEN: usize = 63;

/// Most values of one label: one for each of the most launchers there may be.
pub const MAX_VALUES: usize = 100_000;

/// Names of labels and how many values each has (`zone=3,rack=40`); none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(BTreeMap<String, usize>);

impl Labels {
    /// What launcher number `index` reports: of a label with three values, every third has the same.
    ///
    /// Every launcher has all labels.
    #[must_use]
    pub fn of(&self, index: usize) -> BTreeMap<String, String> {
        let label = |(name, values): (&String, &usize)| {
            (name.clone(), format!("{name}-{}", index % values))
        };
        self.0.iter().map(label).collect()
    }
}

impl FromStr for Labels {
    type Err = String;

    /// Blanks around the parts are allowed; a name given twice is an error.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for part in text.split(',') {
            let (name, values) = label(part.trim())?;
            if labels.insert(name.to_owned(), values).is_some() {
                return Err(format!("{name} is there twice"));
            }
        }
        if labels.len() > MAX_LABELS {
            return Err(format!("no more than {MAX_LABELS} labels"));
        }
        Ok(Self(labels))
    }
}

/// One part, `NAME=N`.
fn label(text: &str) -> Result<(&str, usize), String> {
    let (name, values) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?}: write NAME=N, for example zone=3"))?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.bytes().all(plain) {
        return Err(format!(
            "{name:?} is no name of a label: 1 to {MAX_NAME_LEN} letters, digits, dots, dashes and underscores"
        ));
    }
    match values.parse() {
        Ok(values @ 1..=MAX_VALUES) => Ok((name, values)),
        _ => Err(format!(
            "{name}: the number of its values is 1 to {MAX_VALUES}, not {values:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, index: usize) -> Vec<(String, String)> {
        let labels: Labels = text.parse().unwrap();
        labels.of(index).into_iter().collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn values_are_given_out_in_turn() {
        for (index, zone, rack) in [
            (0, "zone-0", "rack-0"),
            (2, "zone-2", "rack-2"),
            (3, "zone-0", "rack-3"),
            (40, "zone-1", "rack-0"),
        ] {
            let expected = [pair("rack", rack), pair("zone", zone)];
            assert_eq!(of("zone=3, rack=40", index), expected, "{index}");
        }
        assert!(Labels::default().of(7).is_empty());
    }

    #[test]
    fn what_is_no_label_is_refused_by_name() {
        for (text, named) in [
            ("", "NAME=N"),
            ("zone", "zone"),
            ("zone=", "zone"),
            ("zone=0", "zone"),
            ("zone=100001", "zone"),
            ("=3", "name of a label"),
            ("a b=3", "a b"),
            ("a:=3", "a:"),
            ("zone=3,zone=4", "twice"),
        ] {
            let error = text.parse::<Labels>().unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
        let many = |count: usize| {
            let names: Vec<_> = (0..count).map(|n| format!("l{n}=1")).collect();
            names.join(",").parse::<Labels>()
        };
        assert!(many(MAX_LABELS).is_ok());
        assert!(many(MAX_LABELS + 1).is_err());
        assert!(format!("{}=1", "x".repeat(64)).parse::<Labels>().is_err());
    }
}
