//! The node file (`--node-file`): what counts over what nodes report of themselves. Read once, at start.
//!
//! ```yaml
//! nodes:
//!   - node: host-1                     # or a UUID
//!     labels: {zone: eu-2, old: null}  # null takes a reported label away
//!     resources: {gpu: 4, fpga: null}
//!     shares: 6be56328-92e2-4ecd-b426-8fe529c04e0c   # the node whose resources it shares
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

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

/// Why a node file cannot be used.
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

/// Reads a node file.
///
/// # Errors
/// The first thing that is wrong.
pub(super) fn load(path: &Path) -> Result<Vec<NodeRule>, NodeFileError> {
    let mut document = Vec::new();
    File::open(path)?
        .take(MAX_LEN + 1)
        .read_to_end(&mut document)?;
    if document.len() as u64 > MAX_LEN {
        return Err(NodeFileError::TooLong { max: MAX_LEN });
    }
    Ok(parse(&document)?)
}

pub(super) fn parse(document: &[u8]) -> Result<Vec<NodeRule>, Mistake> {
    let Some(Mapping(whole)) = strict::read::<Mapping<Whole>>(document, &[])? else {
        return Err(Mistake::whole("expected a mapping, found nothing"));
    };
    if serde_yaml::Deserializer::from_slice(document)
        .nth(1)
        .is_some()
    {
        return Err(Mistake::whole("expected one YAML document, found several"));
    }
    let rules: Vec<NodeRule> = whole.nodes.0.into_iter().map(|it| it.0.into()).collect();
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct Whole {
    #[serde(deserialize_with = "required")]
    nodes: List<Mapping<Entry>, MAX_NODES>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct Entry {
    #[serde(deserialize_with = "required")]
    node: Plain<NodeText>,
    #[serde(default)]
    labels: Maybe<Pairs<LabelKey, Option<Plain<LabelValue>>, MAX_PER_NODE>>,
    #[serde(default)]
    resources: Maybe<Pairs<ResourceName, Option<Plain<Amount>>, MAX_PER_NODE>>,
    #[serde(default)]
    shares: Maybe<Plain<NodeUuid>>,
}

impl From<Entry> for NodeRule {
    fn from(entry: Entry) -> Self {
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
