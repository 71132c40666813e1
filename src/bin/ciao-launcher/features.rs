//! What a node says of itself beyond its figures: flags of the command line, checked, and what was found on the
//! machine.
//!
//! They hold for simulated nodes too, for which nothing is found. Finding is the business of [`detect`].
//!
//! ```text
//! --label zone=a ─┐
//!                 ├─ unique, limits ─┐
//! --resource g=4 ─┘                  ├─▶ Features ─▶ READY and STATS
//! found on the machine ──── fill ────┘
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use ciao_scheduler::launcher::agent::{Features, MAX_DEVICES};
use ciao_scheduler::launcher::detect;
use clap::{Args, ValueEnum};
use proto_frames::Uuid;
use proto_frames::payload::expression::{MAX_NAME_LEN, is_name};
use tracing::warn;

use self::devices::{device_variables, parse_units, parse_variable};

mod devices;

/// Most labels of a node: what a dozen agents and administrators think of, and still a small part of a report.
pub(crate) const MAX_LABELS: usize = 64;

/// Most further resources of a node: as many as the scheduler takes from one.
pub(crate) const MAX_RESOURCES: usize = 32;

/// Most nodes that share the resources of one: as many as the scheduler takes.
pub(crate) const MAX_PARTS: usize = 32;

/// Most volumes and ports of a node: as many as the scheduler takes from one.
pub(crate) const MAX_VOLUMES: usize = 1024;

/// Longest value of a label, in bytes: a host name or a path fits.
pub(crate) const MAX_LABEL_VALUE_LEN: usize = 255;

/// Where the keys begin that the scheduler gives values to.
const RESERVED: &str = "node.";

/// What a node says of itself, on the command line.
#[derive(Debug, Clone, Args)]
pub(crate) struct FeatureFlags {
    /// Label of the node, for STARTs to require or prefer, e.g. zone=a, or image.NAME=VERSION for an image it has; may
    /// be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) label: Vec<(String, String)>,
    /// How much the node has of a further resource that is counted, e.g. gpu=4; may be repeated
    #[arg(long, value_name = "NAME=AMOUNT", value_parser = parse_resource)]
    pub(crate) resource: Vec<(String, i64)>,
    /// A variable in which programs read their units of a resource as well, e.g. gpu=CUDA_VISIBLE_DEVICES or
    /// gpu=ROCR_VISIBLE_DEVICES; it is empty for programs that have none. May be repeated
    #[arg(long, value_name = "RESOURCE=VARIABLE", value_parser = parse_variable)]
    pub(crate) device_variable: Vec<(String, String)>,
    /// What the units of a resource are called in such a variable, in order, e.g. gpu=GPU-8a1b,GPU-77c0 or the UUIDs of MIG
    /// devices; their indices from 0 unless given. May be repeated
    #[arg(long, value_name = "RESOURCE=NAME,NAME", value_parser = parse_units)]
    pub(crate) device_names: Vec<(String, Vec<String>)>,
    /// The node whose resources this one shares, e.g. the whole machine's where this is one of its NUMA nodes; that one
    /// has to say so as well, by --shared-by
    #[arg(long, value_name = "UUID")]
    pub(crate) shares: Option<Uuid>,
    /// A node that shares the resources of this one; may be repeated
    #[arg(long, value_name = "UUID")]
    pub(crate) shared_by: Vec<Uuid>,
    /// Id of a volume or port that can be reached from this node; STARTs that name it in storage or networking are
    /// placed here rather than elsewhere; may be repeated
    #[arg(long, value_name = "ID", value_parser = parse_volume)]
    pub(crate) volume: Vec<String>,
    /// What to report of what is found on this machine
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "labels",
        overrides_with = "no_detect"
    )]
    pub(crate) detect: Detect,
    /// The same as --detect none
    #[arg(long, overrides_with = "detect")]
    pub(crate) no_detect: bool,
}

/// What to report of what is found on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Detect {
    /// Nothing
    None,
    /// What the machine is, as labels
    Labels,
    /// Labels, and as resources what can be counted: huge pages, accelerators
    ///
    /// Not the default, because each of several launchers on one machine would count them as its own.
    All,
}

