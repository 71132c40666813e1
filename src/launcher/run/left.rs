//! DeleteOutput: what an instance that is over has left here is deleted, its output and its working directory. Nothing of
//! one that runs, or is about to.

use std::time::Instant;

use proto_frames::payload::identifier::make_usual;
use proto_frames::payload::{DeleteOutput, OutputChunk, OutputFailure, OutputPart, Payload};
use tracing::{debug, info};

use super::super::agent::is_file_name;
use super::{LiveNode, Machine};

impl LiveNode {
    /// Deals with the request, and answers it. An unreadable one is dropped.
    pub(super) fn delete_left(&mut self, now: Instant, payload: &[u8]) {
        let mut delete = match DeleteOutput::decode(payload) {
            Ok(delete) => delete,
            Err(error) => return debug!(%error, "unreadable DeleteOutput ignored"),
        };
        make_usual(&mut delete.instance_uuid);
        let part = self.left_deleted(now, &delete);
        self.send_output(&OutputChunk::new(part, Default::default()));
    }

    fn left_deleted(&mut self, now: Instant, delete: &DeleteOutput) -> OutputPart {
        let (id, read) = (&delete.instance_uuid, delete.as_read());
        if !is_file_name(id) {
            return read.fail(OutputFailure::NoInstance, "no instance can be called so");
        }
        if self.agent.has_live(id) {
            let detail = "it runs on its node, or is about to: delete it first";
            return read.fail(OutputFailure::NotOver, detail);
        }
        let Machine::Real(processes) = &mut self.machine else {
            let detail = "its launcher runs nothing really";
            return read.fail(OutputFailure::NotSupported, detail);
        };
        let (count, input) = processes.delete_left(id);
        if count > 0 {
            info!(event = "output_deleted", instance = %id, runs = count, "what an ended instance has left is deleted, as requested");
        }
        self.agent.handle(now, input);
        let deleted = u64::try_from(count).unwrap_or(u64::MAX);
        OutputPart {
            deleted: Some(deleted),
            ..read.fail(OutputFailure::default(), "")
        }
    }
}
