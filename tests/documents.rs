//! What the documents say against what the programs are: flags, defaults, modules, commands.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn document(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// How far flags are indented at most in the programs' help; their descriptions stand further in.
const FLAG_INDENT: usize = 6;

/// A flag as a program's help shows it.
struct Flag {
    name: String,
    /// What follows `[default: `, if anything does.
    default: Option<String>,
    /// The heading that it stands under.
    heading: String,
}

/// The programs whose flags are in tables of the README, and the titles of the sections that have them.
fn documented() -> [(&'static str, Vec<Flag>); 2] {
    [
        ("Flags", flags(env!("CARGO_BIN_EXE_ciao-scheduler"))),
        (
            "Flags of the launcher",
            flags(env!("CARGO_BIN_EXE_ciao-launcher")),
        ),
    ]
}

/// The flags of a program.
fn flags(program: &str) -> Vec<Flag> {
    let output = Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let mut flags: Vec<Flag> = Vec::new();
    let mut heading = String::new();
    let mut words = String::new();
    for line in help.lines().chain(["      --end"]) {
        let content = line.trim_start();
        let is_indented = (1..=FLAG_INDENT).contains(&(line.len() - content.len()));
        let flag = content.split(", ").last().unwrap_or_default();
        let flag = flag.strip_prefix("--").filter(|_| is_indented);
        let is_heading = line.ends_with(':') && !line.starts_with(' ');
        if (flag.is_some() || is_heading)
            && let Some(last) = flags.last_mut()
        {
            last.default = default_in(&words);
            words.clear();
        }
        if let Some(flag) = flag {
            let name = flag.split([' ', '[', '=']).next().unwrap_or_default();
            flags.push(Flag {
                name: name.to_owned(),
                default: None,
                heading: heading.clone(),
            });
        } else if is_heading {
            heading = line.trim_end_matches(':').to_owned();
        } else {
            words.push_str(line.trim());
            words.push(' ');
        }
    }
    flags.pop();
    assert!(flags.len() > 10, "{program} --help shows its flags: {help}");
    flags
}

/// The default in a flag's description.
fn default_in(words: &str) -> Option<String> {
    let (_, rest) = words.rsplit_once("[default: ")?;
    rest.split_once(']').map(|(default, _)| default.to_owned())
}

/// A section of the README with what stands below it, up to the next of its rank.
fn section(title: &str) -> String {
    let readme = document("README.md");
    let (_, rest) = readme
        .split_once(&format!("\n### {title}\n"))
        .unwrap_or_else(|| panic!("README.md has no section {title}"));
    let ends = ["\n### ", "\n## "].map(|heading| rest.find(heading).unwrap_or(rest.len()));
    rest[..ends[0].min(ends[1])].to_owned()
}

/// Flags for logging are the same for every program and stand in the first table only.
fn is_elsewhere(title: &str, flag: &Flag) -> bool {
    title != "Flags" && flag.heading == "Logging"
}

#[test]
fn the_readme_has_every_flag_with_its_default() {
    let mut missing = Vec::new();
    for (title, program) in documented() {
        let text = section(title);
        for flag in program {
            let name = &flag.name;
            if ["help", "version"].contains(&name.as_str()) || is_elsewhere(title, &flag) {
                continue;
            }
            let row = text.lines().find(|line| {
                line.strip_prefix("| `-")
                    .and_then(|rest| rest.strip_prefix(name))
                    .is_some_and(|rest| rest.starts_with(['`', ' ']))
            });
            // A default in words is part of the flag's description, and need not be the same in the README.
            let default = flag.default.filter(|it| !it.contains(' '));
            match (row, default) {
                (None, _) => missing.push(format!("{title}: -{name}")),
                (Some(row), Some(default)) if !row.contains(&format!("| `{default}` |")) => {
                    missing.push(format!("{title}: -{name}'s default {default}"));
                }
                _ => {}
            }
        }
    }
    assert!(missing.is_empty(), "README.md lacks {missing:?}");
}

#[test]
fn the_readme_has_no_flag_that_a_program_has_not() {
    let mut rows = 0;
    for (title, program) in documented() {
        for line in section(title).lines() {
            let Some(flag) = line.strip_prefix("| `-") else {
                continue;
            };
            rows += 1;
            let name: &str = flag.split([' ', '`']).next().unwrap_or_default();
            assert!(
                program.iter().any(|known| known.name == name),
                "README.md has the flag -{name} under {title}"
            );
        }
    }
    let all = document("README.md");
    let all = all.lines().filter(|line| line.starts_with("| `-")).count();
    assert_eq!(rows, all, "rows of flags outside the tables");
}

#[test]
fn the_readme_has_one_command_to_run_and_one_to_test() {
    let readme = document("README.md");
    let commands: Vec<&str> = readme
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(
        commands,
        [
            "cargo run --release --locked -- dev --start examples/hello.yaml --count 3 --once\n",
            "cargo test --workspace --locked\n",
        ]
    );
}

#[test]
fn the_code_map_names_every_module_of_the_main_layers() {
    let map = document("ARCHITECTURE.md");
    for layer in [
        "sched-core/src",
        "sched-core/src/api",
        "sched-core/src/peers",
        "sched-core/src/cluster",
        "sched-core/src/placement",
        "sched-core/src/instance",
        "sched-core/src/journal",
        "sched-core/src/workflow",
        "src/net",
        "src/server",
    ] {
        let title = format!("### `{layer}`\n");
        let section = map
            .split(&title)
            .nth(1)
            .and_then(|rest| rest.split("\n#").next())
            .unwrap_or_else(|| panic!("ARCHITECTURE.md has no map of {layer}"));
        for module in modules(&root().join(layer)) {
            assert!(
                section.contains(&format!("`{module}`")),
                "ARCHITECTURE.md does not say what {layer}/{module}.rs is"
            );
        }
    }
}

fn modules(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the layer is a directory");
    entries
        .filter_map(|entry| {
            let path = entry.expect("the directory can be read").path();
            let is_rust = path.extension().is_some_and(|extension| extension == "rs");
            is_rust.then(|| path.file_stem()?.to_str().map(str::to_owned))?
        })
        .filter(|module| module != "lib")
        .collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "benches/README.md",
        "certs-example/README.md",
    ] {
        let text = document(name);
        let directory = root().join(name).parent().expect("it is a file").to_owned();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let is_elsewhere = link.contains("://") || link.starts_with('#');
            let path = link.split('#').next().unwrap_or_default();
            assert!(
                is_elsewhere || directory.join(path).exists(),
                "{name} links to {link}, which is not there"
            );
        }
    }
}
