//! A CPU profile in pprof's format: what `--cpuprofile` writes.
//!
//! The messages are those of pprof's [`profile.proto`], fields that are not written here left out. A profile is a tree
//! of references: a sample names locations, a location names a function, and every text is an index into one table of
//! strings, whose first entry is empty.
//!
//! [`profile.proto`]: https://github.com/google/pprof/blob/main/proto/profile.proto

use std::collections::HashMap;
use std::time::SystemTime;

use pprof::{Report, Symbol};
use prost::Message;

/// Nanoseconds of a second, from which a period follows from a frequency.
const NANOSECONDS_A_SECOND: i64 = 1_000_000_000;

/// A whole file.
#[derive(Message)]
pub(super) struct Profile {
    /// What the values of each sample count, in their order: samples, and processor time in nanoseconds.
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    /// When the first sample was taken, in nanoseconds since 1970-01-01 UTC.
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    /// What `period` counts.
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    /// Nanoseconds of processor time between two samples.
    #[prost(int64, tag = "12")]
    period: i64,
}

/// What is counted, in which unit: both are indices into the table of strings.
#[derive(Clone, Copy, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

/// One stack that was seen, how often.
#[derive(Message)]
struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

/// A label of a sample: here always the name of its thread. Both are indices into the table of strings.
#[derive(Clone, Copy, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

/// A line of a function.
#[derive(Message)]
struct Location {
    /// Its place in the list, from 1 on.
    #[prost(uint64, tag = "1")]
    id: u64,
    /// The id again. pprof takes locations without addresses for one place where it is also given the program.
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

/// A line of a function, by its id.
#[derive(Clone, Copy, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

/// A function; its texts are indices into the table of strings.
#[derive(Clone, Copy, Message)]
struct Function {
    /// Its place in the list, from 1 on.
    #[prost(uint64, tag = "1")]
    id: u64,
    /// The name for people.
    #[prost(int64, tag = "2")]
    name: i64,
    /// The name in the table of symbols.
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

impl Profile {
    /// What the profiler has sampled. Equal functions, and equal lines of them, are listed once.
    pub(super) fn new(report: &Report) -> Self {
        let timing = &report.timing;
        let period = NANOSECONDS_A_SECOND / i64::from(timing.frequency).max(1);
        let mut tables = Tables::default();
        tables.text("");
        let samples = ValueType {
            r#type: tables.text("samples"),
            unit: tables.text("count"),
        };
        let time = ValueType {
            r#type: tables.text("cpu"),
            unit: tables.text("nanoseconds"),
        };
        let thread = tables.text("thread");
        let sample = report.data.iter().map(|(stack, &count)| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let symbols = stack.frames.iter().flatten();
            Sample {
                location_id: symbols.map(|it| tables.location(it)).collect(),
                value: vec![count, count.saturating_mul(period)],
                label: vec![Label {
                    key: thread,
                    str: tables.text(&stack.thread_name_or_id()),
                }],
            }
        });
        let sample = sample.collect();
        let since = timing.start_time.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            sample_type: vec![samples, time],
            sample,
            location: tables.locations,
            function: tables.functions,
            string_table: tables.texts,
            time_nanos: nanoseconds(since.unwrap_or_default()),
            duration_nanos: nanoseconds(timing.duration),
            period_type: Some(time),
            period,
        }
    }
}

/// The lists of a profile, and where in them each entry is.
#[derive(Default)]
struct Tables {
    texts: Vec<String>,
    text_at: HashMap<String, i64>,
    functions: Vec<Function>,
    /// By name, name in the table of symbols, and file.
    function_at: HashMap<[i64; 3], u64>,
    locations: Vec<Location>,
    /// By function and line.
    location_at: HashMap<(u64, i64), u64>,
}

impl Tables {
    /// The index of this text.
    fn text(&mut self, text: &str) -> i64 {
        if let Some(&at) = self.text_at.get(text) {
            return at;
        }
        let at = i64::try_from(self.texts.len()).unwrap_or(i64::MAX);
        self.texts.push(text.to_owned());
        self.text_at.insert(text.to_owned(), at);
        at
    }

    /// The id of the location where this symbol was seen.
    fn location(&mut self, symbol: &Symbol) -> u64 {
        let function_id = self.function(symbol);
        let line = i64::from(symbol.lineno());
        let locations = &mut self.locations;
        let new = locations.len() as u64 + 1;
        *self
            .location_at
            .entry((function_id, line))
            .or_insert_with(|| {
                locations.push(Location {
                    id: new,
                    address: new,
                    line: vec![Line { function_id, line }],
                });
                new
            })
    }

    /// The id of this symbol's function.
    fn function(&mut self, symbol: &Symbol) -> u64 {
        let name = self.text(&symbol.name());
        let system_name = self.text(&symbol.sys_name());
        let filename = self.text(&symbol.filename());
        let functions = &mut self.functions;
        let new = functions.len() as u64 + 1;
        *self
            .function_at
            .entry([name, system_name, filename])
            .or_insert_with(|| {
                functions.push(Function {
                    id: new,
                    name,
                    system_name,
                    filename,
                });
                new
            })
    }
}

/// A duration in nanoseconds, 292 years at most.
fn nanoseconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, line: u32) -> Symbol {
        Symbol {
            name: Some(name.as_bytes().to_vec()),
            addr: None,
            lineno: Some(line),
            filename: Some("a.rs".into()),
        }
    }

    #[test]
    fn texts_functions_and_locations_are_listed_once() {
        let mut tables = Tables::default();
        tables.text("");
        let first = tables.location(&symbol("f", 1));
        assert_eq!(tables.location(&symbol("f", 1)), first);
        let other_line = tables.location(&symbol("f", 2));
        let other_function = tables.location(&symbol("g", 1));
        assert_eq!([first, other_line, other_function], [1, 2, 3]);
        assert_eq!(tables.texts, ["", "f", "a.rs", "g"]);
        let of = |at: u64| tables.locations[usize::try_from(at).unwrap() - 1].line[0];
        assert_eq!(of(first).function_id, of(other_line).function_id);
        assert_ne!(of(first).function_id, of(other_function).function_id);
    }
}
