//! What the scheduler needs to know of a READY.

use std::borrow::Cow;

use super::figures::{Figures, borrowed, figures_of};
use super::walk::{Found, Place, Sink, walk};
use crate::payload::document::Payload;
use crate::payload::error::PayloadError;
use crate::payload::guard::SMALL;
use crate::payload::ready::{Network, Ready};
use sched_model::value::Record;

/// A READY without the hardware addresses of its network interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadyPeek<'a> {
    /// The node; empty where it does not say.
    pub node_uuid: Cow<'a, str>,
    /// Addresses of its network interfaces that are not empty, as it writes them.
    pub addresses: Vec<Cow<'a, str>>,
    /// What it has.
    pub figures: Figures<'a>,
}

/// Reads a READY; the same as [`Ready::decode`] says, errors included.
///
/// # Errors
/// As [`Ready::decode`].
pub fn ready(payload: &[u8]) -> Result<ReadyPeek<'_>, PayloadError> {
    match quick(payload) {
        Some(peek) => Ok(peek),
        None => Ready::decode(payload).map(ReadyPeek::from),
    }
}

impl From<Ready> for ReadyPeek<'_> {
    fn from(mut ready: Ready) -> Self {
        Self {
            node_uuid: ready.node_uuid.into(),
            addresses: addresses(&mut ready.networks),
            figures: figures_of!(ready),
        }
    }
}

fn addresses<'a>(networks: &mut [Network]) -> Vec<Cow<'a, str>> {
    let addresses = networks.iter_mut().map(|it| std::mem::take(&mut it.ip));
    let known = addresses.filter(|it| !it.is_empty());
    known.map(Cow::Owned).collect()
}

/// The plain style alone.
pub(super) fn quick(payload: &[u8]) -> Option<ReadyPeek<'_>> {
    let mut sink = ReadySink {
        peek: ReadyPeek::default(),
        any: false,
    };
    walk(payload, Ready::FIELDS, SMALL, &mut sink)?;
    sink.any.then_some(sink.peek)
}

struct ReadySink<'a> {
    peek: ReadyPeek<'a>,
    /// Something was found: an empty document is an error.
    any: bool,
}

impl<'a> Sink<'a> for ReadySink<'a> {
    fn found(&mut self, at: &Place<'a>, what: Found<'a>) -> Option<()> {
        self.any = true;
        match (at.record, at.key, what) {
            ("", "node_uuid", Found::Text(text)) => self.peek.node_uuid = borrowed(text)?,
            ("networks", "ip", Found::Text(text)) if !text.is_empty() => {
                self.peek.addresses.push(borrowed(text)?);
            }
            (_, _, what) => self.peek.figures.found(at, what)?,
        }
        Some(())
    }
}
