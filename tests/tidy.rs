//! What no lint can check: file headers and lengths, the purity of the core, one file for the archived crate, no paths
//! of anybody's machine, and a README whose two commands are there to be run.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Longest source file, in lines.
const MAX_LINES: usize = 600;

/// What the core must not know: tasks, clocks, files, sockets, threads, and anything whose order is not its own.
const IMPURE: &[&str] = &[
    "tokio",
    "::now",
    "HashMap",
    "HashSet",
    "DashMap",
    "std::net",
    "std::fs",
    "std::env",
    "std::thread",
    "async ",
    ".await",
    "fastrand::Rng::new",
    "fastrand::seed",
    "fastrand::usize",
    "fastrand::u64",
    "println!",
];

/// Where the core's own tests learn when simulated time begins.
const CLOCK_OF_TESTS: &str = "sched-core/src/simulated.rs";

/// Files of the core that have sentences, and what about: those for clients and operators are the server's to make.
const WITH_SENTENCES: &[(&str, &str)] = &[
    ("invariants.rs", "what is broken, for developers"),
    ("consistent.rs", "what is broken, for developers"),
    ("queue/line.rs", "what is broken, for developers"),
    ("instance/samples.rs", "a table of the documentation"),
    ("placement/filters.rs", "what is wrong with a rule"),
    ("placement/weighers.rs", "what is wrong with a rule"),
    ("placement/policy.rs", "what is wrong with a rule"),
    ("cluster/advice.rs", "what of a report is left out"),
    ("api/disk.rs", "how the disk is, in notices"),
    ("api/phase.rs", "a defect of the core, in a notice"),
    ("api/action.rs", "why a connection is refused or ended"),
];

/// A file of the repository.
struct File {
    /// Relative to the root.
    path: String,
    /// `None` if it is not text.
    text: Option<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file that belongs to the repository: as git lists them, or all but build products where there is no git.
fn files() -> Vec<File> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output();
    let paths = match listed {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .unwrap()
            .split_terminator('\0')
            .map(PathBuf::from)
            .collect(),
        _ => walk(root()),
    };
    let read = |path: PathBuf| {
        let contents = std::fs::read(root().join(&path)).ok()?;
        Some(File {
            path: path.to_str().unwrap().to_owned(),
            text: String::from_utf8(contents).ok(),
        })
    };
    let files: Vec<File> = paths.into_iter().filter_map(read).collect();
    assert!(files.len() > 50, "the repository is there");
    files
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_left_out = path.ends_with("target") || path.ends_with(".git");
        if path.is_dir() && !is_left_out {
            found.extend(walk(&path));
        } else if path.is_file() {
            found.push(path.strip_prefix(root()).unwrap().to_owned());
        }
    }
    found
}

/// The Rust sources: path and text.
fn sources() -> Vec<(String, String)> {
    let is_source = |file: &File| file.path.ends_with(".rs");
    let sources = files().into_iter().filter(is_source);
    sources
        .map(|file| (file.path, file.text.expect("sources are text")))
        .collect()
}

/// A line without its comment. A `//` within a string cuts it too, which hides nothing that matters here.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Fails with all findings at once.
fn none(what: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{what}:\n{}", findings.join("\n"));
}

#[test]
fn every_source_file_says_what_it_is() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| path)
        .collect();
    none("files that do not open with //!", &silent);
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > MAX_LINES)
        .map(|(path, text)| format!("{path}: {} lines", text.lines().count()))
        .collect();
    none("files that should be cut", &long);
}

#[test]
fn modules_stand_beside_their_directories() {
    let misplaced: Vec<String> = sources()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.ends_with("mod.rs"))
        .collect();
    none("mod.rs files", &misplaced);
}

