//! Reads a worker's metrics, which are JSON in RIK's own form:
//!
//! ```json
//! {"cpu": {"total": 8, "free": 75.0}, "memory": {"total": 16777216000, "free": 8388608000},
//!  "disks": [{"disk_name": "/dev/sda1", "total": 500000000000, "free": 200000000000}]}
//! ```
//!
//! `cpu.total` is the number of processors and `cpu.free` per cent of all of them; memory and disks are in bytes. Other
//! keys are ignored.

use ciao_scheduler::launcher::agent::{HostFigures, Pressure};
use serde::Deserialize;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// The unit in which nodes report their disk, in bytes.
const DISK_UNIT: f64 = 1_000_000.0;

/// Most of any figure, in its own unit. A larger one is taken for a mistake, and would lose digits as a float.
const MOST: f64 = 1e12;

/// The metrics, as far as they are used.
#[derive(Deserialize)]
struct Metrics {
    cpu: Cpu,
    memory: Amount,
    /// May be missing or empty: then the worker has no disk to offer, and runs what asks for none.
    #[serde(default)]
    disks: Vec<Amount>,
}

#[derive(Deserialize)]
struct Cpu {
    /// Processors, in number.
    total: f64,
    /// Idle, in per cent of all.
    free: f64,
}

#[derive(Deserialize)]
struct Amount {
    /// Bytes.
    total: f64,
    /// Bytes.
    free: f64,
}

/// Why metrics cannot be used. The earlier figures stay then, and the worker's connection too.
#[derive(Debug, thiserror::Error)]
pub(super) enum FiguresError {
    /// They are not of that form.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A figure is negative, not a number, or beyond [`MOST`].
    #[error("{what} is {value}")]
    Absurd {
        /// Which.
        what: &'static str,
        /// What it is.
        value: f64,
    },
}

/// Reads metrics as a sample of the machine. Of several disks the one with the most room counts: on which one instances
/// are kept is not said. The load is the number of processors that are not idle.
///
/// # Errors
/// [`FiguresError`].
pub(super) fn read(text: &str) -> Result<HostFigures, FiguresError> {
    let metrics: Metrics = serde_json::from_str(text)?;
    let cpus = whole("cpu.total", metrics.cpu.total)?;
    let idle = metrics.cpu.free.clamp(0.0, 100.0) / 100.0;
    let disk = metrics
        .disks
        .iter()
        .max_by(|a, b| a.free.total_cmp(&b.free));
    let none = Amount {
        total: 0.0,
        free: 0.0,
    };
    let disk = disk.unwrap_or(&none);
    Ok(HostFigures {
        mem_total_mb: whole("memory.total", metrics.memory.total / MIB)?,
        mem_available_mb: whole("memory.free", metrics.memory.free / MIB)?,
        disk_total_mb: whole("disks[].total", disk.total / DISK_UNIT)?,
        disk_available_mb: whole("disks[].free", disk.free / DISK_UNIT)?,
        load: whole("cpu.free", metrics.cpu.total * (1.0 - idle))?,
        cpus_online: cpus,
        networks: Vec::new(),
        pressure: Pressure::default(),
    })
}

/// A figure without its fraction. -1 stands for one that is not known.
fn whole(what: &'static str, value: f64) -> Result<i64, FiguresError> {
    if !(-1.0..=MOST).contains(&value) {
        return Err(FiguresError::Absurd { what, value });
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is in that range")]
    let whole = value as i64;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workers_metrics_are_figures_of_a_node() {
        let text = r#"{"cpu": {"total": 4, "free": 75.0}, "memory": {"total": 8589934592, "free": 4294967296},
            "disks": [{"disk_name": "a", "total": 100000000000, "free": 1000000},
                      {"disk_name": "b", "total": 50000000000, "free": 20000000000}], "more": 1}"#;
        let figures = read(text).unwrap();
        assert_eq!((figures.cpus_online, figures.load), (4, 1));
        assert_eq!(
            (figures.mem_total_mb, figures.mem_available_mb),
            (8192, 4096)
        );
        assert_eq!(
            (figures.disk_total_mb, figures.disk_available_mb),
            (50_000, 20_000)
        );
    }

    #[test]
    fn a_worker_that_lists_no_disks_has_none_to_offer() {
        for disks in ["", r#", "disks": []"#] {
            let text = format!(
                r#"{{"cpu": {{"total": 4, "free": 75.0}}, "memory": {{"total": 8589934592, "free": 4294967296}}{disks}}}"#
            );
            let figures = read(&text).unwrap();
            assert_eq!((figures.disk_total_mb, figures.disk_available_mb), (0, 0));
        }
    }

    #[test]
    fn metrics_that_are_none_are_refused() {
        for text in [
            "",
            "{}",
            r#"{"cpu": {"total": 1e99, "free": 1}, "memory": {"total": 1, "free": 1}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let text = r#"{"cpu": {"total": 2, "free": 100}, "memory": {"total": -7e9, "free": 1}}"#;
        assert!(
            read(text)
                .unwrap_err()
                .to_string()
                .starts_with("memory.total is ")
        );
    }
}
