//! The result of a load run, for people and for programs.
//!
//! The text is for a person who watches a run; the keys of the JSON document are stable. The same figures are in both.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::load::driver::Stopped;
use crate::load::process::Usage;
use crate::load::record::Totals;
use crate::printable::{Lines, Printable};

/// What a run measured.
///
/// Filled once, after the last START.
#[derive(Debug, Clone)]
pub struct Report {
    /// `native` or `gob`.
    pub encoding: &'static str,
    /// `closed loop`, `window of N`, `unlimited`.
    pub pipeline: String,
    /// Launchers asked for.
    pub launchers: usize,
    /// Those that connected.
    pub connected: usize,
    /// From the first dial until every READY had been dealt with.
    pub connect: Duration,
    /// Connect errors and how many of each.
    pub connect_errors: BTreeMap<String, u64>,
    /// Launcher connections that the scheduler ended.
    pub cut: u64,
    /// Launchers that were cut half way on purpose.
    pub killed: usize,
    /// Size of each START's payload, in bytes.
    pub start_len: usize,
    /// The counts.
    pub totals: Totals,
    /// First START sent until last one received.
    ///
    /// The time over which throughput is computed: the tail of missing STARTs does not count.
    pub span: Duration,
    /// Sent to received, in ns.
    pub latencies: Histogram<u64>,
    /// Fewest and most STARTs that one launcher received.
    ///
    /// Of those that connected and those that did not: 0 if one received none.
    pub spread: (u64, u64),
    /// CPU time this process took for the STARTs, in seconds.
    ///
    /// If it is close to the duration of the run times `--threads`, the generator was the limit.
    pub own_cpu_s: f64,
    /// Figures of the server (`--pid`).
    pub server: Option<ServerUsage>,
    /// Why it ended early, if it did.
    pub stopped: Option<Stopped>,
}

/// The server before, between and after.
///
/// Three readings of `/proc`. Differences between them are what connecting and the STARTs cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerUsage {
    /// Before the first launcher connected.
    pub idle: Usage,
    /// When all were connected.
    pub connected: Usage,
    /// After the last START.
    pub after: Usage,
}

/// How a run went.
///
/// Also the exit code of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every START came to one launcher, once and in order, or failed with an error.
    ///
    /// A failure with a reason is no fault of the scheduler: the START did not vanish.
    Right,
    /// A START vanished, came twice or came out of order.
    ///
    /// The scheduler has broken a promise.
    Wrong,
    /// The connection was lost.
    Closed,
    /// It ran out of time.
    NotInTime,
}

impl Report {
    /// STARTs received per second.
    ///
    /// Those of killed launchers count, since the scheduler sent them.
    #[must_use]
    pub fn starts_per_s(&self) -> f64 {
        per(
            self.totals.received + self.totals.received_by_victims,
            self.span.as_secs_f64(),
        )
    }

    /// How the run went.
    ///
    /// An early end wins over the counts, which are then incomplete. With `--kill`, lost STARTs that were reported as
    /// failed are right, and so are later positions of STARTs that were placed a second time.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let totals = &self.totals;
        // What a killed launcher had not been sent is placed again, behind what was sent after it.
        let inversions = match self.killed {
            0 => totals.inversions,
            _ => 0,
        };
        let wrong = totals.lost_without_error
            + totals.duplicates
            + inversions
            + totals.failed_though_received;
        match &self.stopped {
            Some(Stopped::Closed(_)) => Verdict::Closed,
            Some(_) => Verdict::NotInTime,
            // Of a killed launcher's STARTs, those without an error are in `wrong` already.
            None if wrong > 0 || totals.lost > 0 && self.killed == 0 => Verdict::Wrong,
            None => Verdict::Right,
        }
    }

    /// One object with stable names; times in µs or s, memory in KiB, as the names say.
    #[must_use]
    pub fn json(&self) -> Value {
        let totals = &self.totals;
        json!({
            "encoding": self.encoding,
            "pipeline": self.pipeline,
            "launchers": self.launchers,
            "launchers_connected": self.connected,
            "launchers_cut_by_server": self.cut,
            "launchers_killed": self.killed,
            "connect_s": round(self.connect.as_secs_f64(), 3),
            "connect_per_s": round(per(self.connected as u64, self.connect.as_secs_f64()), 1),
            "connect_errors": self.connect_errors,
            "start_bytes": self.start_len,
            "sent": totals.sent,
            "received": totals.received,
            "received_by_killed": totals.received_by_victims,
            "failed": totals.failed,
            "failures": totals.reasons,
            "lost": totals.lost,
            "lost_without_error": totals.lost_without_error,
            "failed_though_received": totals.failed_though_received,
            "duplicates": totals.duplicates,
            "inversions": totals.inversions,
            "foreign": totals.foreign,
            "elapsed_s": round(self.span.as_secs_f64(), 3),
            "starts_per_s": round(self.starts_per_s(), 1),
            "latency_us": self.latency_json(),
            "per_launcher": {"min": self.spread.0, "max": self.spread.1},
            "generator_cpu_us_per_start": round(per_start_us(self.own_cpu_s, totals.sent), 2),
            "server": self.server.map(|server| server.json(totals.sent, self.connected)),
            "stopped": self.stopped.as_ref().map(ToString::to_string),
        })
    }

    /// Microseconds, with one decimal.
    fn latency_json(&self) -> Value {
        let quantile = |q| round(us(self.latencies.value_at_quantile(q)), 1);
        json!({
            "mean": round(self.latencies.mean() / 1e3, 1),
            "p50": quantile(0.5),
            "p90": quantile(0.9),
            "p99": quantile(0.99),
            "p999": quantile(0.999),
            "max": round(us(self.latencies.max()), 1),
        })
    }
}

