//! Tests of what the command line takes.

use clap::Parser;

use super::{GlobalArgs, SessionCommand, WaitFor};

/// The program's command line but for commands that need no session.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: SessionCommand,
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn wait_alone_means_until_it_has_exited() {
    for (line, expected) in [
        ("ciaoctl start a.yaml", None),
        ("ciaoctl start --wait a.yaml", Some(WaitFor::Exited)),
        (
            "ciaoctl start --wait=running a.yaml",
            Some(WaitFor::Running),
        ),
    ] {
        let SessionCommand::Start(start) = parse(line).unwrap().command else {
            panic!("not a start")
        };
        assert_eq!(start.submit.wait, expected, "{line}");
        assert_eq!(start.files.len(), 1, "{line}");
    }
}

#[test]
fn run_takes_everything_behind_the_dashes_as_it_is() {
    let line = "ciaoctl run --mem 64 --cpus 1 --env A=b=c -- sh -c --wait";
    let SessionCommand::Run(run) = parse(line).unwrap().command else {
        panic!("not a run")
    };
    assert_eq!(run.program, ["sh", "-c", "--wait"]);
    assert_eq!(run.env, [("A".to_owned(), "b=c".to_owned())]);
    assert!(run.submit.wait.is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "ciaoctl start",
        "ciaoctl start --count 0 a.yaml",
        "ciaoctl start --count 10001 a.yaml",
        "ciaoctl run --mem 64 --cpus 1",
        "ciaoctl run --mem 0 --cpus 1 -- true",
        "ciaoctl run --mem 64 --cpus 1 --env =x -- true",
        "ciaoctl nodes --timeout soon",
        "ciaoctl watch --topics weather",
        "ciaoctl start --dry-run --wait a.yaml",
        "ciaoctl explain",
        "ciaoctl explain --count 2",
        "ciaoctl explain --mem 64 a.yaml",
        "ciaoctl explain --tenant t a.yaml",
        "ciaoctl explain --prefer ssd=1 a.yaml",
        "ciaoctl explain --time-limit 1h a.yaml",
        "ciaoctl nodes --selector node.load<2",
        "ciaoctl update i1",
        "ciaoctl update i1 --move",
        "ciaoctl update i1 --priority 101",
        "ciaoctl update i1 --mem-mb 0",
        "ciaoctl migrate i1 --deadline soon",
        "ciaoctl drain n1 --check --abort",
        "ciaoctl drain n1 --check --deadline 5m",
        "ciaoctl drain n1 --parallel 65",
        "ciaoctl suspend",
        "ciaoctl run --mem 1 --cpus 1 --on-node-loss forget -- true",
        "ciaoctl run --mem 1 --cpus 1 --attempts 11 -- true",
    ] {
        assert_eq!(
            parse(line).map(|_| ()).unwrap_err().exit_code(),
            2,
            "{line}"
        );
    }
}

#[test]
fn one_vocabulary_of_options_holds_for_every_command_and_old_ones_go_on() {
    for line in [
        "ciaoctl update i1 --mem 1 --cpus 2 --disk 3 --wait",
        "ciaoctl update i1 --mem-mb 1 --vcpus 2 --disk-mb 3 --no-wait",
        "ciaoctl delete i1 --wait",
        "ciaoctl stop i1 --no-wait",
        "ciaoctl evacuate n1 --yes --no-wait",
        "ciaoctl drain n1 --wait",
        "ciaoctl migrate i1 --wait",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for line in ["delete i1", "drain n1", "suspend i1", "restore n1"] {
        let both = format!("ciaoctl {line} --wait --no-wait");
        assert!(parse(&both).is_err(), "{both}");
    }
}

#[test]
fn explain_takes_files_or_a_description() {
    for line in [
        "ciaoctl explain a.yaml b.yaml --node n --count 3",
        "ciaoctl explain --mem 64",
        "ciaoctl explain --cpus 0 --node n",
        "ciaoctl explain --disk 1024",
        "ciaoctl explain --require ssd=1",
        "ciaoctl explain --time-limit 1h",
    ] {
        parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn global_options_go_before_or_after_the_command() {
    let before = parse("ciaoctl --server a:1 --json nodes").unwrap().global;
    let after = parse("ciaoctl nodes --server a:1 --json").unwrap().global;
    assert_eq!((before.server, before.json), (after.server, after.json));
}
