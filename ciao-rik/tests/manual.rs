//! The manual page names every flag that the program has, and no other.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Flags that are all programs': logging, help, version.
const COMMON: &[&str] = &[
    "--help",
    "--version",
    "--v",
    "--vmodule",
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold",
    "--log_dir",
];

fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    words
        .filter(|it| it.starts_with("--") && it.len() > 2 && !it.ends_with('-'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_flag_is_in_the_manual() {
    let help = |args: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_ciao-rik"));
        let output = program.args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let help = help(&["--help"]) + &help(&["token", "issue", "--help"]);
    // The lines that begin with a flag, and no flag that a text names.
    let lines = help
        .lines()
        .map(str::trim_start)
        .filter(|it| it.starts_with('-'));
    let mut has: BTreeSet<String> = lines
        .flat_map(|it| flags(it.split("  ").next().unwrap_or_default()))
        .collect();
    has.retain(|flag| !COMMON.contains(&&**flag));
    assert!(has.contains("--tokens") && has.len() > 12, "{has:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/ciao-rik.md");
    let named = flags(&std::fs::read_to_string(page).unwrap());
    assert_eq!(
        has, named,
        "flags of the program, and those in docs/reference/ciao-rik.md"
    );
}
