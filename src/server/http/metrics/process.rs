//! What this process uses, as the system says: the usual `process_*` metrics of Prometheus' client libraries. Linux
//! only, from `/proc/self`; read at each scrape.

/// What the process uses; zero where the system does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Process {
    /// Processor time, user and system, seconds.
    pub(super) cpu_s: f64,
    /// Resident memory, bytes.
    pub(super) resident: u64,
    /// Virtual memory, bytes.
    pub(super) virtual_memory: u64,
    /// Open files.
    pub(super) files: u64,
    /// Most open files.
    pub(super) max_files: u64,
    /// Threads.
    pub(super) threads: u64,
}

/// What this process uses at this moment. Blocks for two short reads of procfs.
pub(super) fn read() -> Process {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let mut process = parse(&stat).unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd").map(Iterator::count);
    process.files = files.map_or(0, |count| count as u64);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    process.max_files = limit.current.unwrap_or_default();
    process
}

/// Reads `/proc/self/stat` (proc_pid_stat(5)): one line of fields separated by spaces, of which the second is the
/// program's name in parentheses. `None` where a field that is needed is missing or no number.
fn parse(stat: &str) -> Option<Process> {
    // The name before may have any character, so the last `) ` ends it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    // Numbers are those of the manual, in which the first behind the name is 3.
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(Process {
        cpu_s: (field(14)? + field(15)?) as f64 / ticks as f64,
        threads: field(20)?,
        virtual_memory: field(23)?,
        resident: field(24)?.saturating_mul(rustix::param::page_size() as u64),
        ..Process::default()
    })
}

#[cfg(test)]
mod tests {
    use super::{parse, read};

    #[test]
    fn this_process_uses_something() {
        let process = read();
        assert!(process.resident > 0 && process.virtual_memory >= process.resident);
        assert!(process.files > 0 && process.threads > 0 && process.max_files > 0);
    }

    #[test]
    fn a_name_with_anything_in_it_is_passed_over() {
        let stat = "7 (a) b (c)) S 1 1 1 0 -1 0 1 2 3 4 500 100 0 0 20 0 9 0 1 4096 2 0";
        let process = parse(stat).unwrap();
        assert_eq!((process.threads, process.virtual_memory), (9, 4096));
        assert!(process.cpu_s > 0.0);
        assert_eq!(parse("nothing"), None);
    }
}
