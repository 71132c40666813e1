//! What the programs say of themselves with `--version`: the commit they are built from and the profile.
//!
//! Needs neither git nor a repository: the commit is what `CIAO_COMMIT` says, or what `git archive` has written into
//! `.commit`, or what the files of the repository say that stands here; else it is unknown. Runs again only if one of these
//! has changed, and with the profile `dev` not even then: each commit would compile the library and all of its tests again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// For packagers who build without a repository.
const COMMIT_VARIABLE: &str = "CIAO_COMMIT";

/// Digits of a commit that are shown: no two commits of a repository of this size begin alike.
const SHOWN_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMMIT_VARIABLE}");
    let profile = profile();
    let build = if profile == "dev" {
        profile
    } else {
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
        let commit = given()
            .or_else(|| archived(&root))
            .or_else(|| checked_out(&root));
        let commit = commit.unwrap_or_else(|| "unknown".to_owned());
        format!("commit {commit}, {profile}")
    };
    println!("cargo::rustc-env=CIAO_BUILD={build}");
}

/// The profile by its name. Cargo tells a build script only which of its own two it is like; the directory is called after
/// it: `target/PROFILE/build/PACKAGE/out`.
fn profile() -> String {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let directory = out.ancestors().nth(3).and_then(Path::file_name);
    match directory.and_then(|name| name.to_str()) {
        Some("debug") => "dev".to_owned(),
        Some(name) => name.to_owned(),
        None => env::var("PROFILE").unwrap_or_default(),
    }
}

fn given() -> Option<String> {
    commit(&env::var(COMMIT_VARIABLE).ok()?)
}

/// The commit of a tree that `git archive` made, as GitHub's do.
fn archived(root: &Path) -> Option<String> {
    commit(&read(&root.join(".commit"))?)
}

/// The commit that is checked out here.
fn checked_out(root: &Path) -> Option<String> {
    let git = git_directory(&root.join(".git"))?;
    let common = read(&git.join("commondir")).map_or_else(|| git.clone(), |to| git.join(to.trim()));
    // Written with each commit, also where the branch stands in `packed-refs`.
    watch(&git.join("logs/HEAD"));
    let head = read(&git.join("HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return commit(&head);
    };
    if let Some(loose) = read(&common.join(name)) {
        return commit(&loose);
    }
    let packed = read(&common.join("packed-refs"))?;
    let line = packed
        .lines()
        .find(|line| line.ends_with(&format!(" {name}")))?;
    commit(line)
}

/// Where a repository's files are; of a further work tree `.git` is a file that says so.
fn git_directory(at: &Path) -> Option<PathBuf> {
    if at.is_dir() {
        return Some(at.to_owned());
    }
    let link = read(at)?;
    let to = link.trim().strip_prefix("gitdir: ")?;
    Some(at.parent()?.join(to))
}

/// A file's text, after whose next change this is to run again.
fn read(path: &Path) -> Option<String> {
    watch(path);
    fs::read_to_string(path).ok()
}

/// Has this run again when a file changes. One that is not there would have it run always.
fn watch(path: &Path) {
    if path.is_file() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The commit that a text begins with, as it is shown.
fn commit(text: &str) -> Option<String> {
    let digits: String = text.chars().take_while(char::is_ascii_hexdigit).collect();
    digits.get(..SHOWN_DIGITS).map(str::to_owned)
}
