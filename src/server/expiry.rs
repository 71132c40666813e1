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
use sched_core::{EndingCertificate, SessionId, Unwell, ending_certificates};

/// Pause between two looks at all sessions, which hold the core's lock for some hundred nanoseconds each: soon enough for
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

    /// That of a certificate with so many seconds left, of which there are at most 30 days.
    fn of(left_s: i64) -> Self {
        const DAY_S: i64 = 86_400;
        match left_s {
            ..=0 => Self::Over,
            1..=DAY_S => Self::Day,
            left if left <= 7 * DAY_S => Self::Week,
            _ => Self::Month,
        }
    }
}

/// How many certificates are in which stage, for the metrics' label.
pub(super) fn counts(ending: &[EndingCertificate]) -> [(&'static str, f64); 4] {
    Stage::ALL.map(|(stage, word)| {
        let left = ending.iter().filter_map(|it| left_s(&it.what));
        (
            word,
            left.filter(|left| Stage::of(*left) == stage).count() as f64,
        )
    })
}

/// The seconds that are left of a certificate that the core lists.
fn left_s(what: &Unwell) -> Option<i64> {
    match what {
        Unwell::PeerCertificate { left_s, .. } | Unwell::OwnCertificate(_, left_s) => Some(*left_s),
        _ => None,
    }
}

/// Whose certificate it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    Peer(SessionId),
    /// A file of the scheduler's.
    Own(Box<str>),
}

/// What was said last of each that ends soon.
#[derive(Debug, Default)]
struct Said(HashMap<Whose, Stage>);

impl Said {
    /// Those of which something new is to be said. Forgets those that are gone.
    fn news(&mut self, ending: Vec<EndingCertificate>) -> Vec<(Stage, Unwell)> {
        let mut now = HashMap::with_capacity(ending.len());
        let mut news = Vec::new();
        for EndingCertificate { session, what, .. } in ending {
            let whose = match (session, &what) {
                (Some(session), _) => Whose::Peer(session),
                (None, Unwell::OwnCertificate(file, _)) => Whose::Own(file.clone()),
                _ => continue,
            };
            let Some(stage) = left_s(&what).map(Stage::of) else {
                continue;
            };
            let before = self.0.get(&whose).copied();
            now.insert(whose, stage);
            if before.is_none_or(|before| before < stage) {
                news.push((stage, what));
            }
        }
        self.0 = now;
        news
    }
}

/// Looks and says it, for ever.
pub(super) async fn watch(hub: Arc<Hub>) {
    let mut said = Said::default();
    loop {
        let ending = hub.read_now(ending_certificates);
        let mut news = said.news(ending);
        // The worst first.
        news.sort_by_key(|(stage, _)| std::cmp::Reverse(*stage));
        let more = news.len().saturating_sub(MAX_LINES);
        news.truncate(MAX_LINES);
        for (stage, what) in news {
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
    use super::*;

    const DAY_S: i64 = 86_400;

    #[test]
    fn each_stage_is_said_once_for_each_session_and_again_for_the_next_session() {
        let mut said = Said::default();
        let ending = |session, left_s| {
            let what = Unwell::PeerCertificate {
                uuid: proto_frames::Uuid::nil(),
                role: proto_frames::Role::AGENT,
                hostname: "".into(),
                left_s,
            };
            vec![EndingCertificate {
                session: Some(SessionId(session)),
                ends_at_s: 0,
                what,
            }]
        };
        let mut stages = |session, left_s| -> Vec<Stage> {
            let news = said.news(ending(session, left_s)).into_iter();
            news.map(|(stage, _)| stage).collect()
        };
        assert_eq!(stages(1, 30 * DAY_S - 1), [Stage::Month]);
        assert_eq!(stages(1, 8 * DAY_S), []);
        assert_eq!(stages(1, 7 * DAY_S), [Stage::Week]);
        assert_eq!(stages(1, DAY_S), [Stage::Day]);
        assert_eq!(stages(1, 1), []);
        assert_eq!(stages(1, 0), [Stage::Over]);
        assert_eq!(stages(1, -DAY_S), []);
        assert_eq!(stages(2, 5 * DAY_S), [Stage::Week]);
        // The first has gone, and is back.
        assert_eq!(stages(1, -DAY_S), [Stage::Over]);
    }

    #[test]
    fn a_file_of_the_schedulers_is_one_however_it_is_read() {
        let mut said = Said::default();
        let own = |file: &str, left_s| {
            vec![EndingCertificate {
                session: None,
                ends_at_s: 0,
                what: Unwell::OwnCertificate(file.into(), left_s),
            }]
        };
        assert_eq!(said.news(own("a.pem", DAY_S)).len(), 1);
        assert_eq!(said.news(own("a.pem", DAY_S - 1)).len(), 0);
        assert_eq!(said.news(Vec::new()).len(), 0, "renewed");
        assert_eq!(said.news(own("a.pem", DAY_S)).len(), 1);
    }
}
