//! Whether an adapter's manual page names every flag that its program has, and no other.

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
    "--log-levels",
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold",
    "--log_dir",
];

/// Fails unless the page in `docs/reference` names the flags that the program's help lists under these commands.
/// `one` is a flag that it has.
pub(crate) fn names_every_flag(program: &str, commands: &[&[&str]], one: &str, page: &str) {
    let mut has = BTreeSet::new();
    for command in commands {
        let mut help = Command::new(program);
        let help = help.args(*command).arg("--help").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        // The lines that begin with a flag, and no flag that a text names.
        let lines = help.lines().map(str::trim_start);
        let lines = lines.filter(|it| it.starts_with('-'));
        has.extend(lines.flat_map(|it| flags(it.split("  ").next().unwrap_or_default())));
    }
    has.retain(|flag| !COMMON.contains(&&**flag));
    assert!(has.contains(one) && has.len() > 12, "{has:?}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let named = flags(&std::fs::read_to_string(folder.join(page)).unwrap());
    assert_eq!(
        has, named,
        "flags of the program, and those in docs/reference/{page}"
    );
}

fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_".contains(c)));
    words
        .filter(|it| it.starts_with("--") && it.len() > 2 && !it.ends_with('-'))
        .map(str::to_owned)
        .collect()
}