/// Also that of a module of tests: without the line that declares it, a file stands there and is not compiled.
#[test]
fn each_file_of_a_library_is_declared_as_a_module() {
    let all = sources();
    let declares = |parent: &str, name: &str| {
        let text = all.iter().find(|(path, _)| path == parent).map(|it| &it.1);
        let line = format!("mod {name};");
        text.is_some_and(|text| text.lines().any(|it| it.trim_end().ends_with(&line)))
    };
    let is_declared = |path: &str| {
        let (folder, name) = path.trim_end_matches(".rs").rsplit_once('/')?;
        let is_root = ["lib", "main"].contains(&name) || folder.ends_with("src/bin");
        let parents = [".rs", "/lib.rs", "/main.rs"].map(|it| format!("{folder}{it}"));
        let is_named = || parents.iter().any(|parent| declares(parent, name));
        // One of a program that only a feature builds is named by its path.
        let has_path = |(_, text): &(String, String)| text.contains(&format!("\"{name}.rs\""));
        Some(is_root || is_named() || all.iter().any(has_path))
    };
    let is_of_library = |path: &str| path.starts_with("src/") || path.contains("/src/");
    let lost: Vec<String> = all
        .iter()
        .map(|(path, _)| path.clone())
        .filter(|path| is_of_library(path) && is_declared(path) != Some(true))
        .collect();
    none("files that no module declares", &lost);
}