/// Why a node cannot say so of itself.
///
/// The texts name the flag. The program ends with one of these before it connects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FeaturesError {
    /// The command line has too many labels.
    #[error("--label: {0} labels; a node may have {MAX_LABELS}")]
    TooManyLabels(usize),
    /// The command line has too many resources.
    #[error("--resource: {0} resources; a node may have {MAX_RESOURCES}")]
    TooManyResources(usize),
    /// The command line has too many nodes that share what this one has.
    #[error("--shared-by: {0} nodes; at most {MAX_PARTS} may share what one has")]
    TooManyParts(usize),
    /// The command line has too many volumes.
    #[error("--volume: {0} volumes; a node may have {MAX_VOLUMES}")]
    TooManyVolumes(usize),
    /// A flag about devices names a resource that the node does not have, or has too much of to tell units apart.
    #[error(
        "--{flag} {resource}=…: the node has {amount} of {resource}, and units are told apart of 1 to {MAX_DEVICES}; say \
         --resource {resource}=AMOUNT, or have it found by --detect all"
    )]
    NoUnits {
        /// Which flag, without dashes.
        flag: &'static str,
        /// The resource.
        resource: String,
        /// How much of it the node has.
        amount: i64,
    },
    /// There are more or fewer names than units.
    #[error("--device-names {resource}=…: {names} names, and the node has {amount} of {resource}")]
    Names {
        /// The resource.
        resource: String,
        /// How many names are given.
        names: usize,
        /// How much of it the node has.
        amount: i64,
    },
    /// Units have names that no variable would tell.
    #[error(
        "--device-names {0}=…: there is no variable that tells them; say --device-variable {0}=VARIABLE as well"
    )]
    NamesUnused(String),
    /// One label or resource has two values.
    #[error("--{flag}: {name} is given twice")]
    Twice {
        /// Which flag, without dashes.
        flag: &'static str,
        /// The key.
        name: String,
    },
}

impl Detect {
    /// What is found on this machine.
    ///
    /// Reads files below `/proc` and `/sys`; what cannot be read is left out.
    pub(crate) fn find(self) -> Features {
        let root = Path::new("/");
        let mut found = Features::default();
        if let Self::Labels | Self::All = self {
            found.labels = detect::labels(root);
        }
        if self == Self::All {
            found.resources = detect::resources(root);
        }
        found
    }
}

impl FeatureFlags {
    /// What to find on the machine.
    #[must_use]
    pub(crate) fn detect(&self) -> Detect {
        if self.no_detect {
            Detect::None
        } else {
            self.detect
        }
    }

    /// What the flags say, and what was found where they say nothing.
    ///
    /// A label or resource of the command line replaces one of the same name that was found.
    ///
    /// # Errors
    /// [`FeaturesError`], for the flags alone; of what was found, that is left out for which there is no room.
    pub(crate) fn features(self, found: Features) -> Result<Features, FeaturesError> {
        if self.label.len() > MAX_LABELS {
            return Err(FeaturesError::TooManyLabels(self.label.len()));
        }
        if self.resource.len() > MAX_RESOURCES {
            return Err(FeaturesError::TooManyResources(self.resource.len()));
        }
        if self.shared_by.len() > MAX_PARTS {
            return Err(FeaturesError::TooManyParts(self.shared_by.len()));
        }
        if self.volume.len() > MAX_VOLUMES {
            return Err(FeaturesError::TooManyVolumes(self.volume.len()));
        }
        let mut features = Features {
            labels: unique("label", self.label)?,
            resources: unique("resource", self.resource)?,
            shares: self.shares,
            shared_by: self.shared_by,
            volumes: self.volume,
            ..Features::default()
        };
        fill(&mut features.labels, found.labels, MAX_LABELS);
        fill(&mut features.resources, found.resources, MAX_RESOURCES);
        let names = unique("device-names", self.device_names)?;
        features.device_variables =
            device_variables(&features.resources, self.device_variable, names)?;
        Ok(features)
    }
}

/// Two values for one name are an error, since the order of flags should not decide.
fn unique<T>(
    flag: &'static str,
    pairs: Vec<(String, T)>,
) -> Result<BTreeMap<String, T>, FeaturesError> {
    let mut map = BTreeMap::new();
    for (name, value) in pairs {
        if map.contains_key(&name) {
            return Err(FeaturesError::Twice { flag, name });
        }
        map.insert(name, value);
    }
    Ok(map)
}

/// Adds what was found to what was said.
///
/// In the order of names, until there are `max` of them. What is left out is a warning in the log.
fn fill<T>(said: &mut BTreeMap<String, T>, found: BTreeMap<String, T>, max: usize) {
    for (name, value) in found {
        if said.contains_key(&name) {
            continue;
        }
        if said.len() == max {
            warn!(
                event = "feature_not_reported",
                name, max, "found on the machine and not reported: too many"
            );
            continue;
        }
        said.insert(name, value);
    }
}

