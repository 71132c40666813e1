//! Options that say what an instance waits for and what becomes of it while it runs: `time_limit`, `stop`, `restart`,
//! `retry` and `after` of `start.scheduling`, by flags.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use proto_frames::payload::scheduling::limits::{
    MAX_BACKOFF, MAX_GRACE, MAX_RESTART_WINDOW, MAX_RESTARTS, MAX_TIME_LIMIT, MIN_BACKOFF,
    MIN_TIME_LIMIT,
};
use proto_frames::payload::scheduling::retry::MAX_RETRIES;
use proto_frames::payload::{
    After, AfterEnd, Backoff, RestartPolicy, RestartWhen, RetryOn, RetryPolicy, Scheduling, Span,
    Stop, StopSignal,
};

use super::lifecycle::span;
use super::placement::LIFE;

/// Options of the commands that make a START by themselves.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = LIFE)]
pub struct RunLimitArgs {
    /// End it after so long, for example 10m, counted over all its restarts and moves; suspended time does not count
    #[arg(long, value_name = "DURATION", value_parser = time_limit)]
    pub time_limit: Option<Span>,
    /// What its processes are sent to end [default: TERM]
    #[arg(
        long,
        value_name = "SIGNAL",
        ignore_case = true,
        value_parser = PossibleValuesParser::new(StopSignal::KNOWN).map(|word| StopSignal::from(&*word.to_ascii_uppercase()))
    )]
    pub stop_signal: Option<StopSignal>,
    /// How long after that they are killed, for example 30s [default: as its launcher is configured]
    #[arg(long, value_name = "DURATION", value_parser = grace)]
    pub stop_grace: Option<Span>,
    /// Start it again on its node when its program has ended: where it failed, or always
    #[arg(
        long,
        value_name = "WHEN",
        value_parser = PossibleValuesParser::new(RestartWhen::KNOWN).map(|word| RestartWhen::from(&*word))
    )]
    pub restart: Option<RestartWhen>,
    /// At most so often [default: without limit]
    #[arg(
        long,
        value_name = "N",
        requires = "restart",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESTARTS))
    )]
    pub restart_max: Option<u32>,
    /// The pause before a restart: the first, which doubles with each, and the longest [default: 1s..5m]
    #[arg(long, value_name = "FIRST..LONGEST", requires = "restart", value_parser = backoff)]
    pub restart_backoff: Option<Backoff>,
    /// The time in which there may be --restart-max restarts, for example 1h [default: all count]
    #[arg(long, value_name = "DURATION", requires = "restart_max", value_parser = window)]
    pub restart_window: Option<Span>,
    /// Place it again, anywhere, after these ends: exit statuses such as 75 or 100-120, `signal`, `node_failure`; where it
    /// has restarts, once these are used up
    #[arg(long, value_name = "END,…", value_delimiter = ',')]
    pub retry_on: Vec<RetryOn>,
    /// At most so often [default: 3]
    #[arg(
        long,
        value_name = "N",
        requires = "retry_on",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RETRIES))
    )]
    pub retry_max: Option<u32>,
    /// Place it only once this instance, or else this array, by UUID or name, has ended with exit status 0, an array with
    /// all its elements; with :any however it ended, with :failed in any other way; repeatable
    #[arg(long, value_name = "INSTANCE|ARRAY[:END]", value_parser = after)]
    pub after: Vec<After>,
    /// A label to find it by once it has ended, as history --label does; repeatable
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = super::variable)]
    pub labels: Vec<(String, String)>,
    /// Keep its standard error apart from its standard output, for logs --stdout and --stderr
    #[arg(long)]
    pub split_output: bool,
}

impl RunLimitArgs {
    /// What they and others say of a START; `None` for nothing.
    #[must_use]
    pub fn add_to(&self, scheduling: Option<Scheduling>) -> Option<Scheduling> {
        let all = Scheduling {
            time_limit: self.time_limit,
            stop: self.stop(),
            restart: self.restart(),
            retry: self.retry(),
            after: self.after.clone(),
            labels: self.labels.iter().cloned().collect(),
            split_output: self.split_output,
            ..scheduling.unwrap_or_default()
        };
        (all != Scheduling::default()).then_some(all)
    }

    /// How it is asked to end, if that is said.
    fn stop(&self) -> Option<Stop> {
        let is_said = self.stop_signal.is_some() || self.stop_grace.is_some();
        is_said.then(|| Stop {
            signal: self.stop_signal.clone().unwrap_or_default(),
            grace: self.stop_grace,
        })
    }

    /// After which ends it is placed again, if that is said.
    fn retry(&self) -> Option<RetryPolicy> {
        (!self.retry_on.is_empty()).then(|| RetryPolicy {
            on: self.retry_on.clone(),
            max: self.retry_max,
        })
    }

    /// Whether it is started again, if that is said.
    fn restart(&self) -> Option<RestartPolicy> {
        Some(RestartPolicy {
            when: self.restart.clone()?,
            max: self.restart_max,
            backoff: self.restart_backoff,
            window: self.restart_window,
        })
    }
}

