//! The manual page names every flag that the program has, and no other.

#[path = "../../ciao-adapter/tests/common/manual.rs"]
mod manual;

#[test]
fn every_flag_is_in_the_manual() {
    let program = env!("CARGO_BIN_EXE_ciao-rik");
    manual::names_every_flag(
        program,
        &[&[], &["token", "issue"]],
        "--tokens",
        "ciao-rik.md",
    );
}