#[test]
fn the_core_is_pure() {
    let mut impure = Vec::new();
    let mut seen = 0;
    for (path, text) in sources() {
        if !path.starts_with("sched-core/src/") {
            continue;
        }
        seen += 1;
        let is_clock = path == CLOCK_OF_TESTS;
        for (number, line) in text.lines().enumerate() {
            let words = IMPURE.iter().filter(|word| code(line).contains(**word));
            for word in words.filter(|word| !(is_clock && **word == "::now")) {
                impure.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    assert!(seen > 5, "the core is where it was");
    none("what the core must not know", &impure);
    let root = std::fs::read_to_string(root().join("sched-core/src/lib.rs")).unwrap();
    assert!(
        root.contains("#[cfg(test)]\nmod simulated;"),
        "{CLOCK_OF_TESTS} is in tests alone"
    );
}

/// The first literal of a line that looks like a sentence: three words in a row, in lower case.
fn sentence(line: &str) -> Option<&str> {
    let is_word = |word: &str| {
        let word = word.trim_end_matches([',', ';', ':', '.']);
        word.len() > 1 && word.chars().all(|c| c.is_ascii_lowercase())
    };
    let mut literals = line.split('"').skip(1).step_by(2);
    literals.find(|literal| {
        let words: Vec<&str> = literal.split(' ').collect();
        let mut runs = words.windows(3);
        runs.any(|three| three.iter().all(|word| is_word(word)))
    })
}

#[test]
fn the_core_makes_no_sentences() {
    // What only a developer sees: the reason of an exception, and what a defect ends with.
    let for_developers = ["reason = ", "expect(", "panic!(", "assert"];
    let mut found = Vec::new();
    let mut unused: Vec<&str> = WITH_SENTENCES.iter().map(|(path, _)| *path).collect();
    for (path, text) in sources() {
        let Some(file) = path.strip_prefix("sched-core/src/") else {
            continue;
        };
        if file.contains("/tests/") || file.ends_with("/tests.rs") {
            continue;
        }
        let core = text.split("#[cfg(test)]\nmod tests {").next();
        let core = core.unwrap_or_default();
        for (number, line) in core.lines().enumerate() {
            let is_for_developers = for_developers.iter().any(|it| line.contains(it));
            let Some(sentence) = sentence(code(line)).filter(|_| !is_for_developers) else {
                continue;
            };
            let mut named = WITH_SENTENCES.iter().map(|(path, _)| *path);
            match named.find(|path| file == *path || file.ends_with(&format!("/{path}"))) {
                Some(named) => unused.retain(|path| *path != named),
                None => found.push(format!("{path}:{}: {sentence}", number + 1)),
            }
        }
    }
    none("sentences, which src/server/sentences makes", &found);
    assert!(unused.is_empty(), "no sentences are left in {unused:?}");
}

#[test]
fn a_sentence_is_told_from_names_and_keys() {
    let is_found = |line| sentence(line).is_some();
    assert!(is_found(r#"Err("no node fits".to_owned())"#));
    assert!(is_found(r#"format!("{count} wait already, which is")"#));
    for line in [
        r#"join(", ")"#,
        r#""memory""#,
        r#"format!("full of {name}")"#,
        "no node fits",
    ] {
        assert!(!is_found(line), "{line}");
    }
}

/// What is of the wire alone: frames and how they become bytes. What kind a frame is of is named in too common a word.
const OF_THE_WIRE: &[&str] = &[
    "proto_frames",
    "Frame",
    "FrameType",
    "Encoding",
    "encode",
    "decode",
];

#[test]
fn the_core_knows_no_frames() {
    let mut wired = Vec::new();
    for (path, text) in sources() {
        if !path.starts_with("sched-core/src/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let mut words = code(line).split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| OF_THE_WIRE.contains(word)) {
                wired.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    none("what src/server/wire alone knows", &wired);
}

/// The functions named like a question whose parameters have something to change.
fn acting_predicates(text: &str) -> Vec<String> {
    let named = ["fn is_", "fn has_", "fn can_"];
    let code: Vec<&str> = text.lines().map(code).collect();
    let code = code.join("\n");
    let starts = named.iter().flat_map(|name| code.match_indices(name));
    let acts = starts.filter_map(|(at, _)| {
        let signature = code[at..].split(['{', ';']).next()?;
        let parameters = signature.split("->").next()?;
        let name = parameters.split(['(', '<']).next()?;
        parameters.contains("&mut ").then(|| name.to_owned())
    });
    acts.collect()
}

#[test]
fn predicates_of_the_core_do_not_act() {
    let both =
        "fn is_a(&self) -> bool {}\nfn has_b(\n    &mut self,\n) {}\nfn can_c(of: &mut A) {}\n";
    assert_eq!(acting_predicates(both), ["fn has_b", "fn can_c"]);
    let mut acting = Vec::new();
    for (path, text) in sources() {
        if path.starts_with("sched-core/src/") {
            let found = acting_predicates(&text).into_iter();
            acting.extend(found.map(|name| format!("{path}: {name}")));
        }
    }
    none("predicates that change something", &acting);
}

#[test]
fn the_wire_and_the_vocabulary_know_no_tasks_and_no_sockets() {
    let mut impure = Vec::new();
    for (path, text) in sources() {
        if !path.starts_with("proto-frames/src/") && !path.starts_with("sched-model/src/") {
            continue;
        }
        for word in ["tokio", "std::net", "std::fs", "async ", "ciao_scheduler"] {
            if text.lines().any(|line| code(line).contains(word)) {
                impure.push(format!("{path}: {word}"));
            }
        }
    }
    none("what the codec must not know", &impure);
}

#[test]
fn no_unsafe_code_is_written() {
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let has_it = text
            .lines()
            .any(|line| code(line).contains("unsafe {") || code(line).contains("unsafe fn"));
        if has_it && path != "tests/tidy.rs" {
            findings.push(path);
        }
    }
    none("unsafe code", &findings);
}

#[test]
fn commands_of_the_client_print_by_one_way_only() {
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let ways: &[&str] = match path.as_str() {
            "src/ctl/run.rs" | "src/ctl/output.rs" => continue,
            path if path.starts_with("src/ctl/commands") => &[
                "print!(",
                "println!(",
                "write!(",
                "writeln!(",
                "write_all(",
                "stdout(",
                "stderr(",
            ],
            path if path.starts_with("src/ctl") => &["print!(", "println!(", "stdout(", "stderr("],
            _ => continue,
        };
        for way in ways {
            if text.lines().any(|line| code(line).contains(way)) {
                findings.push(format!("{path}: {way}"));
            }
        }
    }
    none("what reaches a terminal past `ctl::output`", &findings);
}

/// The packages that a lock file has: name and version.
fn locked(path: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let value = |line: &str, key: &str| {
        let quoted = line.strip_prefix(key)?.strip_prefix(" = ")?;
        Some(quoted.trim_matches('"').to_owned())
    };
    let lines: Vec<&str> = text.lines().collect();
    let pair = |two: &[&str]| Some((value(two[0], "name")?, value(two[1], "version")?));
    lines.windows(2).filter_map(pair).collect()
}

#[test]
fn the_fuzz_targets_are_built_with_the_dependencies_of_the_workspace() {
    const OWN: [&str; 3] = ["arbitrary", "ciao-scheduler-fuzz", "libfuzzer-sys"];
    let workspace = locked("Cargo.lock");
    let mut others = locked("fuzz/Cargo.lock");
    assert!(others.len() > 50, "the lock file is read");
    others.retain(|package| !OWN.contains(&package.0.as_str()) && !workspace.contains(package));
    let named: Vec<String> = others
        .iter()
        .map(|(name, version)| format!("{name} {version}: `cargo update --precise` it in fuzz/"))
        .collect();
    none(
        "packages of fuzz/Cargo.lock that Cargo.lock has not",
        &named,
    );
}

#[test]
fn what_tests_see_of_the_inside_is_behind_a_feature_that_programs_do_not_have() {
    let mut open = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let is_support = pair[1].contains("mod ") && pair[1].ends_with("_support;");
            if is_support && !pair[0].contains("feature = \"test-support\"") {
                open.push(format!("{path}:{}", number + 2));
            }
        }
    }
    none("modules for tests that programs have as well", &open);
    for manifest in ["Cargo.toml", "sched-core/Cargo.toml"] {
        let text = std::fs::read_to_string(root().join(manifest)).unwrap();
        let (_, features) = text.split_once("[features]\n").unwrap();
        let (features, _) = features.split_once("\n[").unwrap();
        let mut given = features
            .lines()
            .filter(|line| !line.starts_with("test-support"));
        let is_given = given.any(|line| line.contains("test-support"));
        assert!(
            !is_given,
            "{manifest}: a feature that programs have brings in test-support"
        );
        let (_, shipped) = text.split_once("[dependencies]\n").unwrap();
        let (shipped, _) = shipped.split_once("\n[").unwrap();
        assert!(!shipped.contains("test-support"), "{manifest}");
    }
}

#[test]
fn the_archived_pem_crate_is_used_in_one_file() {
    let name = ["rustls", "pemfile"].join("_");
    let users: Vec<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.lines().any(|line| code(line).contains(&name)))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(users, ["src/net/tls/pem.rs"]);
}

/// Each door would else have to think of the options of its connections itself. Sockets of the file system have none.
#[test]
fn programs_accept_connections_in_one_place() {
    let ways = [".accept()", ".poll_accept(", "axum::serve(", "TcpIncoming"];
    let mut doors = Vec::new();
    for (path, text) in sources() {
        let is_program = path.starts_with("src/") || path.contains("/src/");
        let (shipped, _) = text.split_once("#[cfg(test)]\n").unwrap_or((&text, ""));
        let listens = shipped
            .lines()
            .any(|line| code(line).contains("TcpListener"));
        let accepts = |line| ways.iter().any(|way| code(line).contains(way));
        if is_program && !path.ends_with("tests.rs") && listens && shipped.lines().any(accepts) {
            doors.push(path);
        }
    }
    assert_eq!(doors, ["src/net/socket.rs"]);
}

#[test]
fn tests_are_named_by_sentences_and_wait_for_conditions() {
    let (sleep, prefix) = (["sle", "ep("].concat(), ["fn te", "st_"].concat());
    let mut findings = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let is_test = path.starts_with("tests/") || path.contains("/tests/");
            // The one place that looks at a condition again and again, with a deadline.
            let is_wait = line.trim() == format!("tokio::time::{sleep}LOOK).await;");
            if is_test && code(line).contains(&sleep) && !is_wait || code(line).contains(&prefix) {
                findings.push(format!("{path}:{}", number + 1));
            }
        }
    }
    none("tests that sleep, or are named like functions", &findings);
}

#[test]
fn no_file_names_a_path_of_somebodys_machine() {
    let homes: Vec<String> = ["root", "home", "work", "Users"]
        .iter()
        .map(|name| format!("/{name}/"))
        .collect();
    let mut findings = Vec::new();
    for file in files() {
        for (number, line) in file.text.iter().flat_map(|text| text.lines().enumerate()) {
            if homes.iter().any(|home| begins_a_path(line, home)) {
                findings.push(format!("{}:{}: {line}", file.path, number + 1));
            }
        }
    }
    none("paths that exist on one machine only", &findings);
}

/// Whether the text is there at the beginning of a path, rather than inside a longer one.
fn begins_a_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|char| !char.is_alphanumeric() && !"._-}/~".contains(char))
    })
}

