//! Reading keys: one, or all below a prefix, in pages at one revision.

use tokio::task::JoinSet;

use super::{Client, Error};
use crate::messages::{KeyValue, RangeRequest, RangeResponse};

/// Keys on the first page, before it is known how long values are.
pub(super) const FIRST_PAGE: i64 = 64;

/// Most keys on a page.
const MAX_PAGE: i64 = 4096;

/// Bytes that a page is to have at most, by the length that the last one had: a page has to arrive within the deadline
/// of one call.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Parts of a listing that are read at the same time. etcd walks over all keys of a range for each page of it, so that
/// parts are read faster than the whole also one after the other; and while it makes one page, another is taken apart here.
const AT_A_TIME: usize = 4;

/// What is below a prefix.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// The revision of all of it.
    pub revision: i64,
    /// In the order of the keys.
    pub keys: Vec<KeyValue>,
}

impl Client {
    /// What a key has, and the revision of that. Linearizable: as new as the call, or newer.
    ///
    /// # Errors
    /// [`Error`]: no member answers, or the read is refused.
    pub async fn get(&self, key: &[u8]) -> Result<(Option<KeyValue>, i64), Error> {
        let request = RangeRequest {
            key: key.to_vec(),
            ..RangeRequest::default()
        };
        let answer = self.page(request).await?;
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok((answer.kvs.into_iter().next(), revision))
    }

    /// All keys that begin with `prefix`, as they were at one moment after the call began, whatever is written while
    /// the pages are read.
    ///
    /// # Errors
    /// [`Error`]: no member answers, the read is refused, or the revision of the first page is compacted before the
    /// last is read.
    pub async fn list(&self, prefix: &[u8]) -> Result<Listing, Error> {
        self.list_in_parts(prefix, &[]).await
    }

    /// The same, read in parts of which some are read at the same time: up to the first of `cuts`, from there to the next,
    /// and so on. They have to begin with `prefix` and to ascend; any such cuts give the same listing, and those that make
    /// parts of equal length the fastest.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_in_parts(&self, prefix: &[u8], cuts: &[Vec<u8>]) -> Result<Listing, Error> {
        let ends = cuts.iter().skip(1).cloned().chain([range_end(prefix)]);
        let mut parts = cuts.iter().cloned().zip(ends).enumerate();
        // The first tells the revision of all.
        let first_end = cuts.first().cloned().unwrap_or_else(|| range_end(prefix));
        let mut listing = self.list_range(prefix.to_vec(), first_end, 0).await?;
        let mut read: Vec<Vec<KeyValue>> = vec![Vec::new(); cuts.len()];
        let mut reading = JoinSet::new();
        loop {
            while reading.len() < AT_A_TIME
                && let Some((at, (key, end))) = parts.next()
            {
                let (client, revision) = (self.clone(), listing.revision);
                reading.spawn(async move { (at, client.list_range(key, end, revision).await) });
            }
            let Some(part) = reading.join_next().await else {
                break;
            };
            let (at, part) = part.expect("no part is aborted, and reading one does not panic");
            read[at] = part?.keys;
        }
        listing.keys.extend(read.into_iter().flatten());
        Ok(listing)
    }

    /// All keys from one up to another, at this revision; 0 = at the newest.
    async fn list_range(
        &self,
        key: Vec<u8>,
        range_end: Vec<u8>,
        revision: i64,
    ) -> Result<Listing, Error> {
        let mut next = RangeRequest {
            key,
            range_end,
            limit: FIRST_PAGE,
            revision,
        };
        let mut listing = Listing {
            revision,
            keys: Vec::new(),
        };
        loop {
            let answer = match self.page(next.clone()).await {
                Err(Error::TooLong) if next.limit > 1 => {
                    next.limit /= 2;
                    continue;
                }
                answer => answer?,
            };
            if listing.revision == 0 {
                listing.revision = answer.header.map_or(0, |header| header.revision);
                next.revision = listing.revision;
            }
            next.limit = limit_after(&answer.kvs);
            let last = answer.kvs.last().map(|last| last.key.clone());
            listing.keys.extend(answer.kvs);
            match last {
                Some(mut last) if answer.more => {
                    // The least key behind it.
                    last.push(0);
                    next.key = last;
                }
                _ => return Ok(listing),
            }
        }
    }

    async fn page(&self, request: RangeRequest) -> Result<RangeResponse, Error> {
        self.repeated("/etcdserverpb.KV/Range", request).await
    }
}

/// How many keys the next page may have, by the length of those of the last.
fn limit_after(page: &[KeyValue]) -> i64 {
    let bytes: usize = page.iter().map(|it| it.key.len() + it.value.len()).sum();
    let each = bytes.div_ceil(page.len().max(1)).max(1);
    i64::try_from(PAGE_BYTES / each).map_or(MAX_PAGE, |limit| limit.clamp(1, MAX_PAGE))
}

/// The first key behind all that begin with `prefix`; a single zero byte, which etcd reads as "to the end", where there
/// is none. So `range_end(b"/a/")` is `/a0`.
#[must_use]
pub fn range_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::range_end;

    #[test]
    fn a_range_ends_behind_all_keys_with_the_prefix() {
        assert_eq!(range_end(b"/a/"), b"/a0");
        assert_eq!(range_end(b"a\xff"), b"b");
        assert_eq!(range_end(b"\xff\xff"), b"\0");
        assert_eq!(range_end(b""), b"\0");
    }
}
