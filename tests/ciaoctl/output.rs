//! What becomes of any program whose output cannot be written: an exit code, and words as far as they get, never a panic.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::scheduler::DEADLINE;

const CERT: &str = env!("CARGO_BIN_EXE_ciao-cert");
const CTL: &str = env!("CARGO_BIN_EXE_ciaoctl");
const LAUNCHER: &str = env!("CARGO_BIN_EXE_ciao-launcher");
const SCHEDULER: &str = env!("CARGO_BIN_EXE_ciao-scheduler");

/// What a panic ends with.
const PANIC: i32 = 101;

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Runs a program in a directory of its own; its exit code and what it says on standard error, if that is read.
async fn run(program: &str, args: &str, out: Stdio, err: Stdio, dir: &Path) -> (i32, String) {
    let mut command = Command::new(program);
    command
        .args(args.split_whitespace())
        .current_dir(dir)
        .env_remove("CIAO_CERTS")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .kill_on_drop(true);
    let child = command.spawn().unwrap();
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output());
    let output = output.await.expect("it does not end").unwrap();
    let code = output.status.code();
    let said = String::from_utf8(output.stderr).unwrap();
    (
        code.unwrap_or_else(|| panic!("{program} {args}: {said}")),
        said,
    )
}

#[tokio::test]
async fn output_that_cannot_be_written_is_a_failure_with_words() {
    for (program, args, code) in [
        (CERT, "-all", 1),
        (CERT, "-help", 1),
        (CERT, "--version", 1),
        (CTL, "--help", 7),
        (CTL, "run --help", 7),
        (CTL, "completions bash", 7),
        (LAUNCHER, "-help", 1),
        (SCHEDULER, "-help", 1),
        (SCHEDULER, "dev --help", 1),
        (SCHEDULER, "dev --nodes 1", 1),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let ended = run(program, args, full(), Stdio::piped(), dir.path()).await;
        assert_eq!(ended.0, code, "{program} {args}: {}", ended.1);
        assert!(
            ended.1.contains("No space left"),
            "{program} {args}: {}",
            ended.1
        );
    }
}

#[tokio::test]
async fn a_standard_error_that_is_full_or_gone_leaves_the_exit_code_as_it_is() {
    for (program, args) in [
        (CERT, "-all"),
        (CERT, "-all -dump x"),
        (CERT, "-dump /nonexistent"),
        (CERT, "-anchor"),
        (CTL, "nodes --certs /nonexistent"),
        (CTL, "run"),
        (LAUNCHER, "-cert /nonexistent"),
        (LAUNCHER, "-nonsense"),
        (SCHEDULER, "-cert /nonexistent"),
        (SCHEDULER, "-nonsense"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        // With standard output full too: what is wrong with it is to be told, and cannot be.
        let expected = run(program, args, full(), Stdio::piped(), dir.path())
            .await
            .0;
        assert_ne!(expected, 0, "{program} {args}");
        let dir = tempfile::tempdir().unwrap();
        let ended = run(program, args, full(), full(), dir.path()).await;
        assert_ne!(ended.0, PANIC, "{program} {args}");
        assert_eq!(ended.0, expected, "{program} {args}");
    }
}

#[tokio::test]
async fn a_reader_that_is_gone_is_no_failure_of_any_program() {
    for (program, args) in [
        (CERT, "-all"),
        (CERT, "-help"),
        (CTL, "--help"),
        (CTL, "completions zsh"),
        (LAUNCHER, "-help"),
        (SCHEDULER, "-help"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = run(program, args, writer.into(), Stdio::piped(), dir.path()).await;
        assert_eq!(ended, (0, String::new()), "{program} {args}");
    }
}