#[test]
fn every_program_and_benchmark_is_listed_and_every_listed_one_exists() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for (folder, section) in [("src/bin", "[[bin]]"), ("benches", "[[bench]]")] {
        let mut listed: Vec<String> = manifest
            .split(section)
            .skip(1)
            .map(|part| {
                let name = part.lines().find_map(|line| line.strip_prefix("name = "));
                name.unwrap().trim_matches('"').to_owned()
            })
            .collect();
        listed.sort();
        let prefix = format!("{folder}/");
        let mut there: Vec<String> = sources()
            .iter()
            .filter_map(|(path, _)| path.strip_prefix(&prefix)?.strip_suffix(".rs"))
            // A program's folder has its main file; what stands beside that is part of it.
            .map(|name| name.strip_suffix("/main").unwrap_or(name))
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect();
        there.sort();
        assert_eq!(there, listed, "{folder} and {section} of Cargo.toml");
    }
}

#[test]
fn the_readme_has_its_two_commands() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("there is a README.md");
    let blocks = shell_blocks(&readme);
    let headings: Vec<&str> = blocks.iter().take(2).map(|(heading, _)| *heading).collect();
    assert_eq!(
        headings,
        ["Run it", "Test it"],
        "the first two ```sh blocks"
    );
    for heading in headings {
        let under = blocks.iter().filter(|(above, _)| *above == heading);
        let under: Vec<_> = under.map(|(_, lines)| lines).collect();
        assert_eq!(under.len(), 1, "one block under '{heading}'");
        assert_eq!(under[0].len(), 1, "one command under '{heading}'");
    }
    assert_eq!(blocks[1].1, ["cargo test --workspace --locked"]);
}

/// Every fenced block marked `sh`: the heading it stands under, and its lines.
fn shell_blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks: Vec<(&str, Vec<&str>)> = Vec::new();
    let (mut heading, mut fence) = ("", None);
    for line in text.lines() {
        match fence {
            None if line.starts_with('#') => heading = line.trim_start_matches('#').trim(),
            None if line.starts_with("```") => {
                fence = Some(line);
                if line == "```sh" {
                    blocks.push((heading, Vec::new()));
                }
            }
            Some(_) if line == "```" => fence = None,
            Some("```sh") => blocks.last_mut().unwrap().1.push(line),
            _ => {}
        }
    }
    blocks
}

#[test]
fn the_checks_take_the_commands_from_the_readme() {
    let checks = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(checks.contains("set -euo pipefail"));
    assert!(checks.contains("command_under \"Run it\""));
    assert!(checks.contains("command_under \"Test it\""));
    let own = ["cargo", "test"].join(" ");
    assert!(!checks.contains(&own), "a second test command");
}