/// Reads `INSTANCE[:END]`, where an array may stand as well: the scheduler knows which it is.
fn after(text: &str) -> Result<After, String> {
    let (instance, end) = text.split_once(':').unwrap_or((text, AfterEnd::KNOWN[0]));
    let end = AfterEnd::from(end);
    if instance.is_empty() || matches!(end, AfterEnd::Other(_)) {
        let words = AfterEnd::KNOWN.join(", ");
        return Err(format!(
            "write it as INSTANCE or INSTANCE:END, or so of an array, where END is one of {words}"
        ));
    }
    Ok(After {
        instance: instance.to_owned(),
        end,
        ..After::default()
    })
}

fn time_limit(text: &str) -> Result<Span, String> {
    between(span(text)?, MIN_TIME_LIMIT, MAX_TIME_LIMIT)
}

fn grace(text: &str) -> Result<Span, String> {
    between(span(text)?, Span::default(), MAX_GRACE)
}

fn window(text: &str) -> Result<Span, String> {
    between(span(text)?, MIN_TIME_LIMIT, MAX_RESTART_WINDOW)
}

fn backoff(text: &str) -> Result<Backoff, String> {
    let backoff: Backoff = text.parse().map_err(|error| format!("{error}"))?;
    between(backoff.first, MIN_BACKOFF, MAX_BACKOFF)?;
    between(backoff.longest, MIN_BACKOFF, MAX_BACKOFF)?;
    Ok(backoff)
}

fn between(span: Span, min: Span, max: Span) -> Result<Span, String> {
    match span {
        short if short < min => Err(format!("must be at least {min}")),
        long if long > max => Err(format!("must be at most {max}")),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use proto_frames::payload::{Scheduling, StopSignal};

    use super::RunLimitArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        limits: RunLimitArgs,
    }

    fn parsed(words: &[&str]) -> Result<Scheduling, String> {
        let words = std::iter::once("x").chain(words.iter().copied());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.limits.add_to(None).unwrap_or_default())
    }

    #[test]
    fn every_option_has_its_key_and_what_they_make_is_taken_by_schedulers() {
        let said = parsed(&[
            "--time-limit=90m",
            "--stop-signal=int",
            "--stop-grace=0s",
            "--restart=on-failure",
            "--restart-max=5",
            "--restart-backoff=1s..5m",
            "--restart-window=1h",
            "--retry-on=75,100-120,signal",
            "--retry-max=2",
            "--after=prepare",
            "--after=5f0c2a4e-8d5e-4a0b-9c43-0d9f3a0f6c11:any",
        ])
        .unwrap();
        assert_eq!(said.check(), Ok(()));
        assert_eq!(said.time_limit.unwrap().ms(), 5_400_000);
        let stop = said.stop.unwrap();
        assert_eq!(
            (stop.signal, stop.grace.unwrap().ms()),
            (StopSignal::Int, 0)
        );
        let restart = said.restart.unwrap();
        assert_eq!(
            (restart.when.as_str(), restart.max),
            ("on-failure", Some(5))
        );
        assert_eq!(restart.pauses().to_string(), "1s..5m");
        assert_eq!(restart.window.unwrap().ms(), 3_600_000);
        let retry = said.retry.unwrap();
        assert!(retry.covers_exit(75) && retry.covers_exit(-9) && retry.most() == 2);
        let after: Vec<_> = said.after.iter().map(|it| it.end.as_str()).collect();
        assert_eq!(after, ["ok", "any"]);
        assert_eq!(parsed(&[]).unwrap(), Scheduling::default());
        assert_eq!(parsed(&["--restart=never"]).unwrap().check(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_where_it_is_written() {
        for (line, named) in [
            (&["--time-limit=10ms"][..], "at least 1s"),
            (&["--time-limit=9999d"], "at most 8760h"),
            (&["--stop-signal=KILL"], "TERM, INT"),
            (&["--stop-grace=2h"], "at most 1h"),
            (&["--restart=sometimes"], "on-failure"),
            (&["--retry-on=0"], "from 1 to 255"),
            (&["--retry-max=2"], "--retry-on <END,…>"),
            (&["--retry-on=75", "--retry-max=0"], "1..=100"),
            (&["--after=a:never"], "ok, any, failed"),
            (&["--after=:any"], "INSTANCE:END"),
            (&["--restart-max=3"], "--restart <WHEN>"),
            (&["--restart=always", "--restart-max=0"], "1..=100"),
            (
                &["--restart=always", "--restart-window=1h"],
                "--restart-max <N>",
            ),
            (&["--restart=always", "--restart-backoff=5m..1s"], "1s..5m"),
            (
                &["--restart=always", "--restart-backoff=1ms"],
                "at least 100ms",
            ),
        ] {
            let refused = parsed(line).unwrap_err();
            assert!(refused.contains(named), "{line:?}: {refused}");
        }
    }
}
