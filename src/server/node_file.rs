//! The node file (`--node-file`): what counts over what nodes report of themselves. Read at start, and when the daemon
//! reads its files again.
//!
//! A node is what it reports of itself, and this file is the operator's word against that: it is for launchers that
//! report no labels or custom resources, as the original's, and for the one statement that no node may make alone, that
//! it shares another's resources. It is not a list of the nodes that may join, which certificates decide.
//!
//! Neighbours: [`super::strict`] reads every value with its place in the text, [`super::start`] calls [`load`] before
//! any socket is opened, and the core applies the rules when a node joins or reports ([`NodeRule`]).
//!
//! ```yaml
//! nodes:
//!   - node: host-1                     # or a UUID
//!     labels: {zone: eu-2, old: null}  # null takes a reported label away
//!     resources: {gpu: 4, fpga: null}
//!     shares: 6be56328-92e2-4ecd-b426-8fe529c04e0c   # the node whose resources it shares
//! ```
//!
//! Every mistake ends the start of the daemon, or leaves what was read before as it is: a rule that was passed over in silence would let work go to the wrong
//! nodes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proto_frames::payload::configuration::MAX_CONFIGURATION_LEN;
use serde::Deserialize;

use super::strict::names::{Amount, LabelKey, LabelValue, NodeText, NodeUuid, ResourceName};
use super::strict::{self, List, Mapping, Maybe, Mistake, Pairs, Plain, required};
use sched_core::{NodeName, NodeRule};

/// Nodes in one file: as many as a cluster may have.
const MAX_NODES: usize = 100_000;

/// Labels, and custom resources, of one node: as many as a node may report.
const MAX_PER_NODE: usize = 64;

/// Largest file read, in bytes: 320 for each of [`MAX_NODES`], which is a UUID and a dozen labels.
const MAX_LEN: u64 = 32_000_000;

/// Why a node file cannot be used. A program that shows it names the file itself; these sentences do not.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is too long.
    #[error("more than {max} bytes")]
    TooLong {
        /// The limit.
        max: u64,
    },
    /// Something in it is wrong.
    #[error(transparent)]
    Mistake(#[from] Mistake),
}

/// A node file that was read.
#[derive(Debug, Clone)]
pub(super) struct NodeFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// What it says of each node.
    pub(super) rules: Vec<NodeRule>,
    /// The file itself, to compare with later; `None` of one that is too long to be sent to who asks.
    pub(super) document: Option<Bytes>,
}

/// Longest file that is kept to be compared with, and that is checked before it is read, in bytes: what an answer about
/// the configuration may have.
pub(super) const MAX_COMPARED: usize = MAX_CONFIGURATION_LEN;

/// Reads a node file.
///
/// The file is read up to one byte beyond [`MAX_LEN`], so that a file that grows, or
/// a device such as `/dev/zero`, costs no more memory than that.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn load(path: &Path) -> Result<NodeFile, NodeFileError> {
    let document = read(path)?;
    Ok(NodeFile {
        path: path.to_owned(),
        rules: parse(&document)?,
        document: (document.len() <= MAX_COMPARED).then(|| document.into()),
    })
}

/// Reads the bytes of one.
///
/// # Errors
/// The system's, or that it is too long.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, NodeFileError> {
    // One byte more than may be: that it was read is how a file that is too long shows.
    let mut document = Vec::new();
    File::open(path)?
        .take(MAX_LEN + 1)
        .read_to_end(&mut document)?;
    if document.len() as u64 > MAX_LEN {
        return Err(NodeFileError::TooLong { max: MAX_LEN });
    }
    Ok(document)
}

/// Reads the document of a node file, in the order of its entries.
///
/// Beside each value's own shape this finds what only several entries together show: a node that is named twice, and
/// one that shares its own resources. The latter is only found where a node is named by UUID on both sides; by host
/// name it cannot be told here which UUID it has.
///
/// # Errors
/// The first mistake, with its key and place in the text.
pub(super) fn parse(document: &[u8]) -> Result<Vec<NodeRule>, Mistake> {
    // An empty document is a mistake rather than an empty list: an operator who gives a node file means something by
    // it.
    let Some(Mapping(whole)) = strict::read::<Mapping<Whole>>(document, &[])? else {
        return Err(Mistake::whole("expected a mapping, found nothing"));
    };
    // serde reads the first document alone. Rules in a second one would be ignored without a word.
    if serde_yaml::Deserializer::from_slice(document)
        .nth(1)
        .is_some()
    {
        return Err(Mistake::whole("expected one YAML document, found several"));
    }
    let rules: Vec<NodeRule> = whole.nodes.0.into_iter().map(|it| it.0.into()).collect();
    // Two entries for one node would leave open which of them counts. Host names and UUIDs are not compared with each
    // other: which host has which UUID is known once it connects.
    let mut seen: HashMap<&NodeName, usize> = HashMap::new();
    for (at, rule) in rules.iter().enumerate() {
        if let Some(first) = seen.insert(&rule.node, at) {
            let problem = format!("expected each node once, found that of nodes[{first}] again");
            return Err(Mistake::at(document, format!("nodes[{at}].node"), problem));
        }
        if let (NodeName::Uuid(node), Some(shares)) = (&rule.node, &rule.shares)
            && node == shares
        {
            let problem = "expected another node: none shares its own resources";
            return Err(Mistake::at(
                document,
                format!("nodes[{at}].shares"),
                problem,
            ));
        }
    }
    Ok(rules)
}

/// The document as a whole.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct Whole {
    #[serde(deserialize_with = "required")]
    nodes: List<Mapping<Entry>, MAX_NODES>,
}

/// One node of the list. Keys that are left out say nothing about that part of the node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
pub(super) struct Entry {
    /// Its UUID or host name, as [`NodeText`] tells them apart.
    #[serde(deserialize_with = "required")]
    node: Plain<NodeText>,
    /// Labels that are set over the reported ones; `null` takes a reported one away.
    #[serde(default)]
    labels: Maybe<Pairs<LabelKey, Option<Plain<LabelValue>>, MAX_PER_NODE>>,
    /// Custom resources, likewise, in whole units.
    #[serde(default)]
    resources: Maybe<Pairs<ResourceName, Option<Plain<Amount>>, MAX_PER_NODE>>,
    /// By UUID alone: what shares resources must know the owner for certain, and host names may occur twice.
    #[serde(default)]
    shares: Maybe<Plain<NodeUuid>>,
}

impl From<Entry> for NodeRule {
    fn from(entry: Entry) -> Self {
        // Absent is the same as empty from here on.
        let labels = entry.labels.0.map_or_else(Vec::new, |pairs| pairs.0);
        let resources = entry.resources.0.map_or_else(Vec::new, |pairs| pairs.0);
        Self {
            node: entry.node.0.0,
            labels: labels
                .into_iter()
                .map(|(LabelKey(key), value)| (key, value.map(|value| value.0.0)))
                .collect(),
            resources: resources
                .into_iter()
                .map(|(ResourceName(name), amount)| (name, amount.map(|amount| amount.0.0)))
                .collect(),
            shares: entry.shares.0.map(|shares| shares.0.0),
        }
    }
}

#[cfg(test)]
mod tests;
