//! The node file, for who asks: as it was read last, as it is now, and whom another one would move. It has no versions, and
//! no command changes it: the file itself is changed, and read again.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use proto_frames::payload::configuration::MAX_AFFECTED;
use proto_frames::payload::{
    ConfigurationFailure, ConfigurationPart, ReadConfiguration, WriteConfiguration,
};

use super::keeper::{Keeper, Shared, note_affected};
use crate::server::hub::Hub;
use crate::server::node_file::{self, MAX_COMPARED};
use sched_core::Trial;

/// The node file as it was read last.
#[derive(Debug)]
pub(super) struct InForce {
    path: PathBuf,
    /// `None` of one that is too long to be sent.
    document: Option<Bytes>,
}

/// What is answered: a part, and a document behind it.
type Answered = (ConfigurationPart, Bytes);

impl Keeper {
    /// The node file was read, and is in force.
    pub(in crate::server) fn set_node_file(&self, path: &Path, document: Option<Bytes>) {
        let path = path.to_owned();
        *self.shared.nodes.lock() = Some(InForce { path, document });
    }
}

impl Shared {
    /// The node file in force, or as it is now.
    pub(super) fn read_nodes(&self, read: &ReadConfiguration) -> Answered {
        let nodes = self.nodes.lock();
        let Some(in_force) = &*nodes else {
            let detail = "the scheduler has no --node-file";
            return failed(read.id, ConfigurationFailure::NotFound, detail);
        };
        let (path, document) = (in_force.path.clone(), in_force.document.clone());
        drop(nodes);
        let file = path.display().to_string();
        let too_long = || {
            let detail = format!("{file} has more than {MAX_COMPARED} bytes, and is not compared");
            failed(read.id, ConfigurationFailure::Failed, &detail)
        };
        let document = if read.file {
            match node_file::read(&path) {
                Ok(document) if document.len() > MAX_COMPARED => return too_long(),
                Ok(document) => document.into(),
                Err(why) => {
                    let detail = format!("{file}: {why}");
                    return failed(read.id, ConfigurationFailure::Failed, &detail);
                }
            }
        } else {
            match document {
                Some(document) => document,
                None => return too_long(),
            }
        };
        let part = ConfigurationPart {
            id: read.id,
            file,
            nodes: true,
            ..ConfigurationPart::default()
        };
        (part, document)
    }

    /// Whom a node file would move.
    pub(super) fn check_nodes(hub: &Hub, asked: &WriteConfiguration, data: &[u8]) -> Answered {
        if !asked.check {
            let detail =
                "no command changes the node file: change the file, and have it read again";
            return failed(asked.id, ConfigurationFailure::InvalidData, detail);
        }
        match node_file::parse(data) {
            Ok(rules) => {
                let trial = hub.read_now(Trial::of);
                let mut part = ConfigurationPart {
                    id: asked.id,
                    nodes: true,
                    ..ConfigurationPart::default()
                };
                note_affected(&mut part, trial.with_node_rules(rules, MAX_AFFECTED));
                (part, Bytes::new())
            }
            Err(mistake) => {
                let detail = mistake.to_string();
                failed(asked.id, ConfigurationFailure::InvalidData, &detail)
            }
        }
    }
}

fn failed(id: u64, failure: ConfigurationFailure, detail: &str) -> Answered {
    let part = ConfigurationPart {
        nodes: true,
        ..ConfigurationPart::fail(id, failure, detail)
    };
    (part, Bytes::new())
}
