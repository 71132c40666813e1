//! Parts of the book that are generated: every flag of every program, and the exit codes.

use std::fmt::Write as _;
use std::fs;

use ciao_scheduler::ctl::exit::Exit;

use crate::help::{Flag, Help};
use crate::{is_update, root, text};

const BEGIN: &str =
    "<!-- generated: UPDATE_DOCS=1 cargo test --locked --test documents writes it -->";
const END: &str = "<!-- end of the generated part -->";

/// The heading of what every command takes.
const GLOBAL: &str = "Global options";

#[test]
fn the_flags_of_every_program_are_those_it_has() {
    for (page, name, program) in [
        (
            "docs/reference/ciao-scheduler.md",
            "ciao-scheduler",
            env!("CARGO_BIN_EXE_ciao-scheduler"),
        ),
        (
            "docs/reference/ciao-launcher.md",
            "ciao-launcher",
            env!("CARGO_BIN_EXE_ciao-launcher"),
        ),
        (
            "docs/reference/ciao-cert.md",
            "ciao-cert",
            env!("CARGO_BIN_EXE_ciao-cert"),
        ),
        (
            "docs/reference/ciaoctl.md",
            "ciaoctl",
            env!("CARGO_BIN_EXE_ciaoctl"),
        ),
    ] {
        let mut out = String::new();
        describe(&mut out, name, program, &mut Vec::new());
        hold(page, &out);
    }
}

#[test]
fn the_exit_codes_of_the_client_are_those_it_has() {
    let mut out = String::from("| code | meaning |\n| --- | --- |\n");
    for (exit, meaning) in Exit::TABLE {
        writeln!(out, "| {} | {meaning} |", exit.code()).unwrap();
    }
    hold("docs/reference/exit-codes.md", &out);
}

/// Compares the generated part of a page, or writes it.
pub(crate) fn hold(page: &str, generated: &str) {
    let old = text(page);
    let parts = old.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.unwrap_or_else(|| panic!("{page} has no generated part"));
    let current = format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", generated.trim());
    if is_update() {
        fs::write(root().join(page), current).unwrap();
    } else {
        assert!(
            current == old,
            "{page} is stale: UPDATE_DOCS=1 cargo test --locked --test documents writes it"
        );
    }
}

/// A program or one of its commands, and the commands below it.
fn describe(out: &mut String, name: &str, program: &str, command: &mut Vec<String>) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let help = Help::ask(program, &words);
    let title = [&[name][..], &words].concat().join(" ");
    if !words.is_empty() {
        writeln!(out, "## {title}\n").unwrap();
        writeln!(out, "{}\n", help.about.join("\n").trim()).unwrap();
    }
    writeln!(out, "```text\n{}\n```\n", help.usage.join("\n")).unwrap();
    flags(out, &help, words.is_empty());
    if !help.commands.is_empty() && words.is_empty() {
        writeln!(out, "| command | what it does |\n| --- | --- |").unwrap();
        for (command, about) in &help.commands {
            let anchor = format!("{name}-{command}");
            writeln!(out, "| [{name} {command}](#{anchor}) | {about} |").unwrap();
        }
        out.push('\n');
    }
    let after = help.after.join("\n");
    // The codes of `ciaoctl` have a page of their own.
    if !after.is_empty() && !after.starts_with("Exit codes:") {
        writeln!(out, "```text\n{}\n```\n", after.trim()).unwrap();
    }
    for (next, _) in help.commands {
        command.push(next);
        describe(out, name, program, command);
        command.pop();
    }
}

/// A table for each heading; what every command takes is told with the program alone.
fn flags(out: &mut String, help: &Help, is_program: bool) {
    let mut headings: Vec<&str> = Vec::new();
    for flag in &help.flags {
        if !headings.contains(&&*flag.heading) && (is_program || flag.heading != GLOBAL) {
            headings.push(&flag.heading);
        }
    }
    for heading in &headings {
        if headings.len() > 1 || is_program {
            writeln!(out, "**{heading}**\n").unwrap();
        }
        writeln!(
            out,
            "| flag | default | what it does |\n| --- | --- | --- |"
        )
        .unwrap();
        for flag in help.flags.iter().filter(|flag| flag.heading == *heading) {
            writeln!(out, "{}", row(flag)).unwrap();
        }
        out.push('\n');
    }
}

fn row(flag: &Flag) -> String {
    let default = match &flag.default {
        Some(default) if default.contains(' ') => default.clone(),
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    let cells = [&format!("`{}`", flag.name), &default, &flag.description];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |", cells.join(" | "))
}
