//! Makes, checks and shows the certificates of SSNTP peers; see `ciao-cert -help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ciao_scheduler::cert::cli::run(std::env::args_os())
}
