//! What instances are: name, tenant, program and age of each, as the scheduler is told it once on a connection
//! (Workloads).
//!
//! A scheduler that was restarted without a state directory has nothing else to learn these from. They do not change,
//! and so STATS does not repeat them.

use std::collections::BTreeMap;
use std::time::Instant;

use proto_frames::payload::cut::cut;
use proto_frames::payload::{Digest, Start, Workload, Workloads};
use serde::{Deserialize, Serialize};

use super::{Agent, Message};

/// Bytes of what is said of a program: as many as the scheduler shows.
const MAX_PROGRAM_LEN: usize = 64;

/// What an instance is called and runs, as its START said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Its name; empty for none.
    pub name: String,
    /// Its tenant; empty for none.
    pub tenant: String,
    /// The first words of its command, or its image.
    pub program: String,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The digests of a program and of what it needs beside it, in this order; none where there is no such program.
pub(super) fn images_of(image: &str, more_images: &[String]) -> Vec<Digest> {
    let Ok(program) = image.parse() else {
        return Vec::new();
    };
    let more = more_images.iter().filter_map(|it| it.parse().ok());
    std::iter::once(program).chain(more).collect()
}

impl About {
    /// Whether nothing is known of it.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes from a START what is told of its instance. The program is the image's short name and the first words of
    /// the command, cut to [`MAX_PROGRAM_LEN`].
    pub(super) fn of(start: &Start) -> Self {
        let name = start.scheduling.as_ref().map(|it| it.name.clone());
        let mut program = String::new();
        let image = start.image.parse::<Digest>().map(|it| it.short());
        for word in image.iter().chain(&start.command) {
            if program.len() > MAX_PROGRAM_LEN {
                break;
            }
            let gap = if program.is_empty() { "" } else { " " };
            program = program + gap + &cut(word, MAX_PROGRAM_LEN);
        }
        if program.is_empty() {
            program.clone_from(&start.docker_image);
        }
        Self {
            name: name.unwrap_or_default(),
            tenant: start.tenant_uuid.clone(),
            program: cut(&program, MAX_PROGRAM_LEN).into_owned(),
            labels: start
                .scheduling
                .as_ref()
                .map(|it| it.labels.clone())
                .unwrap_or_default(),
        }
    }
}

impl Agent {
    /// A connection begins, on which nothing of that was told.
    pub(super) fn introduce_anew(&mut self) {
        self.instances
            .change_all(|_, instance| instance.is_introduced = false);
    }

    /// Tells what those instances are that a report has just listed for the first time on this connection. Only
    /// schedulers that record ends are told.
    pub(super) fn introduce(&mut self, now: Instant) {
        if !self.records_ends() {
            return;
        }
        let mut told = Vec::new();
        for id in self.ids(|instance| instance.is_live() && !instance.is_introduced) {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            instance.is_introduced = true;
            let About {
                name,
                tenant,
                program,
                labels: _,
            } = instance.about.clone();
            told.push(Workload {
                instance_uuid: id,
                name,
                tenant_uuid: tenant,
                program,
                age_s: now.saturating_duration_since(instance.since).as_secs(),
            });
        }
        if !told.is_empty() {
            self.send(Message::Workloads(Workloads { instances: told }));
        }
    }
}
