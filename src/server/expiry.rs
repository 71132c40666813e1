//! Certificates that run out: a line in the log as each comes to end within a month, a week and a day, and one once it
//! has ended while its peer is still connected. By the clock, however long a peer is connected for.
//!
//! What is not well is listed by the core at any time; this only says it without being asked. The page, `ciaoctl status`
//! and `/metrics` show the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{error, warn};

use super::hub::Hub;
use super::sentences;
use sched_core::{CertificateHolder, EndingCertificate, ending_certificates, named_certificates};

/// Pause between two looks at all sessions, which hold the core's lock for some tens of nanoseconds each: soon enough for
/// a certificate of minutes, which short-lived ones have.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Lines of one look at most: in a cluster whose certificates were made on one day all of them come to end at once. The
/// rest is one line.
const MAX_LINES: usize = 20;

/// How near the end is. Each is said once for each certificate of each session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Within 30 days.
    Month,
    /// Within 7 days.
    Week,
    /// Within a day.
    Day,
    /// It has ended.
    Over,
}

impl Stage {
    /// All, the farthest first, with the values of the metrics' label.
    const ALL: [(Self, &'static str); 4] = [
        (Self::Month, "within_30_days"),
        (Self::Week, "within_7_days"),
        (Self::Day, "within_1_day"),
        (Self::Over, "expired"),
    ];

    /// That of a certificate with so many seconds left, of which there are at most 30 days. It is valid to the end of its
    /// last second.
    fn of(left_s: i64) -> Self {
        const DAY_S: i64 = 86_400;
        match left_s {
            ..0 => Self::Over,
            0..=DAY_S => Self::Day,
            left if left <= 7 * DAY_S => Self::Week,
            _ => Self::Month,
        }
    }
}

/// How many certificates are in which stage, for the metrics' label.
pub(super) fn counts(ending: &[EndingCertificate]) -> [(&'static str, f64); 4] {
    Stage::ALL.map(|(stage, word)| {
        let in_stage = ending.iter().filter(|it| Stage::of(it.left_s) == stage);
        (word, in_stage.count() as f64)
    })
}

/// What was said last of each that ends soon.
#[derive(Debug, Default)]
struct Said(HashMap<CertificateHolder, (i64, Stage)>);

impl Said {
    /// Those of which something new is to be said, the worst first. Forgets those that are gone or renewed.
    fn news(&mut self, ending: Vec<EndingCertificate>) -> Vec<(Stage, EndingCertificate)> {
        let mut now = HashMap::with_capacity(ending.len());
        let mut news = Vec::new();
        for one in ending {
            let stage = Stage::of(one.left_s);
            let before = self.0.get(&one.holder);
            let before = before.filter(|(ends_at_s, _)| *ends_at_s == one.ends_at_s);
            if before.is_none_or(|(_, before)| *before < stage) {
                news.push((stage, one));
            }
            now.insert(one.holder, (one.ends_at_s, stage));
        }
        self.0 = now;
        news.sort_unstable_by_key(|(_, one)| *one);
        news
    }
}

/// Looks and says it, for ever.
pub(super) async fn watch(hub: Arc<Hub>) {
    let mut said = Said::default();
    loop {
        let ending = hub.read_now(ending_certificates);
        let mut news = said.news(ending);
        let more = news.len().saturating_sub(MAX_LINES);
        news.truncate(MAX_LINES);
        let (stages, ending): (Vec<Stage>, Vec<_>) = news.into_iter().unzip();
        let named = hub.read_now(|scheduler, _| named_certificates(scheduler, &ending));
        for (stage, what) in stages.into_iter().zip(named) {
            let Some(what) = what else { continue };
            let (what, advice) = sentences::certificate(&what);
            match stage {
                Stage::Over => error!(event = "certificate_expired", "{what}; {advice}"),
                _ => warn!(event = "certificate_ends_soon", "{what}; {advice}"),
            }
        }
        if more > 0 {
            warn!(
                event = "certificate_ends_soon",
                "and {more} more certificates end soon, or have; `ciaoctl status` counts them"
            );
        }
        sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use sched_core::SessionId;

    use super::*;

    const DAY_S: i64 = 86_400;

    /// One with so many seconds left, at a time that is none of the test's.
    fn ending(holder: CertificateHolder, ends_at_s: i64, left_s: i64) -> Vec<EndingCertificate> {
        vec![EndingCertificate {
            ends_at_s,
            left_s,
            holder,
        }]
    }

    #[test]
    fn each_stage_is_said_once_for_each_session_and_again_for_the_next_session() {
        let mut said = Said::default();
        let mut stages = |session, left_s| -> Vec<Stage> {
            let holder = CertificateHolder::Peer(SessionId(session));
            let news = said.news(ending(holder, 0, left_s)).into_iter();
            news.map(|(stage, _)| stage).collect()
        };
        assert_eq!(stages(1, 30 * DAY_S - 1), [Stage::Month]);
        assert_eq!(stages(1, 8 * DAY_S), []);
        assert_eq!(stages(1, 7 * DAY_S), [Stage::Week]);
        assert_eq!(stages(1, DAY_S), [Stage::Day]);
        assert_eq!(stages(1, 0), [], "its last second");
        assert_eq!(stages(1, -1), [Stage::Over]);
        assert_eq!(stages(1, -DAY_S), []);
        assert_eq!(stages(2, 5 * DAY_S), [Stage::Week]);
        // The first has gone, and is back.
        assert_eq!(stages(1, -DAY_S), [Stage::Over]);
    }

    #[test]
    fn a_file_of_the_schedulers_is_one_until_it_is_renewed() {
        let mut said = Said::default();
        let own = |ends_at_s, left_s| ending(CertificateHolder::Own(0), ends_at_s, left_s);
        assert_eq!(said.news(own(7, DAY_S)).len(), 1);
        assert_eq!(said.news(own(7, DAY_S - 1)).len(), 0);
        assert_eq!(said.news(own(8, DAY_S)).len(), 1, "renewed for a day");
        assert_eq!(said.news(Vec::new()).len(), 0, "renewed for long");
        assert_eq!(said.news(own(7, DAY_S)).len(), 1);
    }

    #[test]
    fn what_ends_first_is_said_first() {
        let peer = |session, left_s| {
            let holder = CertificateHolder::Peer(SessionId(session));
            ending(holder, left_s, left_s)
        };
        let all = [peer(1, 9), peer(2, -4), peer(3, 2)].concat();
        let news = Said::default().news(all).into_iter();
        let order: Vec<i64> = news.map(|(_, one)| one.left_s).collect();
        assert_eq!(order, [-4, 2, 9]);
    }
}
