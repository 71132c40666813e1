//! The README and ARCHITECTURE.md: two commands, and as short as can be read in one go.

use crate::text;

/// Most lines of documents that are read as a whole, with room for what the next feature adds.
const MAX_LINES: [(&str, usize); 3] = [
    ("README.md", 160),
    ("ARCHITECTURE.md", 160),
    ("CONTRIBUTING.md", 220),
];

#[test]
fn the_readme_has_one_command_to_run_and_one_to_test() {
    let readme = text("README.md");
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
fn what_everybody_reads_first_is_short() {
    for (name, max) in MAX_LINES {
        let lines = text(name).lines().count();
        assert!(
            lines <= max,
            "{name} has {lines} lines: move what is for some readers only to the book in docs"
        );
    }
}
