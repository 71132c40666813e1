//! The places for connections that a token alone lets in. Anyone who reaches an address can open one; so a client that has
//! shown a token keeps its place, and one that has not gives it up where none is free.
//!
//! ```text
//! take ──┬── a place is free ────────────▶ Place without token ── show: a token ──▶ kept for TOKEN_COUNTS_FOR
//!        ├── some have shown none ──▶ one of those has to leave: of the source that has most, the oldest
//!        └── none has ──────────────────▶ nothing
//! ```

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::limits::{MAX_CONNECTIONS, TOKEN_COUNTS_FOR};
use crate::server::gate::Source;

/// [`MAX_CONNECTIONS`] places. Clones are of the same ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

/// Who has a place.
#[derive(Debug, Default)]
struct Taken {
    /// The number of the next one.
    next: u64,
    /// By number, the oldest first.
    holders: BTreeMap<u64, Holder>,
}

/// A connection that has a place.
#[derive(Debug)]
struct Holder {
    source: Source,
    /// When it has shown a token last that was let in.
    shown: Option<Instant>,
    /// Tells it that its place is another's.
    lost: Arc<Notify>,
}

/// A connection's place, which it gives back when this is dropped.
#[derive(Debug)]
pub(in crate::server) struct Place {
    places: Places,
    number: u64,
    lost: Arc<Notify>,
}

impl Places {
    /// A place for a connection from this address; `None` where clients that have shown tokens have all.
    pub(super) fn take(&self, from: IpAddr) -> Option<Place> {
        let mut taken = self.0.lock();
        if taken.holders.len() >= MAX_CONNECTIONS {
            let number = taken.first_to_leave()?;
            if let Some(leaving) = taken.holders.remove(&number) {
                leaving.lost.notify_one();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let lost = Arc::<Notify>::default();
        let holder = Holder {
            source: from.into(),
            shown: None,
            lost: Arc::clone(&lost),
        };
        taken.holders.insert(number, holder);
        drop(taken);
        let places = self.clone();
        Some(Place {
            places,
            number,
            lost,
        })
    }
}

impl Taken {
    /// Which is to leave first: the oldest of the source with most that show no token, so that one source takes places
    /// from itself before it takes them from others.
    fn first_to_leave(&self) -> Option<u64> {
        let mut sources: BTreeMap<Source, (usize, Reverse<u64>)> = BTreeMap::new();
        for (number, holder) in &self.holders {
            if holder.shows_no_token() {
                let of_source = sources.entry(holder.source);
                of_source.or_insert((0, Reverse(*number))).0 += 1;
            }
        }
        sources
            .into_values()
            .max()
            .map(|(_, Reverse(oldest))| oldest)
    }
}

impl Holder {
    fn shows_no_token(&self) -> bool {
        self.shown
            .is_none_or(|shown| shown.elapsed() > TOKEN_COUNTS_FOR)
    }
}

impl Place {
    /// A token was shown that is let in.
    pub(super) fn show(&self) {
        if let Some(holder) = self.places.0.lock().holders.get_mut(&self.number) {
            holder.shown = Some(Instant::now());
        }
    }

    /// Waits until the connection has to end: it has shown no token for so long since it has come, or another has its
    /// place.
    pub(super) async fn is_lost(&self, time: Duration) {
        let is_late = async {
            sleep(time).await;
            if self.has_shown() {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = self.lost.notified() => {}
            () = is_late => {}
        }
    }

    fn has_shown(&self) -> bool {
        let taken = self.places.0.lock();
        let holder = taken.holders.get(&self.number);
        holder.is_some_and(|holder| holder.shown.is_some())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.lock().holders.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::{advance, timeout};

    use super::*;

    /// Longer than anything here waits.
    const LONG: Duration = Duration::from_secs(3600);

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// Whether it has to leave by now.
    async fn has_to_leave(place: &Place) -> bool {
        timeout(Duration::ZERO, place.is_lost(LONG)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_without_token_is_given_up_and_the_source_with_most_of_them_first() {
        let places = Places::default();
        let one = places.take(address(1)).unwrap();
        let many: Vec<Place> = (1..MAX_CONNECTIONS)
            .map(|_| places.take(address(2)).unwrap())
            .collect();
        many[0].show();
        let further = places.take(address(3)).unwrap();
        assert!(has_to_leave(&many[1]).await);
        for stays in [&one, &many[0], &many[2], &further] {
            assert!(!has_to_leave(stays).await);
        }
        // It has no place any more to give back.
        drop(many);
        assert_eq!(places.0.lock().holders.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_shown_a_token_keeps_its_place_until_that_is_long_ago() {
        let places = Places::default();
        let known: Vec<Place> = (0..MAX_CONNECTIONS)
            .map(|_| places.take(address(1)).unwrap())
            .collect();
        known.iter().for_each(Place::show);
        assert!(places.take(address(2)).is_none());
        advance(TOKEN_COUNTS_FOR).await;
        known[1..].iter().for_each(Place::show);
        advance(Duration::from_secs(1)).await;
        let further = places.take(address(2)).unwrap();
        assert!(has_to_leave(&known[0]).await && !has_to_leave(&known[1]).await);
        drop(further);
        assert!(places.take(address(2)).is_some());
    }
}