impl ServerUsage {
    /// Per START and per connection, as well as the readings themselves.
    fn json(&self, starts: u64, connections: usize) -> Value {
        let cpu_s = self.after.cpu_s_since(&self.connected);
        let connect_cpu_s = self.connected.cpu_s_since(&self.idle);
        json!({
            "cpu_s": round(cpu_s, 3),
            "cpu_us_per_start": round(per_start_us(cpu_s, starts), 2),
            "cpu_us_per_connect": round(per_start_us(connect_cpu_s, connections as u64), 1),
            "rss_idle_kib": self.idle.rss_kib,
            "rss_connected_kib": self.connected.rss_kib,
            "rss_after_kib": self.after.rss_kib,
            "rss_peak_kib": self.after.rss_peak_kib,
            "rss_kib_per_connection": round(self.kib_per_connection(connections), 1),
        })
    }

    /// What resident memory grew by while launchers connected. 0 if none did.
    #[expect(
        clippy::cast_precision_loss,
        reason = "KiB of a process are far below 2^52"
    )]
    fn kib_per_connection(&self, connections: usize) -> f64 {
        let grown = self.connected.rss_kib.saturating_sub(self.idle.rss_kib);
        if connections == 0 {
            0.0
        } else {
            grown as f64 / connections as f64
        }
    }
}

impl fmt::Display for Report {
    /// Some ten lines for people.
    ///
    /// Names of figures are padded, so that they form a column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = &self.totals;
        let connect_s = self.connect.as_secs_f64();
        writeln!(
            f,
            "launchers    {} of {} connected and ready in {connect_s:.2} s ({}, {:.0}/s)",
            self.connected,
            self.launchers,
            self.encoding,
            per(self.connected as u64, connect_s)
        )?;
        writeln!(
            f,
            "starts       {} sent ({}, {} bytes each), {} received, {} failed",
            totals.sent, self.pipeline, self.start_len, totals.received, totals.failed
        )?;
        writeln!(
            f,
            "throughput   {:.0}/s over {:.3} s",
            self.starts_per_s(),
            self.span.as_secs_f64()
        )?;
        self.write_latencies(f)?;
        writeln!(
            f,
            "lost         {} ({} without an error), duplicates {}, out of order {}",
            totals.lost, totals.lost_without_error, totals.duplicates, totals.inversions
        )?;
        writeln!(
            f,
            "per launcher {} to {} STARTs",
            self.spread.0, self.spread.1
        )?;
        self.write_oddities(f)?;
        if let Some(server) = &self.server {
            server.write(f, totals.sent, self.connected)?;
        }
        write!(
            f,
            "generator    {:.1} µs CPU per START",
            per_start_us(self.own_cpu_s, totals.sent)
        )
    }
}

impl Report {
    /// As it is printed.
    ///
    /// Every line is escaped: reasons and errors come from the other side.
    #[must_use]
    pub fn lines(&self) -> Lines {
        self.to_string().lines().map(Printable::new).collect()
    }

    /// Quantiles of the histogram, which has steps of 0.1 %.
    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = String::from("latency      ");
        for (name, quantile) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            write!(
                line,
                "{name} {}, ",
                span(self.latencies.value_at_quantile(quantile))
            )?;
        }
        writeln!(f, "{line}max {}", span(self.latencies.max()))
    }

    /// The lines that a clean run does not have.
    ///
    /// Reasons of failures, errors of connecting, killed launchers, and counts that should be 0.
    fn write_oddities(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let totals = &self.totals;
        for (reason, count) in &totals.reasons {
            writeln!(f, "failure      {count} × {}", Printable::new(reason))?;
        }
        for (error, count) in &self.connect_errors {
            writeln!(f, "not connected {count} × {}", Printable::new(error))?;
        }
        if self.killed > 0 {
            writeln!(
                f,
                "killed       {} launchers, which had {} STARTs",
                self.killed, totals.received_by_victims
            )?;
        }
        for (count, what) in [
            (self.cut, "launcher connections ended by the scheduler"),
            (totals.foreign, "STARTs received that are not of this run"),
            (
                totals.failed_though_received,
                "STARTs called failed that a launcher has",
            ),
        ] {
            if count > 0 {
                writeln!(f, "odd          {count} {what}")?;
            }
        }
        self.stopped
            .iter()
            .try_for_each(|reason| writeln!(f, "stopped      {}", Printable::new(reason)))
    }
}

