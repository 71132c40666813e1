//! What the documents say against what the programs are: flags, defaults, modules, commands.

use std::fs;
use std::path::{Path, PathBuf};

use ciao_scheduler::launcher::cli::Cli;
use ciao_scheduler::server::SchedulerFlags;
use clap::{Arg, Command, CommandFactory as _};

fn document(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The programs whose flags are in tables of the README, and the titles of the sections that have them.
fn documented() -> [(&'static str, Command); 2] {
    [
        ("Flags", SchedulerFlags::command()),
        ("Flags of the launcher", Cli::command()),
    ]
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
fn is_elsewhere(title: &str, flag: &Arg) -> bool {
    title != documented()[0].0 && flag.get_help_heading() == Some("Logging")
}

#[test]
fn the_readme_has_every_flag_with_its_default() {
    let mut missing = Vec::new();
    for (title, program) in documented() {
        let text = section(title);
        for flag in program.get_arguments() {
            let Some(name) = flag.get_long().filter(|_| !flag.is_hide_set()) else {
                continue;
            };
            if ["help", "version"].contains(&name) || is_elsewhere(title, flag) {
                continue;
            }
            let row = text.lines().find(|line| {
                line.strip_prefix("| `-")
                    .and_then(|rest| rest.strip_prefix(name))
                    .is_some_and(|rest| rest.starts_with(['`', ' ']))
            });
            let default = flag
                .get_default_values()
                .first()
                .and_then(|value| value.to_str())
                .filter(|_| flag.get_action().takes_values() && !flag.is_hide_default_value_set());
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
                program
                    .get_arguments()
                    .any(|known| known.get_long() == Some(name)),
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
