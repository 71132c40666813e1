//! A recorded scenario: its steps, and which bytes of which stream belong to each.

use std::collections::BTreeMap;

use proto_frames::{Role, Uuid};
use serde_json::Value;

use crate::site::repository;

/// Connections that the recorder closed at the end of a step; the index shows it by what others were told.
const CLOSED_AFTER: &[(&str, &str)] = &[
    ("connect-agent2-after-configure", "agent2"),
    ("raw-unknown-frame-type", "rawunknowntype"),
    ("raw-dual-role", "rawdualrole"),
];

/// Connections that the recorder closed at the beginning of a step, as the steps' names say.
const CLOSED_BEFORE: &[(&str, &str)] = &[
    ("netagent-disconnect", "netagent"),
    ("agent-disconnect", "agent"),
    ("master-disconnect-promote", "controller"),
];

/// One scenario.
pub(crate) struct Recording {
    index: Value,
    files: BTreeMap<String, Vec<u8>>,
}

/// A part of one recorded stream.
pub(crate) struct Part<'a> {
    /// The connection's name in the index.
    pub(crate) conn: &'a str,
    /// Whether the client sent it.
    pub(crate) is_sent: bool,
    /// The bytes.
    pub(crate) bytes: &'a [u8],
}

impl Recording {
    /// Reads a scenario of the golden recordings.
    pub(crate) fn load(scenario: &str) -> Self {
        let golden = repository("proto-frames/tests/golden");
        let index = std::fs::read(golden.join(format!("index-{scenario}.json"))).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        let files = list(&index, "streams").iter().map(|stream| {
            let file = text(stream, "file");
            (file.to_owned(), std::fs::read(golden.join(file)).unwrap())
        });
        Self {
            files: files.collect(),
            index,
        }
    }

    /// The steps' names, in order.
    pub(crate) fn steps(&self) -> Vec<&str> {
        let mut steps: Vec<&str> = list(&self.index, "steps")
            .iter()
            .map(|step| text(step, "step"))
            .collect();
        steps.dedup();
        steps
    }

    /// What was sent and received in a step.
    pub(crate) fn parts(&self, step: &str) -> Vec<Part<'_>> {
        list(&self.index, "steps")
            .iter()
            .filter(|part| text(part, "step") == step && !text(part, "file").is_empty())
            .map(|part| {
                let at = |key: &str| usize::try_from(part[key].as_u64().unwrap()).unwrap();
                let (offset, length) = (at("offset"), at("length"));
                Part {
                    conn: text(part, "conn"),
                    is_sent: text(part, "direction") == "c2s",
                    bytes: &self.files[text(part, "file")][offset..offset + length],
                }
            })
            .collect()
    }

    /// The roles that a connection's certificate granted.
    pub(crate) fn roles(&self, conn: &str) -> Role {
        let stream = list(&self.index, "streams")
            .iter()
            .find(|stream| text(stream, "conn") == conn)
            .unwrap();
        let mut roles = Role::default();
        for name in text(stream, "cert_role").split('-') {
            let (role, ..) = Role::GRANTS
                .into_iter()
                .find(|(.., granted)| *granted == name)
                .unwrap();
            roles |= role;
        }
        roles
    }

    /// What the recorded scheduler called itself.
    pub(crate) fn scheduler(&self) -> Uuid {
        self.connected("Source").parse().unwrap()
    }

    /// The cluster configuration that it had at its start.
    pub(crate) fn configuration(&self) -> &str {
        self.connected("Payload")
    }

    /// A field of the first CONNECTED that was recorded.
    fn connected(&self, key: &str) -> &str {
        let received = list(&self.index, "streams")
            .iter()
            .find(|stream| text(stream, "direction") == "s2c")
            .unwrap();
        text(&list(received, "frames")[0], key)
    }
}

/// Who was closed at the beginning of a step.
pub(crate) fn closed_before(step: &str) -> Option<&'static str> {
    find(CLOSED_BEFORE, step)
}

/// Who was closed at the end of a step.
pub(crate) fn closed_after(step: &str) -> Option<&'static str> {
    find(CLOSED_AFTER, step)
}

fn find(table: &[(&str, &'static str)], step: &str) -> Option<&'static str> {
    let found = table.iter().find(|(closed, _)| *closed == step);
    found.map(|(_, conn)| *conn)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}