impl ServerUsage {
    /// One line.
    fn write(&self, f: &mut fmt::Formatter<'_>, starts: u64, connections: usize) -> fmt::Result {
        writeln!(
            f,
            "server       {:.1} µs CPU per START, {:.0} µs per connect; memory {} KiB idle, {} connected ({:.1} per \
             connection), {} after, {} at most",
            per_start_us(self.after.cpu_s_since(&self.connected), starts),
            per_start_us(self.connected.cpu_s_since(&self.idle), connections as u64),
            self.idle.rss_kib,
            self.connected.rss_kib,
            self.kib_per_connection(connections),
            self.after.rss_kib,
            self.after.rss_peak_kib
        )
    }
}

/// 0 for no time.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a run are far below 2^52"
)]
fn per(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

/// Microseconds; 0 for no STARTs.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a run are far below 2^52"
)]
fn per_start_us(seconds: f64, count: u64) -> f64 {
    if count > 0 {
        seconds * 1e6 / count as f64
    } else {
        0.0
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds of a run are below 2^52"
)]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// A latency of so many ns as people read it: whole microseconds below 10 ms, whole milliseconds above.
fn span(ns: u64) -> String {
    match ns {
        0..10_000_000 => format!("{:.0} µs", us(ns)),
        _ => format!("{:.0} ms", us(ns) / 1e3),
    }
}

/// For JSON: digits beyond the precision would only be noise.
fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut latencies = Histogram::new(3).unwrap();
        [80_000, 90_000, 100_000, 10_000_000]
            .into_iter()
            .for_each(|ns| latencies.record(ns).unwrap());
        let usage = |cpu_s, rss_kib| Usage {
            threads_s: cpu_s,
            ticks_s: cpu_s,
            rss_kib,
            rss_peak_kib: rss_kib + 1,
        };
        Report {
            encoding: "native",
            pipeline: "closed loop".into(),
            launchers: 10,
            connected: 10,
            connect: Duration::from_millis(500),
            connect_errors: BTreeMap::new(),
            cut: 0,
            killed: 0,
            start_len: 600,
            totals: Totals {
                sent: 1000,
                received: 1000,
                ..Totals::default()
            },
            span: Duration::from_secs(2),
            latencies,
            spread: (100, 100),
            own_cpu_s: 0.02,
            server: Some(ServerUsage {
                idle: usage(1.0, 100),
                connected: usage(1.5, 260),
                after: usage(1.51, 300),
            }),
            stopped: None,
        }
    }

    #[test]
    fn a_clean_run_is_done_and_reads_so() {
        let report = report();
        assert_eq!(report.verdict(), Verdict::Right);
        let text = report.to_string();
        for line in [
            "launchers    10 of 10 connected and ready in 0.50 s (native, 20/s)",
            "starts       1000 sent (closed loop, 600 bytes each), 1000 received, 0 failed",
            "throughput   500/s over 2.000 s",
            "latency      p50 90 µs, p90 10 ms, p99 10 ms, p99.9 10 ms, max 10 ms",
            "lost         0 (0 without an error), duplicates 0, out of order 0",
            "server       10.0 µs CPU per START, 50000 µs per connect; memory 100 KiB idle, 260 connected (16.0 per \
             connection), 300 after, 301 at most",
            "generator    20.0 µs CPU per START",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
        assert!(!text.contains("odd"), "{text}");
    }

    #[test]
    fn whatever_went_wrong_shows_in_text_and_exit_code() {
        for damage in [
            |t: &mut Totals| t.lost_without_error = 1,
            |t: &mut Totals| t.duplicates = 1,
            |t: &mut Totals| t.inversions = 1,
            |t: &mut Totals| t.failed_though_received = 1,
            |t: &mut Totals| t.lost = 1,
        ] {
            let mut report = report();
            damage(&mut report.totals);
            assert_eq!(report.verdict(), Verdict::Wrong, "{:?}", report.totals);
        }
        let mut killed = report();
        (killed.killed, killed.totals.lost, killed.totals.failed) = (1, 5, 5);
        assert_eq!(
            killed.verdict(),
            Verdict::Right,
            "lost with an error, to a launcher that was killed"
        );
        killed.totals.inversions = 3;
        assert_eq!(killed.verdict(), Verdict::Right, "placed again, so later");
        let stopped = Report {
            stopped: Some(Stopped::TooLate),
            ..report()
        };
        assert_eq!(stopped.verdict(), Verdict::NotInTime);
        assert!(
            stopped
                .to_string()
                .contains("stopped      the time limit was reached")
        );
    }

    #[test]
    fn json_has_stable_names_and_plain_numbers() {
        let value = report().json();
        assert_eq!(value["starts_per_s"], 500.0);
        assert_eq!(value["latency_us"]["p50"], 90.0);
        assert_eq!(value["server"]["cpu_us_per_start"], 10.0);
        assert_eq!(value["server"]["rss_kib_per_connection"], 16.0);
        assert_eq!(value["stopped"], Value::Null);
    }
}