/// The value may be empty, and may contain `=`. Control characters are refused, because labels are shown in terminals.
fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = pair(text, "KEY=VALUE")?;
    if key.starts_with(RESERVED) {
        return Err(format!(
            "keys that begin with {RESERVED} are the scheduler's"
        ));
    }
    if value.len() > MAX_LABEL_VALUE_LEN {
        return Err(format!(
            "the value has {} bytes; {MAX_LABEL_VALUE_LEN} are allowed",
            value.len()
        ));
    }
    if value.contains(char::is_control) {
        return Err("the value has a control character".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Not more is asked of an id than that it can be shown: other programs give volumes their names.
fn parse_volume(id: &str) -> Result<String, String> {
    if (1..=MAX_LABEL_VALUE_LEN).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic()) {
        return Ok(id.to_owned());
    }
    Err(format!(
        "an id must be 1 to {MAX_LABEL_VALUE_LEN} visible ASCII characters"
    ))
}

/// An amount of 0 is allowed: the node then has the resource, and none of it.
fn parse_resource(text: &str) -> Result<(String, i64), String> {
    let (name, amount) = pair(text, "NAME=AMOUNT")?;
    match amount.parse() {
        Ok(amount) if amount >= 0 => Ok((name.to_owned(), amount)),
        _ => Err("the amount must be a whole number from 0".to_owned()),
    }
}

/// The two sides of the first `=`, if the left one is a name.
///
/// `form` is for the message.
fn pair<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("must be of the form {form}"))?;
    if is_name(name) {
        Ok((name, value))
    } else {
        Err(format!(
            "the name before '=' must be 1 to {MAX_NAME_LEN} letters, digits, '.', '_', '/' or '-'"
        ))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{
        Detect, FeatureFlags, Features, FeaturesError, MAX_LABELS, MAX_RESOURCES, parse_label,
        parse_resource,
    };

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        flags: FeatureFlags,
    }

    pub(super) fn flags(args: &[&str]) -> FeatureFlags {
        let args = std::iter::once("x").chain(args.iter().copied());
        Line::try_parse_from(args).unwrap().flags
    }

    /// A machine with two labels and one resource.
    pub(super) fn found() -> Features {
        Features {
            labels: [("arch", "x86_64"), ("os", "linux")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            resources: [("gpu".to_owned(), 8)].into(),
            ..Features::default()
        }
    }

    #[test]
    fn labels_and_resources_add_up_and_go_before_what_was_found() {
        let flags = flags(&[
            "--label",
            "zone=a",
            "--label=arch=mine",
            "--label",
            "expr=a=b c",
            "--label=ssd=",
            "--resource",
            "gpu=4",
            "--resource=licence=0",
        ]);
        let features = flags.features(found()).unwrap();
        let labels: Vec<(&str, &str)> = features
            .labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("arch", "mine"),
            ("expr", "a=b c"),
            ("os", "linux"),
            ("ssd", ""),
            ("zone", "a"),
        ];
        assert_eq!(labels, expected);
        assert_eq!(
            (features.resources["gpu"], features.resources["licence"]),
            (4, 0)
        );
    }

    #[test]
    fn labels_are_found_unless_said_otherwise_and_the_last_word_counts() {
        for (args, expected) in [
            (&[][..], Detect::Labels),
            (&["--detect", "all"], Detect::All),
            (&["--no-detect"], Detect::None),
            (&["--detect=all", "--no-detect"], Detect::None),
            (&["--no-detect", "--detect=all"], Detect::All),
        ] {
            assert_eq!(flags(args).detect(), expected, "{args:?}");
        }
        assert_eq!(Detect::None.find(), Features::default());
        let labels = Detect::Labels.find();
        assert!(labels.labels.contains_key("arch") && labels.resources.is_empty());
    }

    #[test]
    fn what_is_no_label_is_refused_with_what_it_lacks() {
        for (text, reason) in [
            ("zone", "must be of the form KEY=VALUE"),
            ("=a", "the name before '='"),
            ("my zone=a", "the name before '='"),
            ("zöne=a", "the name before '='"),
            (
                "node.load=0",
                "keys that begin with node. are the scheduler's",
            ),
            (
                &format!("zone={}", "a".repeat(256)),
                "has 256 bytes; 255 are allowed",
            ),
            ("zone=a\nb", "control character"),
        ] {
            let error = parse_label(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(parse_label(&format!("nodes={}", "a".repeat(255))).is_ok());
    }

    #[test]
    fn what_is_no_resource_is_refused_with_what_it_lacks() {
        for (text, reason) in [
            ("gpu", "must be of the form NAME=AMOUNT"),
            ("g pu=1", "the name before '='"),
            ("gpu=-1", "a whole number from 0"),
            ("gpu=1.5", "a whole number from 0"),
            ("gpu=", "a whole number from 0"),
            ("gpu=9223372036854775808", "a whole number from 0"),
        ] {
            let error = parse_resource(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn too_many_are_refused_and_so_are_two_values() {
        let mut many = flags(&[]);
        many.label = (0..=MAX_LABELS)
            .map(|n| (n.to_string(), String::new()))
            .collect();
        let error = many.features(Features::default()).unwrap_err();
        assert_eq!(error.to_string(), "--label: 65 labels; a node may have 64");
        let mut many = flags(&[]);
        many.resource = (0..=MAX_RESOURCES).map(|n| (n.to_string(), 1)).collect();
        let error = many.features(Features::default()).unwrap_err();
        assert_eq!(error, FeaturesError::TooManyResources(33));
        let error = flags(&["--label=zone=a", "--label=zone=b"])
            .features(Features::default())
            .unwrap_err();
        assert_eq!(error.to_string(), "--label: zone is given twice");
    }

    #[test]
    fn what_was_found_takes_what_room_is_left() {
        let mut most = flags(&[]);
        most.label = (1..MAX_LABELS)
            .map(|n| (n.to_string(), String::new()))
            .collect();
        let features = most.features(found()).unwrap();
        assert_eq!(features.labels.len(), MAX_LABELS);
        assert!(features.labels.contains_key("arch") && !features.labels.contains_key("os"));
    }
}
