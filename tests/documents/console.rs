//! Console blocks of pages are run as they stand, with the built programs, and show what they really print.
//!
//! A `console` block is a terminal: lines that begin with `$ ` are commands (`> ` goes on with one), the others are what
//! they print. A block in a comment that begins with `<!-- console` is run as well and not shown. A block that begins
//! with `cd` is a new terminal, any other goes on in the terminal before it; a daemon keeps its terminal for itself, and
//! the same command line once more first kills the one before. The directory `/tmp/ciao` and the address
//! `127.0.0.1:8888` of the pages are others in a test. What differs from run to run may differ ([`matching`]).
//!
//! `UPDATE_DOCS=1` writes what commands print into the pages, with the identifiers that these had.

mod matching;
mod page;
mod terminal;

use std::fs;

use crate::{is_update, root};
use page::{Block, Command, Page};
use terminal::{Cluster, Ran};

#[test]
fn the_tutorial_runs_as_it_is_shown() {
    run("docs/tutorial.md");
}

#[test]
fn the_guide_to_refusals_runs_as_it_is_shown() {
    run("docs/how-to/explain-a-refusal.md");
}

#[test]
fn the_guide_to_drains_runs_as_it_is_shown() {
    run("docs/how-to/drain-a-node.md");
}

#[test]
fn the_guide_to_failures_runs_as_it_is_shown() {
    run("docs/how-to/survive-failures.md");
}

#[test]
fn the_guide_to_priorities_runs_as_it_is_shown() {
    run("docs/how-to/priorities.md");
}

#[test]
fn the_guide_to_suspending_runs_as_it_is_shown() {
    run("docs/how-to/suspend-move-update.md");
}

#[test]
fn the_guide_to_certificates_runs_as_it_is_shown() {
    run("docs/how-to/certificates.md");
}

#[test]
fn the_guide_to_retries_and_order_runs_as_it_is_shown() {
    run("docs/how-to/retries-and-order.md");
}

#[test]
fn the_guide_to_a_nights_work_runs_as_it_is_shown() {
    run("docs/how-to/a-nights-work.md");
}

#[test]
fn the_guide_to_reloads_runs_as_it_is_shown() {
    run("docs/how-to/reload.md");
}

#[test]
fn the_guide_to_the_configuration_runs_as_it_is_shown() {
    run("docs/how-to/configure.md");
}

/// Runs all blocks of a page in a directory of its own.
fn run(path: &str) {
    let mut page = Page::read(&crate::text(path));
    let mut cluster = Cluster::new();
    let mut wrong = Vec::new();
    let mut commands = 0;
    for block in page.blocks_mut() {
        if block.begins_terminal() {
            cluster.open_terminal();
        }
        commands += block.commands.len();
        for at in 0..block.commands.len() {
            if let Err(difference) = step(&mut cluster, block, at) {
                wrong.push(format!("{path}:{}: {difference}", block.commands[at].line));
            }
        }
        // What follows a difference differs for its sake.
        if !wrong.is_empty() && !is_update() {
            break;
        }
    }
    assert!(commands > 3, "{path} has commands");
    if is_update() {
        fs::write(root().join(path), page.to_string()).unwrap();
    }
    assert!(
        wrong.is_empty(),
        "{}\nUPDATE_DOCS=1 cargo test --locked --test documents writes what commands print",
        wrong.join("\n")
    );
}

/// Runs one command and compares what it prints; or takes that over.
///
/// # Errors
/// How they differ.
fn step(cluster: &mut Cluster, block: &mut Block, at: usize) -> Result<(), String> {
    let is_hidden = block.is_hidden;
    let Command { text, output, .. } = &mut block.commands[at];
    match cluster.run(text, output) {
        Ran::AsShown => Ok(()),
        Ran::Otherwise(_) if is_hidden && output.is_empty() => Ok(()),
        Ran::Otherwise(printed) if is_update() => {
            *output = cluster.adopt(&printed);
            Ok(())
        }
        Ran::Otherwise(printed) => Err(format!(
            "$ {text}\n--- the page shows\n{}\n--- it prints\n{}",
            output.join("\n"),
            printed.join("\n")
        )),
    }
}
