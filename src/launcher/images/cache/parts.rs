//! What is there of images that are not complete: those that are being fetched, for which room is reserved, and those
//! whose fetch was given up, here or by an earlier launcher. From the latter a fetch goes on if one comes, and until
//! then they may go for others. Numbers only: the files are the cache's.

use std::collections::BTreeMap;
use std::time::SystemTime;

use proto_frames::payload::Digest;

/// The parts of a cache.
#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<Digest, Part>);

/// One part.
#[derive(Debug)]
enum Part {
    /// No fetch is under way.
    Idle {
        /// What is on disk.
        bytes: u64,
        /// When the last of it was written.
        written: SystemTime,
    },
    /// It is being fetched.
    Fetched {
        /// What all of it will have; before that is known, what was on disk when the fetch began.
        bytes: u64,
    },
}

impl Part {
    /// Bytes that count towards the quota.
    fn bytes(&self) -> u64 {
        match self {
            Self::Idle { bytes, .. } | Self::Fetched { bytes } => *bytes,
        }
    }
}

impl Parts {
    /// Notes one that is on disk, and for which no fetch is under way.
    pub(super) fn found(&mut self, digest: Digest, bytes: u64, written: SystemTime) {
        self.0.insert(digest, Part::Idle { bytes, written });
    }

    /// A fetch begins; it may go on from what is there, which does not go for others from now on.
    pub(super) fn begin(&mut self, digest: Digest) {
        let bytes = self.0.get(&digest).map_or(0, Part::bytes);
        self.0.insert(digest, Part::Fetched { bytes });
    }

    /// Notes what all of an image that is being fetched will have.
    pub(super) fn reserve(&mut self, digest: Digest, bytes: u64) {
        self.0.insert(digest, Part::Fetched { bytes });
    }

    /// Forgets one: its fetch has ended, or its file is gone.
    pub(super) fn end(&mut self, digest: &Digest) {
        self.0.remove(digest);
    }

    /// What counts towards the quota, except for this image.
    pub(super) fn bytes_beside(&self, digest: &Digest) -> u64 {
        let others = self.0.iter().filter(|(other, _)| *other != digest);
        others.fold(0, |sum, (_, part)| sum.saturating_add(part.bytes()))
    }

    /// Those that may go, with their lengths: the one that was written longest ago first.
    pub(super) fn idle(&self) -> Vec<(Digest, u64)> {
        let idle = self.0.iter().filter_map(|(digest, part)| match part {
            Part::Idle { bytes, written } => Some((*digest, *bytes, *written)),
            Part::Fetched { .. } => None,
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|(.., written)| *written);
        idle.into_iter()
            .map(|(digest, bytes, _)| (digest, bytes))
            .collect()
    }
}
